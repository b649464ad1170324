"""Tensors stored in Python objects of any kind, and results other than containers, are those of eager at each call."""

# ruff: noqa: B006, B039, C417, RUF012, RUF059, F841  the programs do what users do

from __future__ import annotations

import collections
import contextvars
import dataclasses
import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import cond

import thunder
from tests.runtime.stateful import Box, Program, Wrap, outcomes

G: Any = None


def X() -> torch.Tensor:
    """A new tensor."""
    return torch.arange(3.0)


PROGRAMS: dict[str, Program] = {}


def case(program: Program) -> Program:
    """Add a program."""
    PROGRAMS[program.__name__] = program
    return program


def cases(script: Callable[[Any, Wrap], Iterator[Any]], **arguments: Any) -> None:
    """Add a program for each argument of a script, such as functions that differ in what they return."""
    PROGRAMS.update({name: functools.partial(script, argument) for name, argument in arguments.items()})


class Doubles:
    def factor(self):
        return 2


class Triples:
    def factor(self):
        return 3


class DoublingLayer(torch.nn.Module):
    def forward(self, x):
        self.__class__ = TriplingLayer
        return x * 2


class TriplingLayer(torch.nn.Module):
    def forward(self, x):
        return x * 3


@case
def class_of_an_object(jit: Wrap) -> Iterator[Any]:
    def f(x, o):
        o.__class__ = Triples if type(o) is Doubles else Doubles
        return x * o.factor()

    g = jit(f)
    for o in (Doubles(), Doubles(), Triples()):
        for _ in range(2):
            yield g(X(), o), type(o)


@case
def class_of_an_object_in_a_program_that_runs_twice(jit: Wrap) -> Iterator[Any]:
    def f(x, o):
        o.__class__ = Triples if type(o) is Doubles else Doubles
        if x.sum() > 100:
            return x
        setattr(o, "__cla" + "ss__", Triples if type(o) is Doubles else Doubles)
        o.__class__ = Triples if type(o) is Doubles else Doubles
        return x * o.factor()

    g = jit(f)
    o = Doubles()
    for scale in (1, 1, 100):
        yield g(X() * scale, o), type(o)


@case
def class_of_a_module(jit: Wrap) -> Iterator[Any]:
    for _ in range(2):
        module = DoublingLayer()
        g = jit(module)
        yield g(X()), type(module)
        yield g(X()), type(module)
        module.__class__ = DoublingLayer
        yield g(X()), type(module)


@case
def bases_of_a_class(jit: Wrap) -> Iterator[Any]:
    class Derived(Doubles):
        pass

    def f(x):
        if x.sum() > 100:
            Derived.__bases__ = (Triples,)
        return x * Derived().factor()

    g = jit(f)
    for scale in (1, 100, 1, 100):
        yield g(X() * scale), Derived.__bases__
        Derived.__bases__ = (Doubles,)


@case
def closure(jit: Wrap) -> Iterator[Any]:
    s = None

    def f(x):
        nonlocal s
        s = x * 2
        return x + 1

    g = jit(f)
    yield g(X())
    yield s
    a = s
    yield g(X() + 1)
    yield s, a


class Recorded:
    """An object that records the names of the attributes that are assigned."""

    def __init__(self):
        object.__setattr__(self, "names", [])

    def __setattr__(self, name, value):
        object.__getattribute__(self, "names").append(name)
        object.__setattr__(self, name, value)


@case
def attribute_with_a_setattr(jit: Wrap) -> Iterator[Any]:
    recorded = Recorded()

    def f(x):
        recorded.last = x * 2
        return x * len(recorded.names)

    g = jit(f)
    for step in range(3):
        yield g(X() + step), recorded.names, recorded.last


class Slotted:
    """As `Recorded`, with slots."""

    __slots__ = ("count", "last", "names")

    def __init__(self):
        object.__setattr__(self, "names", [])
        object.__setattr__(self, "count", 0)

    def __setattr__(self, name, value):
        self.names.append(name)
        object.__setattr__(self, name, value)


@case
def slot_with_a_setattr(jit: Wrap) -> Iterator[Any]:
    held = Slotted()

    def f(x):
        held.count = held.count + 1
        held.last = x * held.count
        return held.last + len(held.names)

    g = jit(f)
    for step in range(3):
        yield g(X() + step), held.names, held.count, held.last


