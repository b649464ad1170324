"""What programs read from Python objects decides whether an entry fits: identities, names, the environment."""

# ruff: noqa: B024, RUF012  the programs do what users do

from __future__ import annotations

import abc
import builtins
import collections
import configparser
import contextlib
import contextvars
import copy
import dataclasses
import decimal
import email.message
import enum
import functools
import gc
import operator
import os
import pathlib
import reprlib
import sys
import tempfile
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder
from tests.runtime.stateful import Box, Program, Wrap, outcomes
from tests.runtime.young_heap import young_heap

X = torch.arange(3.0)
ZG = 2.0


class Derived(Box):
    """Another class."""


def two_ones() -> torch.Tensor:
    return torch.ones(2)


PROGRAMS: dict[str, Program] = {}


def case(program: Program) -> Program:
    """Add a program."""
    PROGRAMS[program.__name__] = program
    return program


def cases(script: Callable[[Any, Wrap], Iterator[Any]], **functions: Any) -> None:
    """Add a program for each function, or each maker of functions over objects: they differ in how they read."""
    PROGRAMS.update({name: functools.partial(script, function) for name, function in functions.items()})


def of_environment(f: Any, jit: Wrap) -> Iterator[Any]:
    os.environ.pop("ZZQ", None)
    g = jit(f)
    yield g(X)
    os.environ["ZZQ"] = "2"
    yield g(X)
    del os.environ["ZZQ"]
    yield g(X)


def getenv(name: str) -> str:
    return os.getenv(name, "1")


cases(
    of_environment,
    environ=lambda x: x * float(os.environ.get("ZZQ", "1")),
    environ_in=lambda x: x * 2 if "ZZQ" in os.environ else x,
    environ_arg=lambda x: x * float(getenv("ZZQ")),
)


def of_globals(f: Any, jit: Wrap) -> Iterator[Any]:
    global ZG
    ZG = 2.0
    g = jit(f)
    yield g(X, "ZG")
    ZG = 3.0
    yield g(X, "ZG")
    ZG = 2.0


cases(
    of_globals,
    globals_=lambda x, n: x * globals()[n],
    fglobals=lambda x, n: x * getenv.__globals__[n],
    eval_=lambda x, n: x * eval(n),
)


def of_an_object(make: Any, jit: Wrap) -> Iterator[Any]:
    o = Box(2.0)
    g = jit(make(o))
    yield g(X, "n")
    o.n = 7.0
    yield g(X, "n")


cases(
    of_an_object,
    vars_name=lambda o: lambda x, n: x * vars(o)[n],
    dict_attr=lambda o: lambda x, n: x * o.__dict__[n],
)


def of_a_class(make: Any, jit: Wrap) -> Iterator[Any]:
    class C:
        a = 2.0

    g = jit(make(C))
    yield g(X, "a")
    C.a = 7.0
    yield g(X, "a")


cases(
    of_a_class,
    class_dict=lambda C: lambda x, n: x * C.__dict__[n],
    class_vars=lambda C: lambda x, n: x * vars(C)[n],
)


def of_a_closure(make: Any, jit: Wrap) -> Iterator[Any]:
    p, q = Box(), Box()
    g = jit(make(p))
    yield g(X, q)
    yield g(X, p)
    yield g(X, q)


cases(
    of_a_closure,
    is_closure_neg=lambda p: lambda x, o: x + 1 if o is p else x - 1,
    eq_objit=lambda p: lambda x, o: x + 1 if o == p else x - 1,
)


def of_two_arguments(functions: Any, jit: Wrap) -> Iterator[Any]:
    f, kind = functions
    a, b = kind(), kind()
    g = jit(f)
    yield g(X, a, b)
    yield g(X, a, a)
    yield g(X, b, a)


cases(
    of_two_arguments,
    **{
        f"{name}_of_{kind.__name__}": (f, kind)
        for kind in (Box, two_ones)
        for name, f in {
            "length_of_intersection": lambda x, a, b: x * len({a} & {b}),
            "length_of_set": lambda x, a, b: x * len({a, b}),
            "equal_ids": lambda x, a, b: x * 2 if id(a) == id(b) else x,
        }.items()
    },
)


@case
def in_set(jit: Wrap) -> Iterator[Any]:
    def f(x, p, q):
        return x + 1 if p in {q} else x - 1

    g = jit(f)
    p, q = Box(), Box()
    yield g(X, p, p)
    yield g(X, p, q)
    yield g(X, q, q)
    yield g(X, q, p)


@case
def in_set_global(jit: Wrap) -> Iterator[Any]:
    p, q, r = Box(), Box(), Box()
    seen = {p, q}

    def f(x, o):
        return x + 1 if o in seen else x - 1

    g = jit(f)
    yield g(X, p)
    yield g(X, r)
    yield g(X, q)
    seen.add(r)
    yield g(X, r)
    seen.discard(p)
    yield g(X, p)


@case
def in_list(jit: Wrap) -> Iterator[Any]:
    p, q, r = Box(), Box(), Box()
    seen = [p, q]

    def f(x, o):
        return x + 1 if o in seen else x - 1

    g = jit(f)
    yield g(X, p)
    yield g(X, r)
    yield g(X, q)
    seen.append(r)
    yield g(X, r)
    seen.remove(p)
    yield g(X, p)


@case
def in_tuple(jit: Wrap) -> Iterator[Any]:
    def f(x, o, t):
        return x + 1 if o in t else x - 1

    g = jit(f)
    p, q = Box(), Box()
    yield g(X, p, (p, q))
    yield g(X, p, (q, q))
    yield g(X, q, (p, q))
    yield g(X, Box(), (p, q))


@case
def in_dict(jit: Wrap) -> Iterator[Any]:
    p, q, r = Box(), Box(), Box()
    d = {p: 1.0, q: 2.0}

    def f(x, o):
        return x * d[o] if o in d else x - 1

    g = jit(f)
    yield g(X, p)
    yield g(X, r)
    yield g(X, q)
    d[r] = 3.0
    yield g(X, r)
    del d[p]
    yield g(X, p)


@case
def dict_get(jit: Wrap) -> Iterator[Any]:
    p, q, r = Box(), Box(), Box()
    d = {p: 1.0, q: 2.0}

    def f(x, o):
        return x * d.get(o, 7.0)

    g = jit(f)
    yield g(X, p)
    yield g(X, r)
    yield g(X, q)
    d[r] = 3.0
    yield g(X, r)


def of_one_of_two(make: Any, jit: Wrap) -> Iterator[Any]:
    p, q = Box(), Box()
    g = jit(make(p))
    yield g(X, p)
    yield g(X, q)
    yield g(X, p)


cases(
    of_one_of_two,
    id_eq=lambda p: (lambda n: lambda x, o: x + 1 if id(o) == n else x - 1)(id(p)),
    hash_=lambda p: (lambda n: lambda x, o: x + 1 if hash(o) == n else x - 1)(hash(p)),
    is_closure=lambda p: lambda x, o: x + 1 if o is p else x - 1,
    weak=lambda p: (lambda w: lambda x, o: x + 1 if w() is o else x - 1)(weakref.ref(p)),
)


def of_one_of_three(make: Any, jit: Wrap) -> Iterator[Any]:
    p, q, r = Box(), Box(), Box()
    g = jit(make(p, q, r))
    yield g(X, p)
    yield g(X, r)
    yield g(X, q)


cases(
    of_one_of_three,
    list_index=lambda p, q, r: (lambda seen: lambda x, o: x + seen.index(o))([p, q, r]),
    list_count=lambda p, q, r: (lambda seen: lambda x, o: x + seen.count(o))([p, q, p]),
)


@case
def id_arg(jit: Wrap) -> Iterator[Any]:
    p, q = Box(), Box()

    def f(x, o, n):
        return x + 1 if id(o) == n else x - 1

    g = jit(f)
    yield g(X, p, id(p))
    yield g(X, q, id(p))
    yield g(X, q, id(q))