@case
def slot_that_comes_and_goes(jit: Wrap) -> Iterator[Any]:
    held = Slotted()

    def f(x):
        if hasattr(held, "last"):
            before = held.last
            del held.last
            return x * before
        held.last = x + 1
        return x

    g = jit(f)
    for step in range(5):
        yield g(X() + step), hasattr(held, "last")


@case
def attribute_in_place_of_a_default_of_the_class(jit: Wrap) -> Iterator[Any]:
    class Options:
        scale = 1.0

    options = Options()
    options.scale = 5.0

    def f(x):
        y = x * options.scale
        if "scale" in vars(options):
            del options.scale
        else:
            options.scale = 3.0
        return y

    g = jit(f)
    for step in range(5):
        yield g(X() + step), vars(options)


@case
def attribute_of_the_name_of_a_property(jit: Wrap) -> Iterator[Any]:
    class Doubled:
        def __init__(self):
            self.__dict__["value"] = 1.0

        @property
        def value(self):
            return self.__dict__["value"]

        @value.setter
        def value(self, new):
            self.__dict__["value"] = new * 2

    doubled = Doubled()

    def f(x):
        doubled.value = doubled.value + 1
        return x * doubled.value

    g = jit(f)
    for step in range(4):
        yield g(X() + step), vars(doubled)


class Counting(type):
    """A metaclass that counts assignments."""

    def __setattr__(cls, name, value):
        type.__setattr__(cls, name, value)
        type.__setattr__(cls, "count", cls.count + 1)


@case
def attribute_of_a_class_whose_metaclass_counts(jit: Wrap) -> Iterator[Any]:
    class Counted(metaclass=Counting):
        count = 0

    def f(x):
        Counted.last = x * 2
        return x * Counted.count

    g = jit(f)
    for step in range(3):
        yield g(X() + step), Counted.count, Counted.last


@case
def attribute_of_a_thread_local(jit: Wrap) -> Iterator[Any]:
    local = threading.local()
    local.count = 0

    def f(x):
        local.count += 1
        local.last = x * local.count
        return x + local.count

    g = jit(f)
    for step in range(3):
        yield g(X() + step), local.count, local.last
    yield hasattr(local, "other")


@case
def variable_of_a_module(jit: Wrap) -> Iterator[Any]:
    settings = types.ModuleType("settings")

    def f(x):
        settings.last = x * 2
        settings.flag = 5
        return x + 1

    g = jit(f)
    for step in range(3):
        settings.flag = 0
        yield g(X() + step), settings.last, settings.flag


@case
def variable_of_a_module_that_is_deleted(jit: Wrap) -> Iterator[Any]:
    settings = types.ModuleType("settings")

    def f(module, x):
        del module.once
        return x + 1

    g = jit(f)
    for step in range(3):
        settings.once = step
        yield g(settings, X()), hasattr(settings, "once")


@case
def attributes_of_tensors_in_a_list(jit: Wrap) -> Iterator[Any]:
    def f(tensors, x):
        for tensor in tensors:
            tensor.twice = x * 2
        return tensors[0].twice + 1

    g = jit(f)
    tensors = [X(), X()]
    for step in range(3):
        yield g(tensors, X() + step), [tensor.twice for tensor in tensors]


@case
def bounds_of_a_slice(jit: Wrap) -> Iterator[Any]:
    def f(x):
        return slice(x.min(), x.max() + 1, None), slice(1, 2)

    g = jit(f)
    for step in range(3):
        yield [[part.start, part.stop, part.step] for part in g(X() + step)]


@case
def variable_of_a_branch(jit: Wrap) -> Iterator[Any]:
    c = 0

    def f(pred, x):
        nonlocal c
        c = x.shape[0]
        return cond(pred, lambda x: x - c, lambda x: x + c, [x])

    g = jit(f)
    for pred in (True, False):
        c = 0
        yield g(torch.tensor(pred), X()), c


@case
def closure_read(jit: Wrap) -> Iterator[Any]:
    s = torch.zeros(3)

    def f(x):
        nonlocal s
        s = s + x
        return s

    g = jit(f)
    a = g(X())
    yield a, s
    b = g(X() + 1)
    yield s, a, b
    c = g(X())
    yield s, c


@case
def closure_inplace(jit: Wrap) -> Iterator[Any]:
    s = torch.zeros(3)

    def f(x):
        s.add_(x)
        return s

    g = jit(f)
    a = g(X())
    yield a, s
    b = g(X() + 1)
    yield s, a, b
    c = g(X())
    yield s, c