@case
def id_cmp(jit: Wrap) -> Iterator[Any]:
    def f(x, a, b):
        return x + 1 if id(a) == id(b) else x - 1

    g = jit(f)
    p, q = Box(), Box()
    yield g(X, p, q)
    yield g(X, p, p)
    yield g(X, q, p)
    yield g(X, q, q)


@case
def is_global(jit: Wrap) -> Iterator[Any]:
    p, q = Box(), Box()
    ns = {"p": p}

    def f(x, o):
        return x + 1 if o is ns["p"] else x - 1

    g = jit(f)
    yield g(X, p)
    yield g(X, q)
    yield g(X, p)
    ns["p"] = q
    yield g(X, q)


@case
def eq_objs(jit: Wrap) -> Iterator[Any]:
    def f(x, a, b):
        return x + 1 if a == b else x - 1

    g = jit(f)
    p, q = Box(), Box()
    yield g(X, p, q)
    yield g(X, p, p)
    yield g(X, q, q)


@case
def eq_lists(jit: Wrap) -> Iterator[Any]:
    def f(x, a, b):
        return x + 1 if a == b else x - 1

    g = jit(f)
    p, q = Box(), Box()
    yield g(X, [p], [q])
    yield g(X, [p], [p])
    yield g(X, [q, p], [q, p])


@case
def ne_in_helper(jit: Wrap) -> Iterator[Any]:
    p = Box()

    def h(o):
        return o != p

    def f(x, o):
        return x + 1 if h(o) else x - 1

    g = jit(f)
    q = Box()
    yield g(X, q)
    yield g(X, p)
    yield g(X, q)


@case
def memo(jit: Wrap) -> Iterator[Any]:
    p, q = Box(1), Box(2)
    memo = {}

    def f(x, o):
        if id(o) in memo:
            return x * memo[id(o)]
        memo[id(o)] = o.n
        return x - o.n

    g = jit(f)
    yield g(X, p)
    yield g(X, q)
    yield g(X, p)
    yield g(X, q)
    yield sorted(memo.values())


@case
def weak_dead(jit: Wrap) -> Iterator[Any]:
    p = Box()
    w = weakref.ref(p)

    def f(x):
        return x + 1 if w() is not None else x - 1

    g = jit(f)
    with young_heap():
        yield g(X)
        yield g(X)
        del p
        gc.collect()
    yield g(X)


@case
def weakkey(jit: Wrap) -> Iterator[Any]:
    p, q = Box(), Box()
    w = weakref.WeakKeyDictionary({p: 2.0})

    def f(x, o):
        return x * w.get(o, 5.0)

    g = jit(f)
    yield g(X, p)
    yield g(X, q)
    w[q] = 3.0
    yield g(X, q)
    yield g(X, p)


@case
def weakset(jit: Wrap) -> Iterator[Any]:
    p, q = Box(), Box()
    w = weakref.WeakSet([p])

    def f(x, o):
        return x * 2 if o in w else x

    g = jit(f)
    yield g(X, p)
    yield g(X, q)
    w.add(q)
    yield g(X, q)
    yield g(X, p)


@case
def weakval(jit: Wrap) -> Iterator[Any]:
    p, q = Box(1), Box(2)
    w = weakref.WeakValueDictionary({"a": p})

    def f(x):
        return x * w["a"].n if "a" in w else x

    g = jit(f)
    yield g(X)
    w["a"] = q
    yield g(X)
    del w["a"]
    yield g(X)


def of_classes(row: Any, jit: Wrap) -> Iterator[Any]:
    f, *calls = row
    g = jit(f)
    for arguments in calls:
        yield g(X, *arguments)


cases(
    of_classes,
    types_=(lambda x, o: x + 1 if type(o) is Box else x - 1, [Box()], [Derived()], [1]),
    isinst=(lambda x, o: x + 1 if isinstance(o, Derived) else x - 1, [Box()], [Derived()], [Box()]),
    issub_args=(lambda x, a, b: x + 1 if issubclass(a, b) else x - 1, [Box, Derived], [Derived, Box], [Box, Box]),
)


@case
def class_change(jit: Wrap) -> Iterator[Any]:
    def f(x, o):
        return x + 1 if isinstance(o, Derived) else x - 1

    g = jit(f)
    p = Box()
    yield g(X, p)
    p.__class__ = Derived
    yield g(X, p)


@case
def abc_register(jit: Wrap) -> Iterator[Any]:
    class A(abc.ABC):
        pass

    class B:
        pass

    def f(x, o):
        return x + 1 if isinstance(o, A) else x - 1

    g = jit(f)
    b = B()
    yield g(X, b)
    A.register(B)
    yield g(X, b)


@case
def issub(jit: Wrap) -> Iterator[Any]:
    class A(abc.ABC):
        pass

    class B:
        pass

    def f(x, o):
        return x + 1 if issubclass(type(o), A) else x - 1

    g = jit(f)
    b = B()
    yield g(X, b)
    A.register(B)
    yield g(X, b)


@case
def bases(jit: Wrap) -> Iterator[Any]:
    class A:
        k = 1.0

    class B:
        k = 2.0

    class C(A):
        pass

    def f(x, o):
        return x + o.k if isinstance(o, A) else x - o.k

    g = jit(f)
    c = C()
    yield g(X, c)
    C.__bases__ = (B,)
    yield g(X, c)


@case
def bases_without_names(jit: Wrap) -> Iterator[Any]:
    class A:
        pass

    class B:
        pass

    class C(A):
        pass

    class D(C):
        pass

    def f(x, o):
        return x * (2 if isinstance(o, A) else 3) + (5 if issubclass(D, B) else 7)

    g = jit(f)
    c = C()
    for base in (A, B, A):
        C.__bases__ = (base,)
        yield g(X, c)


@case
def bases_of_a_module(jit: Wrap) -> Iterator[Any]:
    class Calls(torch.nn.Module):
        def forward(self, x):
            return self.step(x)

    class Doubles(Calls):
        def step(self, x):
            return x * 2

    class Triples(Calls):
        def step(self, x):
            return x * 3

    class Layer(Doubles):
        pass

    g = jit(Layer())
    for base in (Doubles, Triples, Doubles):
        Layer.__bases__ = (base,)
        yield g(X)


@case
def hasattr_(jit: Wrap) -> Iterator[Any]:
    def f(x, o):
        return x + 1 if hasattr(o, "zz") else x - 1

    g = jit(f)
    p = Box()
    yield g(X, p)
    p.zz = 1
    yield g(X, p)
    del p.zz
    yield g(X, p)
    Box.zz = 3
    yield g(X, p)
    del Box.zz
    yield g(X, p)


@case
def hasattr_computed(jit: Wrap) -> Iterator[Any]:
    def f(x, o, s):
        return x + 1 if hasattr(o, "z" + s) else x - 1

    g = jit(f)
    p = Box()
    yield g(X, p, "z")
    p.zz = 1
    yield g(X, p, "z")
    del p.zz
    yield g(X, p, "z")


def of_a_list(make: Any, jit: Wrap) -> Iterator[Any]:
    held = []
    g = jit(make(held))
    yield g(X)
    held.append(Box())
    yield g(X)
    held.clear()
    yield g(X)


cases(
    of_a_list,
    len_=lambda held: lambda x: x + len(held),
    truth=lambda held: lambda x: x + 1 if held else x - 1,
)


@case
def enum_(jit: Wrap) -> Iterator[Any]:
    class E(enum.Enum):
        A = 1
        B = 2

    def f(x, e):
        return x + 1 if e is E.A else x - 1

    g = jit(f)
    yield g(X, E.A)
    yield g(X, E.B)
    yield g(X, E.A)


@case
def enum_flag(jit: Wrap) -> Iterator[Any]:
    class E(enum.Flag):
        A = 1
        B = 2

    def f(x, e):
        return x + 1 if E.A in e else x - 1

    g = jit(f)
    yield g(X, E.A)
    yield g(X, E.B)
    yield g(X, E.A | E.B)