@case
def globals_(jit: Wrap) -> Iterator[Any]:
    global G
    G = None

    def f(x):
        global G
        G = x * 2
        return x + 1

    g = jit(f)
    yield g(X())
    yield G
    a = G
    yield g(X() + 1)
    yield G, a


@case
def globals_read(jit: Wrap) -> Iterator[Any]:
    global G
    G = torch.zeros(3)

    def f(x):
        global G
        G = G + x
        return G

    g = jit(f)
    a = g(X())
    yield G, a
    b = g(X() + 1)
    yield G, a, b


@case
def list_append(jit: Wrap) -> Iterator[Any]:
    held = []

    def f(x):
        held.append(x * 2)
        return x + 1

    g = jit(f)
    yield g(X())
    yield held
    yield g(X() + 1)
    yield held
    yield g(X())
    yield held


@case
def list_set(jit: Wrap) -> Iterator[Any]:
    held = [None, None]

    def f(x):
        held[0] = y = x * 2
        held[1] = x
        return y

    g = jit(f)
    x = X()
    y = g(x)
    yield y, held, x
    x = X() + 1
    y = g(x)
    yield x, held, y


@case
def list_ops(jit: Wrap) -> Iterator[Any]:
    held = [X(), X() + 1]

    def f(x):
        held.insert(0, x * 2)
        held.pop()
        held.reverse()
        held.extend([x, x + 1])
        return held[0] + held[1]

    g = jit(f)
    x = X()
    y = g(x)
    yield y, held, x
    x = X() + 1
    y = g(x)
    yield x, held, y


@case
def dict_set(jit: Wrap) -> Iterator[Any]:
    d = {}

    def f(x):
        d["a"] = y = x * 2
        d["b"] = {"c": [y, x]}
        return y

    g = jit(f)
    x = X()
    y = g(x)
    yield y, d, x
    x = X() + 1
    y = g(x)
    yield x, d, y


@case
def dict_acc(jit: Wrap) -> Iterator[Any]:
    d = {"s": X()}

    def f(x):
        d["s"] = d["s"] + x
        return d["s"] * 2

    g = jit(f)
    x = X()
    y = g(x)
    yield y, d, x
    x = X() + 1
    y = g(x)
    yield x, d, y
    yield g(x), d


@case
def dict_order(jit: Wrap) -> Iterator[Any]:
    d = {"a": 1.0, "b": 2.0}

    def f(x):
        del d["a"]
        d["a"] = 3.0
        return x * d["a"]

    g = jit(f)
    yield g(X()), d
    yield g(X()), d
    d["z"] = 1.0
    yield g(X()), d
    d["y"] = 1.0
    yield g(X()), d


@case
def dict_new_object_key(jit: Wrap) -> Iterator[Any]:
    d = {"a": 1.0}

    def f(x):
        d[Box(1)] = x * 2
        return x + 1

    g = jit(f)
    yield g(X()), list(d.values())
    d["z"] = 1.0
    yield g(X()), list(d.values())


@case
def dict_tensorkey(jit: Wrap) -> Iterator[Any]:
    d = {}

    def f(x):
        d[x] = y = x * 2
        return y

    g = jit(f)
    x = X()
    y = g(x)
    yield y, list(d.items()), x
    y = g(x)
    yield x, list(d.items()), y


@case
def dict_newkey(jit: Wrap) -> Iterator[Any]:
    d = {}

    def f(x):
        y = x * 2
        d[y] = x
        return y

    g = jit(f)
    x = X()
    y = g(x)
    yield y, list(d.items()), x
    y = g(x)
    yield x, list(d.items()), y


@case
def attr(jit: Wrap) -> Iterator[Any]:
    o = Box()

    def f(x):
        o.n = y = x * 2
        o.z = [y]
        return y

    g = jit(f)
    x = X()
    y = g(x)
    yield y, o, x
    x = X() + 1
    y = g(x)
    yield x, o, y


@case
def attr_of_global(jit: Wrap) -> Iterator[Any]:
    global G
    G = Box()

    def f(x):
        G.n = y = x * 2
        G.z = [y]
        return y

    g = jit(f)
    x = X()
    y = g(x)
    yield y, G, x
    x = X() + 1
    y = g(x)
    yield x, G, y


@case
def attr_acc(jit: Wrap) -> Iterator[Any]:
    o = Box(X())

    def f(x):
        o.n = o.n + x
        return o.n * 1

    g = jit(f)
    x = X()
    y = g(x)
    yield y, o, x
    x = X() + 1
    y = g(x)
    yield x, o, y
    yield g(x), o