@case
def enum_attr(jit: Wrap) -> Iterator[Any]:
    class E(enum.Enum):
        A = 1
        B = 2

    E.A.scale = 3.0

    def f(x, e):
        return x * e.scale

    g = jit(f)
    yield g(X, E.A)
    E.A.scale = 4.0
    yield g(X, E.A)


@case
def lru(jit: Wrap) -> Iterator[Any]:
    state = {"k": 2.0}

    @functools.lru_cache
    def k():
        return state["k"]

    def f(x):
        return x * k()

    g = jit(f)
    yield g(X)
    state["k"] = 3.0
    yield g(X)
    k.cache_clear()
    yield g(X)


def changes(make: Callable[[], tuple[Callable[[], float], Callable[[float], Any]]], jit: Wrap) -> Iterator[Any]:
    """``make`` returns a read of an object, and a change of it."""
    read, change = make()
    g = jit(lambda x: x * read())
    for n in (4.0, 5.0, 6.0):
        yield g(X)
        change(n)


def cached_object() -> tuple[Callable[[], float], Callable[[float], Any]]:
    cached = functools.lru_cache(lambda: Box(3.0))
    return lambda: cached().n, lambda n: setattr(cached(), "n", n)


def cached_before() -> tuple[Callable[[], float], Callable[[float], Any]]:
    cached = functools.cache(lambda: [3.0])
    cached()
    return lambda: cached()[0], lambda n: cached().__setitem__(0, n)


def cached_class() -> tuple[Callable[[], float], Callable[[float], Any]]:
    cached = functools.lru_cache(lambda: types.new_class("Made", (Derived,), {}, lambda held: held.update(n=3.0)))
    return lambda: cached().n, lambda n: setattr(cached(), "n", n)


class Caches:
    @functools.cache  # noqa: B019
    def of_object(self) -> Box:
        return Box(3.0)

    @classmethod
    @functools.lru_cache
    def of_class(cls) -> list[float]:
        return [3.0]


def cached_by_a_method() -> tuple[Callable[[], float], Callable[[float], Any]]:
    held = Caches()
    return lambda: held.of_object().n, lambda n: setattr(held.of_object(), "n", n)


def cached_by_a_method_of_the_class() -> tuple[Callable[[], float], Callable[[float], Any]]:
    Caches.of_class.cache_clear()
    return lambda: Caches.of_class()[0], lambda n: Caches.of_class().__setitem__(0, n)


def cached_and_written() -> tuple[Callable[[], float], Callable[[float], Any]]:
    cached = functools.lru_cache(lambda: [3])

    def read() -> float:
        cached()[0] += 1
        return cached()[0]

    return read, lambda n: None if n == 5.0 else cached().append(n)


def key_of_dictionary() -> tuple[Callable[[], float], Callable[[float], Any]]:
    key = Box(3.0)
    held = {key: 1}
    return lambda: next(key.n for key in held), lambda n: setattr(key, "n", n)


def key_of_weak_dictionary() -> tuple[Callable[[], float], Callable[[float], Any]]:
    key = Box(3.0)
    held = weakref.WeakKeyDictionary({key: 1})
    return lambda: max(key.n for key, _ in held.items()), lambda n: setattr(key, "n", n)


def attribute_of_a_tensor_in_a_set() -> tuple[Callable[[], float], Callable[[float], Any]]:
    held = {torch.nn.Parameter(torch.ones(1))}
    for parameter in held:
        parameter.n = 3.0
    return lambda: next(parameter.n for parameter in held), lambda n: setattr(next(iter(held)), "n", n)


def parser() -> tuple[Callable[[], float], Callable[[float], Any]]:
    held = configparser.ConfigParser()
    held.read_string("[a]\nn = 3.0")
    return lambda: float(held["a"]["n"]), lambda n: held.set("a", "n", str(n))


def message() -> tuple[Callable[[], float], Callable[[float], Any]]:
    held = email.message.Message()
    held["n"] = "3.0"
    return lambda: float(held["n"]), lambda n: held.replace_header("n", str(n))


def context_of_decimals() -> tuple[Callable[[], float], Callable[[float], Any]]:
    held = decimal.Context(prec=3)
    return lambda: held.prec, lambda n: setattr(held, "prec", int(n))


cases(
    changes,
    **{
        make.__name__: make
        for make in (
            *(
                cached_object,
                cached_before,
                cached_class,
                cached_and_written,
                key_of_dictionary,
                key_of_weak_dictionary,
            ),
            *(cached_by_a_method, cached_by_a_method_of_the_class),
            *(attribute_of_a_tensor_in_a_set, parser, message, context_of_decimals),
        )
    },
)


@case
def lru_of_tensors(jit: Wrap) -> Iterator[Any]:
    @functools.lru_cache
    def k(x):
        return x * 2

    one, other = X + 1, X + 2
    k(one), k(other)
    g = jit(lambda x: k(x) + 1)
    for x in (one, other, X + 3, one):
        yield g(x)
    h = jit(lambda x: k(x + 1))
    for x in (one, other):
        yield h(x)


@case
def lru_table(jit: Wrap) -> Iterator[Any]:
    @functools.lru_cache(maxsize=2)
    def table(n):
        return torch.arange(n).float()

    def f(x):
        return x + table(x.shape[0]), table(x.shape[0])

    g = jit(f)
    for size in (3, 3, 4, 3):
        yield g(torch.ones(size))
    yield table(3)


@case
def lru_warm(jit: Wrap) -> Iterator[Any]:
    state = {"k": 2.0}

    @functools.lru_cache
    def k(n):
        return state["k"] * n

    k(3)

    def f(x, n):
        return x * k(n)

    g = jit(f)
    yield g(X, 3)
    state["k"] = 3.0
    yield g(X, 3)
    k.cache_clear()
    yield g(X, 3)
    yield g(X, 4)


@case
def lru_warm_objit(jit: Wrap) -> Iterator[Any]:
    @functools.lru_cache
    def k(o):
        return o.n

    p = Box(2.0)
    k(p)

    def f(x, o):
        return x * k(o)

    g = jit(f)
    yield g(X, p)
    p.n = 5.0
    yield g(X, p)
    yield g(X, Box(3.0))
    k.cache_clear()
    yield g(X, p)


@case
def cached_prop(jit: Wrap) -> Iterator[Any]:
    class A:
        def __init__(self):
            self.b = 2.0

        @functools.cached_property
        def c(self):
            return self.b * 2

    a = A()

    def f(x, a):
        return x * a.c

    g = jit(f)
    yield g(X, a)
    a.b = 5.0
    yield g(X, a)
    del a.__dict__["c"]
    yield g(X, a)
    yield vars(a)


@case
def shadow_builtin(jit: Wrap) -> Iterator[Any]:
    def f(x, held):
        return x * len(held)

    ns = {"__name__": "mm", "__builtins__": __builtins__}
    f = types.FunctionType(f.__code__, ns)
    g = jit(f)
    yield g(X, [1, 2])
    ns["len"] = lambda held: 10.0
    yield g(X, [1, 2])
    del ns["len"]
    yield g(X, [1, 2])


@case
def shadow_builtin2(jit: Wrap) -> Iterator[Any]:
    exec("def f(x): return x * max(2., 3.)", ns := {"__name__": "mm"})
    g = jit(ns["f"])
    yield g(X)
    ns["max"] = min
    yield g(X)
    del ns["max"]
    yield g(X)


@case
def file_read(jit: Wrap) -> Iterator[Any]:
    path = f"{tempfile.gettempdir()}/thunder-{os.getpid()}.txt"
    pathlib.Path(path).write_text("2")

    def f(x):
        with open(path) as h:
            return x * float(h.read())

    g = jit(f)
    yield g(X)
    pathlib.Path(path).write_text("3")
    yield g(X)


@case
def file_lines(jit: Wrap) -> Iterator[Any]:
    path = pathlib.Path(tempfile.gettempdir(), f"thunder-{os.getpid()}-lines.txt")
    path.write_text("1\n2\n3\n4\n")
    with path.open() as lines:

        def f(x):
            return x * float(next(lines))

        g = jit(f)
        yield g(X)
        yield g(X)
        yield next(lines)


@case
def file_pathlib(jit: Wrap) -> Iterator[Any]:

    path = pathlib.Path(f"{tempfile.gettempdir()}/thunder-{os.getpid()}.txt")
    path.write_text("2")

    def f(x):
        return x * float(path.read_text())

    g = jit(f)
    yield g(X)
    path.write_text("3")
    yield g(X)


@case
def file_exists(jit: Wrap) -> Iterator[Any]:
    path = f"{tempfile.gettempdir()}/thunder-{os.getpid()}-2.txt"
    if os.path.exists(path):
        os.remove(path)

    def f(x):
        return x * 2 if os.path.exists(path) else x * 3

    g = jit(f)
    yield g(X)
    open(path, "w").close()
    yield g(X)
    os.remove(path)
    yield g(X)


@case
def environ_computed(jit: Wrap) -> Iterator[Any]:
    os.environ.pop("ZZQ", None)

    def f(x, n):
        return x * float(os.environ.get("ZZ" + n, "1"))

    g = jit(f)
    yield g(X, "Derived")
    os.environ["ZZQ"] = "2"
    yield g(X, "Derived")
    del os.environ["ZZQ"]
    yield g(X, "Derived")


@case
def sysmodules(jit: Wrap) -> Iterator[Any]:
    sys.modules.pop("zzq", None)

    def f(x):
        return x * 2 if "zzq" in sys.modules else x

    g = jit(f)
    yield g(X)
    sys.modules["zzq"] = types.ModuleType("zzq")
    yield g(X)
    del sys.modules["zzq"]
    yield g(X)


@case
def sysmodules_attr(jit: Wrap) -> Iterator[Any]:
    m = sys.modules["zzq"] = types.ModuleType("zzq")
    m.k = 2.0

    def f(x):
        return x * sys.modules["zzq"].k

    g = jit(f)
    yield g(X)
    m.k = 3.0
    yield g(X)
    del sys.modules["zzq"]


@case
def sysflag(jit: Wrap) -> Iterator[Any]:
    sys.zzq = 2.0

    def f(x):
        return x * sys.zzq

    g = jit(f)
    yield g(X)
    sys.zzq = 3.0
    yield g(X)
    del sys.zzq


@case
def recursion(jit: Wrap) -> Iterator[Any]:
    import sys as s

    old = s.getrecursionlimit()

    def f(x):
        return x * s.getrecursionlimit()

    g = jit(f)
    yield g(X)
    s.setrecursionlimit(old + 1000)
    yield g(X)
    s.setrecursionlimit(old)


@case
def getattr_computed(jit: Wrap) -> Iterator[Any]:
    def f(x, o, n):
        return x * getattr(o, n)

    o = Box(2.0)
    o.a = 3.0
    o.b = 4.0
    g = jit(f)
    yield g(X, o, "a")
    yield g(X, o, "b")
    o.a = 5.0
    yield g(X, o, "a")
    yield g(X, o, "n")


@case
def getattr_class(jit: Wrap) -> Iterator[Any]:
    class C:
        a = 2.0
        b = 3.0

    def f(x, n):
        return x * getattr(C, n)

    g = jit(f)
    yield g(X, "a")
    C.a = 5.0
    yield g(X, "a")
    yield g(X, "b")


@case
def getattr_inst_class(jit: Wrap) -> Iterator[Any]:
    class C:
        a = 2.0
        b = 3.0

    c = C()

    def f(x, n):
        return x * getattr(c, n)

    g = jit(f)
    yield g(X, "a")
    C.a = 5.0
    yield g(X, "a")
    c.a = 7.0
    yield g(X, "a")


@case
def getattr_module(jit: Wrap) -> Iterator[Any]:
    m = types.ModuleType("zzm")
    m.a = 2.0

    def f(x, n):
        return x * getattr(m, n)

    g = jit(f)
    yield g(X, "a")
    m.a = 5.0
    yield g(X, "a")


@case
def vars_(jit: Wrap) -> Iterator[Any]:
    o = Box(2.0)

    def f(x):
        return x * sum(v for v in vars(o).values())

    g = jit(f)
    yield g(X)
    o.k = 3.0
    yield g(X)
    o.n = 7.0
    yield g(X)


ZG = 2.0


@case
def globals_computed(jit: Wrap) -> Iterator[Any]:
    global ZG
    ZG = 2.0

    def f(x, n):
        return x * globals()["Z" + n]

    g = jit(f)
    yield g(X, "G")
    ZG = 3.0
    yield g(X, "G")
    ZG = 2.0


@case
def callable_(jit: Wrap) -> Iterator[Any]:
    class C:
        pass

    def f(x, o):
        return x + 1 if callable(o) else x - 1

    g = jit(f)
    c = C()
    yield g(X, c)
    C.__call__ = lambda s: 1
    yield g(X, c)


@case
def set_len(jit: Wrap) -> Iterator[Any]:
    s = set()

    def f(x):
        return x + len(s)

    g = jit(f)
    yield g(X)
    s.add(Box())
    yield g(X)


@case
def ctxvar(jit: Wrap) -> Iterator[Any]:
    v = contextvars.ContextVar("v", default=1.0)

    def f(x):
        return x * v.get()

    g = jit(f)
    yield g(X)
    v.set(2.0)
    yield g(X)
    v.set(3.0)
    yield g(X)


@case
def ctxvar_default(jit: Wrap) -> Iterator[Any]:
    v = contextvars.ContextVar("v")

    def f(x):
        return x * v.get(4.0)

    g = jit(f)
    yield g(X)
    v.set(2.0)
    yield g(X)
    v.set(None)


@case
def ctxvar_none_or_unset(jit: Wrap) -> Iterator[Any]:
    """None is a value that a context variable can be set to, and not the same as no value."""
    v = contextvars.ContextVar("v", default=2.0)

    def f(x):
        k = v.get()
        return x if k is None else x * k

    g = jit(f)
    yield g(X)
    token = v.set(None)
    yield g(X)
    v.reset(token)
    yield g(X)


@case
def mro_(jit: Wrap) -> Iterator[Any]:
    class A:
        pass

    class B(A):
        pass

    def f(x, o):
        return x * len(type(o).__mro__)

    g = jit(f)
    yield g(X, A())
    yield g(X, B())


@case
def subclasses(jit: Wrap) -> Iterator[Any]:
    class A:
        pass

    def f(x):
        return x * len(A.__subclasses__())

    g = jit(f)
    yield g(X)

    class B(A):
        pass

    yield g(X)
    f.b = B


@case
def func_attr(jit: Wrap) -> Iterator[Any]:
    def h():
        pass

    h.k = 2.0

    def f(x):
        return x * h.k

    g = jit(f)
    yield g(X)
    h.k = 3.0
    yield g(X)


def of_a_function(row: Any, jit: Wrap) -> Iterator[Any]:
    attribute, value, make = row

    def h(k=2.0):
        "ab"
        return k

    g = jit(make(h))
    yield g(X)
    setattr(h, attribute, value)
    yield g(X)


cases(
    of_a_function,
    func_defaults=("__defaults__", (3.0,), lambda h: lambda x: x * h()),
    func_name=("__name__", "hhhhh", lambda h: lambda x: x * len(h.__name__)),
    doc=("__doc__", "hhhhh", lambda h: lambda x: x * len(h.__doc__)),
)


@case
def func_code(jit: Wrap) -> Iterator[Any]:
    def h():
        return 2.0

    def h2():
        return 3.0

    def f(x):
        return x * h()

    g = jit(f)
    yield g(X)
    h.__code__ = h2.__code__
    yield g(X)


@case
def annotations(jit: Wrap) -> Iterator[Any]:
    class C:
        a: int

    def f(x):
        return x * len(C.__annotations__)

    g = jit(f)
    yield g(X)
    C.__annotations__["b"] = int
    yield g(X)