@case
def classattr(jit: Wrap) -> Iterator[Any]:
    class C:
        k = None

    def f(x):
        C.k = y = x * 2
        return y

    g = jit(f)
    x = X()
    y = g(x)
    yield y, C.k, x
    x = X() + 1
    y = g(x)
    yield x, C.k, y


@case
def classattr_self(jit: Wrap) -> Iterator[Any]:
    class C:
        k = None

        def go(self, x):
            type(self).k = y = x * 2
            self.__class__.z = [y]
            return y

    c = C()
    g = jit(c.go)
    x = X()
    y = g(x)
    yield y, C.k, C.z, x
    x = X() + 1
    y = g(x)
    yield x, C.k, C.z, y


@case
def classmethod_(jit: Wrap) -> Iterator[Any]:
    class C:
        k = None

        @classmethod
        def go(cls, x):
            cls.k = y = x * 2
            return y

    g = jit(C.go)
    x = X()
    y = g(x)
    yield y, C.k, x
    x = X() + 1
    y = g(x)
    yield x, C.k, y


@case
def classlist(jit: Wrap) -> Iterator[Any]:
    class C:
        held = []

    def f(x):
        C.held.append(x * 2)
        return x

    g = jit(f)
    x = X()
    y = g(x)
    yield y, C.held, x
    x = X() + 1
    y = g(x)
    yield x, C.held, y


@case
def deque_(jit: Wrap) -> Iterator[Any]:
    held = collections.deque(maxlen=2)

    def f(x):
        held.append(x * 2)
        held.appendleft(x)
        return x + 1

    g = jit(f)
    x = X()
    yield g(x), held, x
    yield g(x), held, x
    yield g(x), held, x


@case
def set_(jit: Wrap) -> Iterator[Any]:
    s = set()

    def f(x):
        s.add(x * 2)
        return x + 1

    g = jit(f)
    yield g(X()), len(s)
    yield g(X()), len(s), sorted(t.sum().item() for t in s)


@case
def dataclass_(jit: Wrap) -> Iterator[Any]:
    @dataclasses.dataclass
    class D:
        a: object = None
        b: list = dataclasses.field(default_factory=list)

    d = D()

    def f(x):
        d.a = x * 2
        d.b.append(d.a)
        return x + 1

    g = jit(f)
    yield g(X()), d
    yield g(X() + 1), d


@case
def slots(jit: Wrap) -> Iterator[Any]:
    class S:
        __slots__ = ("a",)

    s = S()
    s.a = None

    def f(x):
        s.a = y = x * 2
        return y

    g = jit(f)
    yield g(X()), s.a
    yield g(X() + 1), s.a


@case
def optimizer_state(jit: Wrap) -> Iterator[Any]:
    p = torch.nn.Parameter(torch.ones(3))
    opt = torch.optim.SGD([p], lr=0.1)

    def f(x):
        s = opt.state[p]
        s["m"] = s["m"] + x if "m" in s else x * 1
        return s["m"] * 2

    g = jit(f)
    yield g(X())
    yield opt.state[p]
    yield g(X())
    yield opt.state[p]
    yield g(X())
    yield opt.state[p]


@case
def default_arg(jit: Wrap) -> Iterator[Any]:
    def f(x, acc=[]):
        acc.append(x * 2)
        return x + 1

    g = jit(f)
    yield g(X()), f.__defaults__
    yield g(X() + 1), f.__defaults__


@case
def default_arg_helper(jit: Wrap) -> Iterator[Any]:
    def h(x, acc={}):
        acc["k"] = x * 2
        return acc["k"]

    def f(x):
        return h(x) + 1

    g = jit(f)
    yield g(X()), h.__defaults__
    yield g(X() + 1), h.__defaults__


@case
def ctxvar(jit: Wrap) -> Iterator[Any]:
    v = contextvars.ContextVar("v", default=None)

    def f(x):
        v.set(x * 2)
        return x + 1

    g = jit(f)
    yield g(X()), v.get()
    yield g(X() + 1), v.get()


@case
def ctxvar_read(jit: Wrap) -> Iterator[Any]:
    v = contextvars.ContextVar("v", default=torch.zeros(3))

    def f(x):
        y = v.get() + x
        v.set(y)
        return y

    g = jit(f)
    yield g(X()), v.get()
    yield g(X() + 1), v.get()
    yield g(X()), v.get()