@case
def operator_contains(jit: Wrap) -> Iterator[Any]:

    p, q = Box(), Box()
    s = {p}

    def f(x, o):
        return x * 2 if operator.contains(s, o) else x

    g = jit(f)
    yield g(X, p)
    yield g(X, q)


@case
def operator_is(jit: Wrap) -> Iterator[Any]:

    p, q = Box(), Box()

    def f(x, o):
        return x * 2 if operator.is_(p, o) else x

    g = jit(f)
    yield g(X, q)
    yield g(X, p)


@case
def tensors_in(jit: Wrap) -> Iterator[Any]:
    def f(x, a, held):
        return x * 2 if any(a is t for t in held) else x

    a, b = torch.ones(2), torch.ones(2)
    g = jit(f)
    yield g(X, a, [a, b])
    yield g(X, a, [b, b])
    yield g(X, b, [b, b])


@case
def tensors_id_dict(jit: Wrap) -> Iterator[Any]:
    a, b = torch.ones(2), torch.ones(2)
    d = {id(a): 2.0, id(b): 3.0}

    def f(x, a):
        return x * d[id(a)]

    g = jit(f)
    yield g(X, a)
    yield g(X, b)


@case
def tensors_dict(jit: Wrap) -> Iterator[Any]:
    a, b = torch.ones(2), torch.ones(2)
    d = {a: 2.0, b: 3.0}

    def f(x, a):
        return x * d[a]

    g = jit(f)
    yield g(X, a)
    yield g(X, b)


@case
def params_id(jit: Wrap) -> Iterator[Any]:
    m = torch.nn.Linear(2, 2)
    n = torch.nn.Linear(2, 2)
    d = {id(m.weight): 2.0, id(n.weight): 3.0}

    def f(x, m):
        return x * d[id(m.weight)]

    g = jit(f)
    yield g(X, m)
    yield g(X, n)


@case
def modules_in(jit: Wrap) -> Iterator[Any]:
    m = torch.nn.Linear(2, 2)
    n = torch.nn.Linear(2, 2)
    s = {m}

    def f(x, m):
        return x * 2 if m in s else x

    g = jit(f)
    yield g(X, m)
    yield g(X, n)


@case
def ordering(jit: Wrap) -> Iterator[Any]:
    @functools.total_ordering
    class C:
        def __init__(s, k):
            s.k = k

        def __eq__(s, o):
            return s.k == o.k

        def __lt__(s, o):
            return s.k < o.k

    def f(x, held):
        return x * sorted(held)[0].k

    a, b = C(1.0), C(2.0)
    g = jit(f)
    yield g(X, [a, b])
    a.k = 5.0
    yield g(X, [a, b])


@case
def slots(jit: Wrap) -> Iterator[Any]:
    class C:
        __slots__ = ("k",)

    c = C()
    c.k = 2.0

    def f(x):
        return x * c.k

    g = jit(f)
    yield g(X)
    c.k = 3.0
    yield g(X)


@case
def metaclass(jit: Wrap) -> Iterator[Any]:
    class M(type):
        def __len__(s):
            return s.k

        def __contains__(s, o):
            return s.k == o

    class C(metaclass=M):
        k = 2

    def f(x):
        return x * len(C) if 2 in C else x

    g = jit(f)
    yield g(X)
    C.k = 3
    yield g(X)


@case
def instancecheck(jit: Wrap) -> Iterator[Any]:
    class M(type):
        def __instancecheck__(s, o):
            return s.k

    class C(metaclass=M):
        k = True

    def f(x, o):
        return x * 2 if isinstance(o, C) else x

    g = jit(f)
    yield g(X, 1)
    C.k = False
    yield g(X, 1)


@case
def repr_(jit: Wrap) -> Iterator[Any]:
    def f(x, o):
        return x * len(repr(o))

    class C:
        k = "a"

        def __repr__(s):
            return s.k

    c = C()
    g = jit(f)
    yield g(X, c)
    c.k = "bbb"
    yield g(X, c)


@case
def str_default(jit: Wrap) -> Iterator[Any]:
    def f(x, o):
        return x * 2 if str(o) == str(o0) else x

    o0, o1 = Box(), Box()
    g = jit(f)
    yield g(X, o0)
    yield g(X, o1)


@case
def namedtup(jit: Wrap) -> Iterator[Any]:
    N = collections.namedtuple("N", "a b")

    def f(x, n):
        return x * n.a + n.b

    g = jit(f)
    yield g(X, N(1.0, 2.0))
    yield g(X, N(2.0, 2.0))
    yield g(X, N(1.0, X))


@case
def namedtup_getitem(jit: Wrap) -> Iterator[Any]:
    class N(collections.namedtuple("N", "a b")):
        def __getitem__(self, i):
            return tuple.__getitem__(self, 1 - i if isinstance(i, int) else i)

    def f(x, n):
        return x * n.a + n[0]

    g = jit(f)
    yield g(X, N(X, 2.0))
    yield g(X, N(X, 2.0))
    yield g(X, N(X, 3.0))


@case
def list_getitem(jit: Wrap) -> Iterator[Any]:
    class L(list):
        def __getitem__(self, i):
            return list.__getitem__(self, -1 - i)

        def __len__(self):
            return 7

        def __iter__(self):
            return iter([1.0])

    def f(x, n):
        return x * n[0] + len(n) + sum(n)

    g = jit(f)
    held = L([X, 2.0])
    yield g(X, held)
    yield g(X, held)
    yield g(X, L([X, 3.0]))


@case
def dict_own(jit: Wrap) -> Iterator[Any]:
    class D(dict):
        def __getitem__(self, i):
            return dict.__getitem__(self, i) * 2

        def __len__(self):
            return 7

        def __iter__(self):
            return iter(["z"])

        def __contains__(self, o):
            return True

    def f(x, n):
        return x * n["a"] + len(n)

    g = jit(f)
    held = D(a=X, b=2.0)
    yield g(X, held)
    yield g(X, held)
    held["a"] = 3.0
    yield g(X, held)


@case
def attribute_map(jit: Wrap) -> Iterator[Any]:
    class C:
        attribute_map = {"num": "n_real"}
        num = 4.0

        def __init__(s):
            s.n_real = 2.0

        def __getattribute__(s, k):
            if k != "attribute_map" and k in super().__getattribute__("attribute_map"):
                k = super().__getattribute__("attribute_map")[k]
            return super().__getattribute__(k)

        def __setattr__(s, k, v):
            if k in super().__getattribute__("attribute_map"):
                k = super().__getattribute__("attribute_map")[k]
            super().__setattr__(k, v)

    c = C()

    def f(x):
        return x * c.num

    g = jit(f)
    yield g(X)
    yield g(X)
    c.num = 3.0
    yield g(X)
    c.n_real = 5.0
    yield g(X)


@case
def key_order(jit: Wrap) -> Iterator[Any]:
    d = {"a": 1.0, "b": 2.0}

    def f(x):
        for k in d:
            x = x * d[k] + 1
        return x

    g = jit(f)
    yield g(X)
    d.pop("a")
    d["a"] = 1.0
    yield g(X)


@case
def key_order_self(jit: Wrap) -> Iterator[Any]:
    d = {"a": 1.0, "b": 2.0}

    def f(x):
        for k in list(d):
            x = x * d[k] + 1
        v = d.pop("a")
        d["a"] = v
        return x

    g = jit(f)
    yield g(X)
    yield list(d)
    yield g(X)
    yield list(d)


@case
def flag_self(jit: Wrap) -> Iterator[Any]:
    d = Box(False)

    def f(x):
        if d.n:
            return x - 1
        d.n = True
        return x + 1

    g = jit(f)
    yield g(X)
    yield g(X)
    yield g(X)
    d.n = False
    yield g(X)


@case
def environ_self(jit: Wrap) -> Iterator[Any]:
    os.environ.pop("ZZQ", None)

    def f(x):
        k = float(os.environ.get("ZZQ", "1"))
        os.environ["ZZQ"] = str(k + 1)
        return x * k

    g = jit(f)
    yield g(X)
    yield os.environ["ZZQ"]
    yield g(X)
    yield os.environ["ZZQ"]
    yield g(X)