@case
def ctxvar_reset(jit: Wrap) -> Iterator[Any]:
    v = contextvars.ContextVar("v", default=None)

    def f(x):
        t = v.set(x * 2)
        y = v.get() + 1
        v.reset(t)
        return y

    g = jit(f)
    yield g(X()), v.get()
    yield g(X() + 1), v.get()


@case
def ctxvar_plain(jit: Wrap) -> Iterator[Any]:
    v = contextvars.ContextVar("v", default=1.0)

    def f(x):
        k = v.get()
        v.set(k + 1)
        return x * k

    g = jit(f)
    yield g(X()), v.get()
    yield g(X() + 1), v.get()


@case
def func_attr(jit: Wrap) -> Iterator[Any]:
    def h():
        pass

    def f(x):
        h.k = x * 2
        f.z = [h.k]
        return x + 1

    g = jit(f)
    yield g(X()), h.k, f.z
    yield g(X() + 1), h.k, f.z


@case
def nested_new(jit: Wrap) -> Iterator[Any]:
    o = Box()

    def f(x):
        o.n = Box([x * 2])
        o.n.t = x
        return x + 1

    g = jit(f)
    x = X()
    yield g(x), o, x
    yield g(x), o


@case
def closure_of_result(jit: Wrap) -> Iterator[Any]:
    def f(x):
        y = x * 2

        def get():
            return y

        return get

    g = jit(f)
    h = g(X())
    yield h()
    k = g(X() + 1)
    yield h(), k()


@case
def stored_function(jit: Wrap) -> Iterator[Any]:
    o = Box()

    def f(x):
        y = x * 2
        o.n = lambda: y
        return x

    g = jit(f)
    yield g(X()), o.n()
    h = o.n
    yield g(X() + 1), o.n(), h()


@case
def module_list(jit: Wrap) -> Iterator[Any]:
    m = torch.nn.Linear(3, 3)
    m.acts = []

    def f(x):
        y = m(x)
        m.acts.append(y)
        return y.sum()

    g = jit(f)
    yield g(X()), m.acts
    m.acts.clear()
    yield g(X()), m.acts
    m.acts.clear()
    yield g(X()), m.acts


@case
def fwd_hook_store(jit: Wrap) -> Iterator[Any]:
    m = torch.nn.Linear(3, 3)
    acts = {}
    m.register_forward_hook(lambda mod, i, o: acts.__setitem__("a", o))
    g = jit(m)
    y = g(X())
    yield y, acts
    y2 = g(X() + 1)
    yield y2, acts, y


@case
def fwd_hook_append(jit: Wrap) -> Iterator[Any]:
    m = torch.nn.Linear(3, 3)
    acts = []
    m.register_forward_hook(lambda mod, i, o: acts.append(o.detach()))
    g = jit(m)
    y = g(X())
    yield y, acts
    acts.clear()
    y2 = g(X() + 1)
    yield y2, acts, y


@case
def grad_stored(jit: Wrap) -> Iterator[Any]:
    o = Box()
    w = torch.ones(3, requires_grad=True)

    def f(x):
        o.n = x * w
        return o.n.sum()

    g = jit(f)
    y = g(X())
    y.backward()
    yield w.grad, o.n
    w.grad = None
    g(X() + 1)
    o.n.sum().backward()
    yield w.grad


@case
def arg_stored(jit: Wrap) -> Iterator[Any]:
    o = Box()

    def f(x, held):
        o.n = held
        held.append(x * 2)
        return x

    g = jit(f)
    held = []
    yield g(X(), held), o, held
    held = []
    yield g(X(), held), o, held


@case
def view_stored(jit: Wrap) -> Iterator[Any]:
    o = Box()

    def f(x):
        y = x * 2
        o.n = y[1:]
        return y

    g = jit(f)
    y = g(X())
    o.n.add_(1)
    yield y, o
    y = g(X())
    o.n.add_(1)
    yield y, o


@case
def input_view_stored(jit: Wrap) -> Iterator[Any]:
    o = Box()

    def f(x):
        o.n = x[1:]
        return x + 1

    g = jit(f)
    x = X()
    y = g(x)
    o.n.add_(1)
    yield x, o
    y = g(x)
    o.n.add_(1)
    yield x, o


@case
def delete(jit: Wrap) -> Iterator[Any]:
    d = {"a": X(), "b": X()}
    o = Box(X())

    def f(x):
        y = d.pop("a") + o.n
        del o.n
        o.m = y
        d["a"] = y
        return y

    g = jit(f)
    yield g(X()), d, o
    o.n = X()
    del o.m
    yield g(X()), d, o


@case
def nonlocal_plain(jit: Wrap) -> Iterator[Any]:
    c = 0
    t = None

    def f(x):
        nonlocal c, t
        c += 1
        t = x * c
        return t

    g = jit(f)
    yield g(X()), c, t
    yield g(X()), c, t


@case
def sub_list(jit: Wrap) -> Iterator[Any]:
    class L(list):
        pass

    held = L()
    held.z = None

    def f(x):
        held.append(x * 2)
        held.z = x + 1
        return x

    g = jit(f)
    yield g(X()), held, held.z
    yield g(X()), held, held.z


@case
def dd(jit: Wrap) -> Iterator[Any]:
    d = collections.defaultdict(list)

    def f(x):
        d["a"].append(x * 2)
        return x

    g = jit(f)
    yield g(X()), d
    yield g(X()), d


@case
def counter(jit: Wrap) -> Iterator[Any]:
    d = collections.Counter()

    def f(x):
        d["a"] += 1
        d["b"] += 2
        return x * d["a"]

    g = jit(f)
    yield g(X()), d
    yield g(X()), d


@case
def od(jit: Wrap) -> Iterator[Any]:
    d = collections.OrderedDict(a=1.0, b=2.0)

    def f(x):
        d.move_to_end("a")
        d["c"] = x * 2
        return x * d["a"]

    g = jit(f)
    yield g(X()), d
    yield g(X()), d
    yield g(X()), d


def of_iterators(f: Any, jit: Wrap) -> Iterator[Any]:
    g = jit(f)
    for x in (X(), X() + 1):
        a, *b = g(x)
        yield a, [list(k) for k in b]


cases(
    of_iterators,
    gen_result=lambda x: (x, (x * i for i in range(3))),
    gen_noten=lambda x: (x + 1, (i for i in range(3))),
    iter_result=lambda x: (x + 1, iter([1, 2, 3]), iter([x * 2, x])),
    zip_result=lambda x: (x + 1, zip([1, 2], (x, x * 2)), enumerate([x + 1]), reversed([1, 2]), range(3)),
    map_result=lambda x: (x + 1, map(lambda v: v + 1, [1, 2]), filter(None, [0, 1])),
)


@case
def only_a_generator(jit: Wrap) -> Iterator[Any]:
    g = jit(lambda x: (x * i for i in range(3)))
    yield list(g(X()))
    yield list(g(X() + 1))


@case
def generator_fn(jit: Wrap) -> Iterator[Any]:
    def f(x):
        yield x + 1
        yield x * 2

    g = jit(f)
    yield list(g(X()))
    yield list(g(X() + 1))


@case
def generator_consumed(jit: Wrap) -> Iterator[Any]:
    def h(x):
        for i in range(3):
            yield x * i

    def f(x):
        return sum(h(x))

    g = jit(f)
    yield g(X())
    yield g(X() + 1)


@case
def lock_result(jit: Wrap) -> Iterator[Any]:

    def f(x):
        return x + 1, threading.Lock()

    g = jit(f)
    a, b = g(X())
    yield a, type(b).__name__, b.acquire()
    a, c = g(X() + 1)
    yield a, c is b, c.acquire()


@case
def module_result(jit: Wrap) -> Iterator[Any]:
    def f(x):
        return x + 1, torch, math_

    import math as math_

    g = jit(f)
    yield [str(k) for k in g(X())]
    yield [str(k) for k in g(X())]


@case
def file_result(jit: Wrap) -> Iterator[Any]:
    def f(x):
        return x + 1, open("/dev/null")

    g = jit(f)
    a, b = g(X())
    yield a, b.closed
    b.close()
    a, b = g(X())
    yield a, b.closed
    b.close()


@case
def weak_result(jit: Wrap) -> Iterator[Any]:

    o = Box()

    def f(x):
        return x + 1, weakref.ref(o)

    g = jit(f)
    a, b = g(X())
    yield a, b() is o
    a, b = g(X())
    yield a, b() is o


@case
def weak_result_whose_object_is_gone(jit: Wrap) -> Iterator[Any]:
    def f(x):
        return x + 1, weakref.ref(Box())

    g = jit(f)
    for _ in range(2):
        a, b = g(X())
        yield a, b()