@case
def cells_self(jit: Wrap) -> Iterator[Any]:
    k = 1.0

    def f(x):
        nonlocal k
        k += 1
        return x * k

    def get():
        return k

    g = jit(f)
    yield g(X)
    yield get()
    yield g(X)
    yield get()


@case
def globals_self(jit: Wrap) -> Iterator[Any]:
    ns = {}
    exec("k = 1.\ndef f(x):\n  global k\n  k += 1\n  return x * k", ns)
    g = jit(ns["f"])
    yield g(X)
    yield ns["k"]
    yield g(X)
    yield ns["k"]


@case
def optstate(jit: Wrap) -> Iterator[Any]:
    p = torch.nn.Parameter(torch.ones(2))
    opt = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    p.sum().backward()
    opt.step()

    def f(x):
        return x.sum() * opt.state[p]["momentum_buffer"]

    g = jit(f)
    yield g(X)
    p.grad.mul_(2)
    opt.step()
    yield g(X)


@case
def optstate_fmt(jit: Wrap) -> Iterator[Any]:
    p = torch.nn.Parameter(torch.ones(2))
    d = {p: Box(2.0)}

    def f(x):
        return x * d[p].n

    g = jit(f)
    yield g(X)
    d[p].n = 3.0
    yield g(X)


@case
def strkeys(jit: Wrap) -> Iterator[Any]:
    d = {"a\nb": X, "q'\"": 2.0, "\\": Box(3.0), "a\r\u2028b #": X + 1, "{0}": X, "\0": X + 2}

    def f(x):
        return x * d["a\nb"] + d["q'\""] * d["\\"].n + d["a\r\u2028b #"] + d["{0}"] + d["\0"]

    g = jit(f)
    yield g(X)
    d["\\"].n = 4.0
    yield g(X)
    d["a\nb"] = X + 1
    yield g(X)


@case
def attrname(jit: Wrap) -> Iterator[Any]:
    o = Box()
    setattr(o, "a\nb", X)
    setattr(o, "class", 2.0)
    setattr(o, "q\"'", X)

    def f(x):
        return x * getattr(o, "a\nb") + getattr(o, "class") * getattr(o, "q\"'")

    g = jit(f)
    yield g(X)
    setattr(o, "class", 3.0)
    yield g(X)


@case
def modname(jit: Wrap) -> Iterator[Any]:
    m = torch.nn.Module()
    m.register_module('a\nb "', torch.nn.Linear(3, 3))
    m.register_buffer("x\n'y", X + 1)

    def fwd(x):
        return m._modules['a\nb "'](x) * m._buffers["x\n'y"]

    g = jit(fwd)
    yield g(X)
    yield g(X)


@case
def slotskw(jit: Wrap) -> Iterator[Any]:
    class C:
        __slots__ = ("__dict__", "class_")

    c = C()
    c.class_ = X
    setattr(c, "def", X)

    def f(x):
        return x * c.class_ + getattr(c, "def")

    g = jit(f)
    yield g(X)
    yield g(X)


@case
def reprbad(jit: Wrap) -> Iterator[Any]:
    class K:
        def __repr__(s):
            return "a\nb) # \n return None"

        def __hash__(s):
            return 1

        def __eq__(s, o):
            return isinstance(o, K)

    class R:
        def __repr__(s):
            raise RuntimeError("no repr")

    d = {K(): X, "r": R()}
    d["r"].n = 2.0
    k = K()
    r = R()
    d[r] = X + 1

    def f(x):
        return x * d[k] * d["r"].n + d[r]

    g = jit(f)
    yield g(X)
    d[k] = X + 1
    yield g(X)


class Slotted:
    """A slot that is filled, and one that is empty."""

    __slots__ = ("full", "other")

    def __init__(self) -> None:
        self.full = 2.0


class HiddenByProperty(Slotted):
    """The property has the name of the empty slot."""

    __slots__ = ()

    @property
    def other(self) -> Any:
        return self.full * 4

    @other.setter
    def other(self, value: Any) -> None:
        Slotted.other.__set__(self, value)


class HiddenByError(Slotted):
    """No read of the object may run the property."""

    @property
    def other(self) -> Any:
        raise RuntimeError("there is none")


class HiddenByConstant(Slotted):
    """An attribute of the class has the name of the empty slot."""

    other = 3.0


class ComputedForSlot(Slotted):
    """A ``__getattr__`` without side effects returns the value of a slot that is empty."""

    __slots__ = ("third",)

    def __getattr__(self, name: str) -> float:
        if name == "other":
            return 5.0
        raise AttributeError(name)


class FilledOnRead(Slotted):
    """The first read of the slot fills it."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name == "other":
            self.other = self.full + 1
            return self.other
        raise AttributeError(name)


class SlotOfThread(threading.local):
    """A slot beside attributes of a thread."""

    __slots__ = ("other",)

    def __init__(self) -> None:
        self.full = 2.0


def content_of_slots(value: Any) -> list[Any]:
    kind = SlotOfThread if isinstance(value, SlotOfThread) else Slotted
    content = []
    for name in kind.__slots__:
        try:
            content.append(vars(kind)[name].__get__(value))
        except AttributeError:
            content.append("empty")
    return content


def of_slots(functions: Any, jit: Wrap) -> Iterator[Any]:
    f, kind = functions
    o = kind()
    g = jit(lambda x: f(x, o))
    for _ in range(2):
        yield g(X), content_of_slots(o)
    slot = vars(SlotOfThread if kind is SlotOfThread else Slotted)["other"]
    slot.__set__(o, 7.0)
    yield g(X), content_of_slots(o)
    slot.__delete__(o)
    yield g(X), content_of_slots(o)


def reads_full(x: torch.Tensor, o: Any) -> torch.Tensor:
    return x * o.full


def other_or_default(x: torch.Tensor, o: Any) -> torch.Tensor:
    return x * getattr(o, "other", 3)


def reads_other(x: torch.Tensor, o: Any) -> torch.Tensor:
    try:
        return x * o.other
    except AttributeError:
        return x * 9


def fills_other(x: torch.Tensor, o: Any) -> torch.Tensor:
    if not hasattr(o, "other"):
        o.other = x * 2
    return x + 1


def creates_like(x: torch.Tensor, o: Any) -> list[Any]:
    made = type(o)()
    made.full = x * o.full
    return [made.full, content_of_slots(made), [made] if type(o) is not SlotOfThread else []]


def stores_in_slot(x: torch.Tensor, o: Any) -> torch.Tensor:
    Slotted.other.__set__(o, x * 2)
    return x * o.full


@case
def a_constant_that_hides_a_filled_slot(jit: Wrap) -> Iterator[Any]:
    class Hidden(Slotted):
        other = 3.0

    o = Hidden()
    Slotted.other.__set__(o, 7.0)
    g = jit(lambda x: x * o.other)
    yield g(X)
    Hidden.other = 4.0
    yield g(X)
    del Hidden.other
    yield g(X)


SLOTTED = (HiddenByProperty, HiddenByConstant, ComputedForSlot, FilledOnRead)
PROGRAMS.update(
    {
        f"slots_{f.__name__}_{kind.__name__}": functools.partial(of_slots, (f, kind))
        for f, kinds in {
            reads_full: (*SLOTTED, HiddenByError, SlotOfThread),
            other_or_default: (*SLOTTED, SlotOfThread),
            reads_other: (*SLOTTED, SlotOfThread),
            fills_other: (*SLOTTED, SlotOfThread),
            creates_like: (*SLOTTED, HiddenByError, SlotOfThread),
            stores_in_slot: (*SLOTTED, HiddenByError),
        }.items()
        for kind in kinds
    }
)


def named(scale: list[float]) -> Any:
    """A class whose attributes have names of attributes of its metaclass."""

    class Meta(type):
        @property
        def factor(cls) -> str:
            return "of the class"

        @factor.setter
        def factor(cls, value: Any) -> None:
            raise AssertionError

    class Named(metaclass=Meta):
        @property
        def __name__(self) -> str:
            return "n" * int(scale[0])

        @property
        def factor(self) -> float:
            return scale[0] * 2

        @classmethod
        def __mro__(cls) -> float:
            return scale[0] * 3

        __doc__ = property(lambda self: scale[0])  # type: ignore[assignment]

    return Named


def of_names_of_the_metaclass(f: Any, jit: Wrap) -> Iterator[Any]:
    scale = [2.0]
    o = named(scale)()
    g = jit(lambda x: f(x, o))
    yield g(X)
    scale[0] = 3.0
    yield g(X)
    yield g(X)


cases(
    of_names_of_the_metaclass,
    name_of_object=lambda x, o: x * len(o.__name__),
    name_of_class=lambda x, o: x * len(type(o).__name__),
    factor_of_object=lambda x, o: x * o.factor,
    factor_of_class=lambda x, o: x * len(type(o).factor),
    method_of_object=lambda x, o: x * o.__mro__(),
    doc_of_object=lambda x, o: x * o.__doc__,
)


class NameRaises:
    """Only the program reads this name."""

    n = 2.0

    @property
    def __name__(self) -> str:
        raise RuntimeError("there is none")


class NameIsList:
    """A name that is no string."""

    n = 2.0
    __name__ = ["list"]


def of_other_names(kind: Any, jit: Wrap) -> Iterator[Any]:
    o = kind()
    g = jit(lambda x: x * o.n)
    yield g(X)


cases(of_other_names, name_raises=NameRaises, name_is_list=NameIsList)


def test_a_property_with_a_name_of_the_metaclass_is_guarded() -> None:
    scale = [2.0]
    o = named(scale)()
    compiled = thunder.jit(lambda x: x * len(o.__name__) * o.factor)
    for _ in range(3):
        assert torch.equal(compiled(X), X * 8)
    assert thunder.cache_misses(compiled) == 1


class Scales(Box):
    """Is called and iterated through a proxy."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.n

    def __iter__(self) -> Iterator[float]:
        return iter([self.n, 2.0])