@case
def exc_result(jit: Wrap) -> Iterator[Any]:
    def f(x):
        try:
            raise ValueError(3)
        except ValueError as e:
            r = e
        return x + 1, r

    g = jit(f)
    a, b = g(X())
    yield a, b.args
    a, d = g(X())
    yield a, d is b


@case
def ctx_result(jit: Wrap) -> Iterator[Any]:
    def f(x):
        return x + 1, torch.no_grad(), contextvars.copy_context()

    g = jit(f)
    a, b, c = g(X())
    yield a, type(b).__name__
    a, d, e = g(X())
    yield a, d is b


@case
def stored_gen(jit: Wrap) -> Iterator[Any]:
    o = Box()

    def f(x):
        o.n = (i for i in range(3))
        return x

    g = jit(f)
    yield g(X()), list(o.n)
    yield g(X()), list(o.n)


@case
def gen_arg(jit: Wrap) -> Iterator[Any]:
    def f(x, it):
        return x * next(it)

    it = iter([1.0, 2.0, 3.0, 4.0])
    g = jit(f)
    yield g(X(), it)
    yield g(X(), it)
    yield next(it)


@case
def gen_closure(jit: Wrap) -> Iterator[Any]:
    it = (float(i) for i in range(5))

    def f(x):
        return x * next(it)

    g = jit(f)
    yield g(X())
    yield g(X())
    yield next(it)


@case
def held_append(jit: Wrap) -> Iterator[Any]:
    items = []
    put = items.append

    def f(x):
        put(1.0)
        return x

    g = jit(f)
    for _ in range(3):
        yield g(X()), items


@case
def held_pop(jit: Wrap) -> Iterator[Any]:
    box = Box([1.0, 2.0, 3.0])
    box.take = box.n.pop
    g = jit(lambda x: x * box.take())
    for _ in range(3):
        yield g(X()), box.n


@case
def held_popleft_in_a_partial(jit: Wrap) -> Iterator[Any]:
    queue = collections.deque([1.0, 2.0, 3.0])
    take = functools.partial(queue.popleft)
    g = jit(lambda x: x * take())
    for _ in range(3):
        yield g(X()), queue


@case
def held_next(jit: Wrap) -> Iterator[Any]:
    step = iter([1.0, 2.0, 3.0]).__next__
    g = jit(lambda x: x * step())
    for _ in range(3):
        yield g(X())


@case
def held_get(jit: Wrap) -> Iterator[Any]:
    table = {"scale": 1.0}
    get = table.get
    g = jit(lambda x: x * get("scale"))
    for _ in range(3):
        yield g(X())
        table["scale"] += 1


class WithSlots:
    __slots__ = ("a",)


class WithSetter:
    @property
    def value(self):
        return self.a

    @value.setter
    def value(self, value):
        self.a = value


def assigned_again(kind: Callable[[], Any], write: Callable[[Any, Any], None], jit: Wrap) -> Iterator[Any]:
    """The program assigns what is there already, when it is recorded or later; between the calls, others assign."""
    target, kept = kind(), torch.zeros(2)
    for values in ((1, 5, 1, 7), (5, 1, 1, 2), (kept, torch.zeros(2), 1)):
        one = values[0] if len(values) == 3 else 1

        def f(x, one=one):
            write(target, one)
            return x * 2

        g = jit(f)
        for value in values:
            target.a = value
            yield g(X()), target.a is kept, target.a


def _attribute(target, one):
    target.a = one


def _deleted(target, one):
    del target.a
    target.a = one


def _by_key(target, one):
    for name in ("a",):
        setattr(target, name, one)


def _in_dictionary(target, one):
    vars(target)["a"] = one


def _by_setter(target, one):
    target.value = one


cases(
    lambda row, jit: assigned_again(*row, jit),
    same_attribute=(Box, _attribute),
    same_slot=(WithSlots, _attribute),
    same_attribute_of_a_module=(torch.nn.Module, _attribute),
    same_attribute_of_a_class=(lambda: type("Named", (), {}), _attribute),
    same_attribute_of_a_python_module=(lambda: types.ModuleType("named"), _attribute),
    same_attribute_deleted_before=(Box, _deleted),
    same_attribute_by_key=(Box, _by_key),
    same_attribute_in_dictionary=(Box, _in_dictionary),
    same_attribute_by_setter=(WithSetter, _by_setter),
)