def behind_a_proxy(f: Any, jit: Wrap) -> Iterator[Any]:
    o = Scales(2.0)
    p = weakref.proxy(o)
    g = jit(f)
    for n in (2.0, 3.0, 3.0):
        o.n = n
        yield g(X, p), vars(o)
    other = Scales(5.0)
    yield g(X, weakref.proxy(other)), vars(other)


def stored_behind_a_proxy(x: torch.Tensor, p: Any) -> torch.Tensor:
    p.kept = x * 2
    return p.kept * p.n


cases(
    behind_a_proxy,
    proxy_attribute=lambda x, p: x * p.n,
    proxy_default=lambda x, p: x * getattr(p, "missing", p.n),
    proxy_call=lambda x, p: p(x),
    proxy_items=lambda x, p: x * sum(p),
    proxy_store=stored_behind_a_proxy,
)


@case
def proxy_of_an_object_that_is_gone(jit: Wrap) -> Iterator[Any]:
    holder = Box(2.0)

    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * holder.held.n
        except ReferenceError:
            return x * 7

    o, g = Scales(3.0), jit(program)
    holder.held = weakref.proxy(o)
    yield g(X)
    del o
    yield g(X)
    yield g(X)
    o = Scales(4.0)
    holder.held = weakref.proxy(o)
    yield g(X)


GONE = Box(2.0)


def held_by_a_gone_proxy(f: Any, jit: Wrap) -> Iterator[Any]:
    o = Scales(3.0)
    GONE.held = weakref.proxy(o)
    del o
    g = jit(f)
    yield g(X)
    yield g(X)


def passed_to_contextlib(x: torch.Tensor) -> torch.Tensor:
    with contextlib.nullcontext(GONE.held):
        return x * 2


cases(
    held_by_a_gone_proxy,
    gone_proxy_formatted=lambda x: (reprlib.repr(GONE.held), x * 2)[1],
    gone_proxy_passed=passed_to_contextlib,
)


@case
def gone_proxy_as_an_argument(jit: Wrap) -> Iterator[Any]:
    """In calls of the first program, of one with symbols, of one that reads a value, and of declared sizes."""

    def gone() -> Any:
        return weakref.proxy(Scales(3.0))

    def read(p: Any, x: torch.Tensor) -> str:
        return str(type(p)) if x.sum() > 0 else ""

    scaled, returned, text = jit(lambda p, x, n: x * n), jit(lambda p, x: (p, x)), jit(read)
    for size in range(2, 6):
        x = torch.ones(size)
        yield scaled(gone(), x, size), scaled(gone(), x, n=size), [type(each) for each in returned(gone(), x)]
        yield text(gone(), x), jit(lambda pair, x: x * 2)([gone(), (gone(),)], x)
    torch._dynamo.mark_dynamic(x, 0)
    yield scaled(gone(), x, 2)


class ModuleIsProperty(Box):
    """No string, as PyTorch and the standard library expect."""

    @property
    def __module__(self) -> str:  # type: ignore[override]
        raise RuntimeError("only the program reads it")