@case
def same_variables(jit: Wrap) -> Iterator[Any]:
    global G
    captured = 1

    def f(x):
        global G
        nonlocal captured
        G = captured = 1
        return x * 2

    g = jit(f)
    for value in (1, 5, 1, 7):
        G = captured = value
        yield g(X()), G, captured


@case
def attribute_that_is_deleted_again(jit: Wrap) -> Iterator[Any]:
    box = Box()

    def f(x):
        box.temporary = 3
        y = x * box.temporary
        del box.temporary
        return y

    g = jit(f)
    for before in (None, 5, None):
        if before is not None:
            box.temporary = before
        yield g(X()), box


class Key:
    """An object that dies with its last reference."""


def weakly_held(make: Callable[[], Any], write: Callable[[Any, Any], Any], jit: Wrap) -> Iterator[Any]:
    """Entries that the program adds to a weak container die with their keys."""
    container, keys = make(), [Key()]

    def f(x):
        write(container, keys[0])
        return x * len(container)

    g = jit(f)
    for _ in range(3):
        yield g(X()), len(container), list(container.values()) if hasattr(container, "values") else None
        yield g(X()), len(container)
        keys[0] = Key()
        yield len(container), len(getattr(container, "data", ()))


def _set_entry(container, key):
    container[key] = 1


def _append_to_default(container, key):
    container.setdefault(key, []).append(1)


def _count(container, key):
    if key in container:
        container[key] += 1
    else:
        container.update({key: 1})


def _set_value(container, key):
    container["a"] = key


cases(
    lambda row, jit: weakly_held(*row, jit),
    weak_key=(weakref.WeakKeyDictionary, _set_entry),
    weak_key_by_default=(weakref.WeakKeyDictionary, _append_to_default),
    weak_key_counted=(weakref.WeakKeyDictionary, _count),
    weak_member=(weakref.WeakSet, lambda container, key: container.add(key)),
)


@case
def weak_value(jit: Wrap) -> Iterator[Any]:
    container, keys = weakref.WeakValueDictionary(), [Key()]

    def f(x):
        container["a"] = keys[0]
        return x * 2

    g = jit(f)
    for _ in range(3):
        yield g(X()), container["a"] is keys[0], len(container)
        keys[0] = Key()
        yield len(container)


def cached_function(clears: bool, jit: Wrap) -> Iterator[Any]:
    """The body runs once for each key, also where it creates tensors, and the program or the user clears the cache."""
    runs = []

    @functools.lru_cache
    def table(n):
        runs.append(n)
        return torch.arange(n) * 2

    @functools.lru_cache
    def plain(n):
        runs.append(-n)
        return n + 1

    plain(3)

    def f(x, n):
        if clears:
            table.cache_clear()
        return x[:n] + table(n) * plain(n)

    g = jit(f)
    for n in (3, 3, 2, 3, 2, 3):
        yield g(X(), n), list(runs)
    table.cache_clear()
    yield g(X(), 3), list(runs)
    yield g(X(), 3), list(runs), table(3)


cases(cached_function, cached_function=False, cleared_cached_function=True)


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.battery
def test_program(name: str, jit: Wrap) -> None:
    """The same as in eager, whatever changes between the calls."""
    assert outcomes(PROGRAMS[name], jit) == outcomes(PROGRAMS[name], lambda function: function)


def test_a_function_called_without_its_cache_compiles() -> None:
    def table() -> torch.Tensor:
        return torch.arange(3) * 2

    with_cache = functools.lru_cache(table)
    compiled = thunder.jit(lambda x, cached: x + (with_cache if cached else table)())
    for _ in range(2):
        assert torch.equal(compiled(X(), False), X() + table())
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (1, 1)


def test_context_variables_that_the_compiler_sets() -> None:
    """SymPy, with which PyTorch computes sizes, has `decimal` set its context variable; the program does not."""

    def program(x: torch.Tensor) -> torch.Tensor:
        chosen.set(x.shape[0])
        return torch.cat([x, x.new_zeros(max(x.shape[0], 3), x.shape[1])])

    chosen: contextvars.ContextVar[int] = contextvars.ContextVar("chosen")

    def variables(function: Callable[..., Any]) -> dict[str, Any]:
        for size in (4, 6):
            function(torch.ones(size, 5))
        return {variable.name: value for variable, value in contextvars.copy_context().items()}

    expected = contextvars.Context().run(variables, program)
    assert contextvars.Context().run(variables, thunder.jit(program, dynamic=True)) == expected == {"chosen": 6}