class ModuleIsNumber(Box):
    """The same."""

    __module__ = 5  # type: ignore[assignment]

    def scale(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.n


class OfMetaclass(type):
    """The classes have a property in place of the name."""

    @property
    def __module__(cls) -> str:  # type: ignore[override]
        return "of the metaclass"


class ModuleOfMetaclass(Box, metaclass=OfMetaclass):
    """The same."""


def of_other_modules(f: Any, jit: Wrap) -> Iterator[Any]:
    for kind in (ModuleIsProperty, ModuleIsNumber, ModuleOfMetaclass):
        o, g = kind(2.0), jit(f)
        for n in (2.0, 3.0, 3.0):
            o.n = n
            yield g(X, o), vars(o)


cases(
    of_other_modules,
    other_module_attribute=lambda x, o: x * o.n,
    other_module_method=lambda x, o: o.scale(x) if hasattr(o, "scale") else x,
    other_module_counts=lambda x, o: x * (vars(o).update(count=o.n + 1) or o.count),
    other_module_copy=lambda x, o: x * copy.deepcopy(o).n,
)

DEFINED: list[Any] = []


def of_defined_classes(f: Any, jit: Wrap) -> Iterator[Any]:
    DEFINED.clear()
    g = jit(f)
    for n in (1.0, 2.0, 2.0):
        yield g(X * n), [kind.t for kind in DEFINED]


def defines_method(x: torch.Tensor) -> torch.Tensor:
    class Local:
        t = x * 2

        def both(self) -> torch.Tensor:
            return self.t + x

    return Local().both()


def stores_class(x: torch.Tensor) -> torch.Tensor:
    class Local:
        t = x * 2

    DEFINED.append(Local)
    return x * len(DEFINED)


def reads_by_metaclass(x: torch.Tensor) -> torch.Tensor:
    class Meta(type):
        @property
        def twice(cls) -> torch.Tensor:
            return cls.t * 2  # type: ignore[attr-defined]

    class Local(metaclass=Meta):
        t = x * 2

    return Local.twice * (1 + len(Local.__subclasses__()))


def defines_module(x: torch.Tensor) -> torch.Tensor:
    class Local(torch.nn.Module):
        t = x * 2

        def forward(self, y: torch.Tensor) -> torch.Tensor:
            return y * self.t

    return Local()(x)


cases(
    of_defined_classes,
    defined_class_method=defines_method,
    defined_class_stored=stores_class,
    defined_class_of_metaclass=reads_by_metaclass,
    defined_class_of_module=defines_module,
)


class Computes:
    """Attributes that no object and no class stores."""

    def __init__(self) -> None:
        self.rest = {"n": [2.0]}

    def __getattr__(self, name: str) -> list[float]:
        return self.__dict__["rest"][name]  # type: ignore[no-any-return]


class ComputesForSlot(Computes):
    """The same, in place of a slot that is empty."""

    __slots__ = ("n",)


class OfTensor(torch.Tensor):
    """An attribute of the class."""

    rest = 2.0


class Constant:
    """A descriptor."""

    def __init__(self, value: list[float]) -> None:
        self.value = value

    def __get__(self, instance: Any, owner: Any) -> list[float]:
        return self.value


@contextlib.contextmanager
def without(owner: Any, name: str) -> Iterator[None]:
    """A context in which an object or class does not store an attribute."""
    value = vars(owner)[name]
    delattr(owner, name)
    yield
    setattr(owner, name, value)


def deletes_of_class(x: torch.Tensor, kind: Any) -> torch.Tensor:
    before = kind.n
    del kind.n
    y = x * kind().n[0]
    kind.n = before
    return y * before[0]


def deletes_by_helper(x: torch.Tensor, o: Any) -> torch.Tensor:
    with without(o, "n"):
        y = x * o.n[0]
    return y * o.n[0]


def deletes_by_method(x: torch.Tensor, kind: Any) -> torch.Tensor:
    before = kind.n
    type.__delattr__(kind, "n")
    y = x * kind.n[0]
    type.__setattr__(kind, "n", before)
    return y


def deletes_method(x: torch.Tensor, kind: Any) -> torch.Tensor:
    before = kind.get
    del kind.get
    y = x * kind().get()
    kind.get = before
    return y * kind().get()


def deletes_of_object(x: torch.Tensor, o: Any) -> torch.Tensor:
    before = o.n
    del o.n
    y = x * o.n[0]
    o.n = before
    return y * before[0]


def deletes_in_dictionary(x: torch.Tensor, o: Any) -> torch.Tensor:
    before = vars(o).pop("n")
    y = x * o.n[0]
    o.n = before
    return y


def deletes_item_of_dictionary(x: torch.Tensor, o: Any) -> torch.Tensor:
    before = o.n
    del vars(o)["n"]
    y = x * o.n[0]
    o.n = before
    return y


def replaces_dictionary(x: torch.Tensor, o: Any) -> torch.Tensor:
    before, o.__dict__ = o.__dict__, {}
    y = x * o.n[0]
    o.__dict__ = before
    return y


def uncovered(row: Any, jit: Wrap) -> Iterator[Any]:
    f, which = row

    class Base:
        n: Any = [2.0]

        def get(self) -> float:
            return 2.0

    class Between(Base):
        pass

    class Derived(Between):
        n = [3.0]

        def get(self) -> float:
            return 3.0

    class Layer(torch.nn.Module):
        n = [2.0]

    computed = (Computes(), ComputesForSlot())
    made = {"class": Derived, "object": Base(), "computed": computed[0], "slot": computed[1], "module": Layer()}
    o = made[which]
    if which != "class":
        o.n = [3.0]

    def each() -> list[Any]:
        return [g(X, o), g(X, o), o.n]

    g = jit(f)
    yield each()
    Base.n[0] = Layer.n[0] = computed[0].rest["n"][0] = computed[1].rest["n"][0] = 5.0
    Base.get = lambda self: 5.0  # type: ignore[method-assign]
    yield each()
    Base.n = Layer.n = Constant([6.0])
    yield each()
    Base.n[0] = Layer.n[0] = 7.0
    yield each()
    Between.n = [8.0]
    Between.get = lambda self: 8.0  # type: ignore[method-assign]
    yield each()


cases(
    uncovered,
    uncovered_of_base=(deletes_of_class, "class"),
    uncovered_of_base_by_helper=(deletes_by_helper, "class"),
    uncovered_of_base_by_method=(deletes_by_method, "class"),
    uncovered_method=(deletes_method, "class"),
    uncovered_of_class=(deletes_of_object, "object"),
    uncovered_of_class_by_helper=(deletes_by_helper, "object"),
    uncovered_of_class_in_dictionary=(deletes_in_dictionary, "object"),
    uncovered_of_class_by_item=(deletes_item_of_dictionary, "object"),
    uncovered_of_class_by_another_dictionary=(replaces_dictionary, "object"),
    uncovered_of_class_of_module=(deletes_of_object, "module"),
    uncovered_computed=(deletes_of_object, "computed"),
    uncovered_computed_in_dictionary=(deletes_in_dictionary, "computed"),
    uncovered_computed_for_slot=(deletes_of_object, "slot"),
)


def uncovered_builtin(f: Any, jit: Wrap) -> Iterator[Any]:
    namespace = f.__globals__
    g = jit(f)
    for own, builtin in ((3.0, 2.0), (3.0, 5.0), (4.0, 5.0), (4.0, 5.0)):
        namespace["ZB"], builtins.ZB = own, builtin  # type: ignore[attr-defined]
        yield g(X), namespace["ZB"]
    del namespace["ZB"], builtins.ZB  # type: ignore[attr-defined]


def deletes_variable(x: torch.Tensor) -> torch.Tensor:
    global ZB
    before = ZB  # type: ignore[has-type]
    del ZB
    y = x * ZB * before  # noqa: F821
    ZB = before  # noqa: F841
    return y


def deletes_in_globals(x: torch.Tensor) -> torch.Tensor:
    before = globals().pop("ZB")
    y = x * ZB * before  # type: ignore[has-type]
    globals()["ZB"] = before
    return y


cases(uncovered_builtin, uncovered_builtin=deletes_variable, uncovered_builtin_in_globals=deletes_in_globals)


@case
def class_attribute_of_a_tensor(jit: Wrap) -> Iterator[Any]:
    t = two_ones().as_subclass(OfTensor)
    g = jit(lambda x, t: x * t.rest)
    for OfTensor.rest in (2.0, 3.0, 3.0):
        yield g(X, t)
    OfTensor.rest = 2.0


def list_of_factory(x: torch.Tensor) -> torch.Tensor:
    @dataclasses.dataclass
    class Local:
        t: torch.Tensor
        parts: list[torch.Tensor] = dataclasses.field(default_factory=list)

    one = Local(x)
    one.parts.append(x * 2)
    return one.t + one.parts[0]


def slots_of_factory(x: torch.Tensor) -> torch.Tensor:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Local:
        t: torch.Tensor
        sizes: dict[str, float] = dataclasses.field(default_factory=lambda: {"n": 2.0})
        scale: float = dataclasses.field(default=3.0, repr=False)

    return dataclasses.replace(Local(x), t=x + 1).t * Local(x).sizes["n"] * Local(x).scale


def deletes_attribute(x: torch.Tensor) -> torch.Tensor:
    class Local:
        n = 2.0

        @classmethod
        def new(cls) -> Local:
            del cls.n
            cls.n = 5.0
            return cls()

    return x * Local.new().n


@pytest.mark.parametrize("program", [list_of_factory, slots_of_factory, deletes_attribute])
def test_attributes_that_programs_delete_from_their_classes_are_not_guarded(program: Any) -> None:
    compiled = thunder.jit(program)
    for n in range(3):
        assert torch.equal(compiled(X * n), program(X * n))
    assert thunder.cache_misses(compiled) == 1


def test_an_object_behind_a_proxy_is_guarded() -> None:
    o = Scales(2.0)
    compiled = thunder.jit(lambda x, p: p(x) * p.n)
    for n in (2.0, 2.0, 3.0, 2.0):
        o.n = n
        assert torch.equal(compiled(X, weakref.proxy(o)), X * n * n)
    assert thunder.cache_misses(compiled) == 2


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.battery
def test_program(name: str, jit: Wrap) -> None:
    """The same as in eager, whatever changes between the calls."""
    assert outcomes(PROGRAMS[name], jit) == outcomes(PROGRAMS[name], lambda function: function)


def test_what_thunder_notes_in_its_own_objects_is_no_write_of_the_program(jit: Wrap) -> None:
    inner = thunder.jit(lambda x: x.sin())
    inner(X)
    trace = thunder.last_traces(inner)[0]
    assert trace._producers is None

    def program(x: torch.Tensor, trace: Any) -> torch.Tensor:
        return x * len(trace.names())

    compiled = jit(program)
    for _ in range(2):
        assert torch.equal(compiled(X, trace), X * len(trace.names()))
