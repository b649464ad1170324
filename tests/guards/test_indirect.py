"""Reads that go through something else: classes, descriptors, imports, Python modules, contexts, compiled programs."""

from __future__ import annotations

import contextvars
import copy
import dataclasses
import functools
import inspect
import json
import operator
import string
import sys
import threading
import types
import typing
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder

CONTEXT = contextvars.ContextVar("CONTEXT", default=None)
LOCAL = threading.local()


@pytest.fixture
def constants(monkeypatch):
    """A Python module of the user's."""
    module = types.ModuleType("constants_of_the_test")
    module.SCALE = 2
    module.UNREAD = 1
    module.function = lambda x: x * 2
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


class Settings:
    SCALE = 2
    UNREAD = 1
    calls = 0

    @classmethod
    def scale(cls):
        return cls.SCALE

    @staticmethod
    def factor():
        return 1

    def through_type(self):
        return type(self).SCALE * self.__class__.SCALE


@pytest.mark.parametrize(
    "program",
    [
        lambda x, settings: x * settings.scale(),
        lambda x, settings: x * Settings.scale(),
        lambda x, settings: x * settings.through_type(),
        lambda x, settings: x * type(settings).SCALE,
    ],
)
def test_classes(observe, x, program, monkeypatch):
    settings = Settings()
    entry = observe(program, x, settings)
    monkeypatch.setattr(Settings, "UNREAD", 5)
    assert entry.hits(x, settings), entry.reason(x, settings)
    monkeypatch.setattr(Settings, "SCALE", 5)
    assert not entry.hits(x, settings)


def test_replaced_class_and_static_methods(observe, x, monkeypatch):
    settings = Settings()
    entry = observe(lambda x, settings: x * settings.scale() * settings.factor(), x, settings)
    monkeypatch.setattr(Settings, "factor", staticmethod(lambda: 9))
    assert not entry.hits(x, settings)
    monkeypatch.undo()
    monkeypatch.setattr(Settings, "scale", classmethod(lambda cls: 9))
    assert not entry.hits(x, settings)


def test_written_class_attribute(observe, x):
    def program(x, settings):
        Settings.calls += 1
        return x * settings.calls

    entry = observe(program, x, Settings())
    assert [(write.target.describe(), write.value) for write in entry.writes] == [("Settings.calls", 1)]
    assert Settings.calls == 0
    Settings.calls = 3
    try:
        assert not entry.hits(x, Settings())
    finally:
        Settings.calls = 0


def test_descriptor_with_state(observe, x):
    class Scaled:
        def __init__(self):
            self.factor = 2

        def __get__(self, instance, owner):
            return self.factor

    descriptor = Scaled()

    class Holder:
        scale = descriptor

    entry = observe(lambda x, holder: x * holder.scale, x, Holder())
    assert entry.hits(x, Holder())
    descriptor.factor = 3
    assert not entry.hits(x, Holder())


def test_import_in_a_function(observe, x, constants):
    def program(x):
        import constants_of_the_test

        return x * constants_of_the_test.SCALE

    def another(x):
        from constants_of_the_test import SCALE

        return x * SCALE

    for function in (program, another):
        constants.SCALE = 2
        entry = observe(function, x)
        constants.UNREAD = 5
        assert entry.hits(x)
        constants.SCALE = 3
        assert not entry.hits(x)


def test_python_module_as_an_object(observe, x, constants):
    holder = SimpleNamespace(module=constants, functions=F)

    def program(x, holder):
        return holder.functions.relu(holder.module.function(x)) * holder.module.SCALE

    entry = observe(program, x, holder)
    assert entry.hits(x, holder)
    constants.SCALE = 3
    assert not entry.hits(x, holder)
    constants.SCALE = 2
    constants.function = lambda x: x
    assert not entry.hits(x, holder)


def test_context_variable_and_thread_local(observe, x):
    entry = observe(lambda x: x if CONTEXT.get() is None else x * 2, x)
    token = CONTEXT.set(3)
    try:
        assert not entry.hits(x)
    finally:
        CONTEXT.reset(token)
    assert entry.hits(x)

    LOCAL.scale = 2
    entry = observe(lambda x: x * LOCAL.scale, x)
    LOCAL.scale = 3
    assert not entry.hits(x)


def test_torch_function_as_an_argument(observe, x):
    entry = observe(lambda x, function: function(x), x, F.silu)
    assert entry.hits(x, F.silu)
    assert not entry.hits(x, F.relu)


def test_wrapper_that_forwards_attributes(observe, x):
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 2
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x)

    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.module, name)

        def forward(self, x):
            return self.module(x) * self.scale

    wrapper = Wrapper(Inner())
    entry = observe(wrapper, x)
    assert entry.hits(x)
    wrapper.module.scale = 3
    assert not entry.hits(x)


class Scaling(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = 2

    def forward(self, x):
        return self.linear(x) * self.scale


@pytest.mark.slow
def test_compiled_program_inside(x):
    factor = 2
    inner, compiled_function = Scaling(), thunder.jit(lambda x: x * factor)
    compiled_inner = thunder.jit(inner)
    programs = (
        nn.Sequential(compiled_inner, nn.ReLU()),
        lambda x: compiled_function(compiled_inner(x)),
        lambda x: compiled_inner(x) * compiled_inner.scale,
    )
    for program in programs:
        compiled = thunder.jit(program)
        for change in (lambda: None, lambda: setattr(inner, "scale", inner.scale + 1)):
            change()
            assert torch.equal(compiled(x), program(x))
        inner.linear = nn.Linear(4, 4)
        assert torch.equal(compiled(x), program(x))
    factor = 5
    compiled = thunder.jit(lambda x: compiled_function(x))
    assert torch.equal(compiled(x), x * 5)
    factor = 6
    assert torch.equal(compiled(x), x * 6)


def test_module_held_in_an_opaque_place(x):
    hidden = {"inner": [Scaling()]}

    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.__dict__["hidden"] = hidden

        def forward(self, x):
            return next(iter(self.hidden.values()))[0](x)

    compiled = thunder.jit(Holder())
    compiled(x)
    inner = hidden["inner"][0]
    inner.scale = 5
    assert torch.equal(compiled(x), inner(x))
    hidden["inner"][0] = Scaling()
    assert torch.equal(compiled(x), hidden["inner"][0](x))


def test_library_containers(observe, x):
    import array
    import collections

    for make in (
        lambda value: types.MappingProxyType({"a": value}),
        lambda value: collections.UserDict({"a": value}),
        lambda value: collections.ChainMap({"a": value}, {"b": 1}),
        lambda value: collections.Counter({"a": value}),
    ):
        entry = observe(lambda x, table: x * table["a"], x, make(2))
        assert entry.hits(x, make(2)), make
        assert not entry.hits(x, make(3)), make
    for make in (lambda value: bytearray([value]), lambda value: array.array("i", [value])):
        entry = observe(lambda x, values: x * values[0], x, make(2))
        assert entry.hits(x, make(2))
        assert not entry.hits(x, make(3))


def test_attribute_getter(observe, x):
    holder = SimpleNamespace(inner=SimpleNamespace(scale=2))
    entry = observe(lambda x, holder: x * operator.attrgetter("inner.scale")(holder), x, holder)
    holder.inner.scale = 3
    assert not entry.hits(x, holder)


@pytest.mark.parametrize(
    "read",
    [
        lambda holder: f"{holder.inner.scale}",
        lambda holder: "{a.inner.scale:>{a.width}}".format(a=holder),
        lambda holder: "{a.inner.scale}".format_map({"a": holder}),
        lambda holder: string.Formatter().format("{0.inner.scale}", holder),
    ],
    ids=["format", "by name", "format_map", "Formatter"],
)
def test_attributes_in_formats(observe, x, read):
    holder = SimpleNamespace(inner=SimpleNamespace(scale=2), width=3)
    entry = observe(lambda x, holder: x * int(read(holder)), x, holder)
    assert entry.hits(x, holder)
    holder.inner.scale = 3
    assert not entry.hits(x, holder)


class Titled:
    title = property(operator.attrgetter("scale"))

    def __init__(self):
        self.scale = 2


def test_properties_of_functions_in_c(observe, x):
    titled = Titled()
    entry = observe(lambda x, titled: x * titled.title, x, titled)
    assert entry.hits(x, titled)
    titled.scale = 3
    assert not entry.hits(x, titled)


EXPRESSION = compile("holder.inner.scale", "<expression>", "eval")


def executed(holder):
    found = []
    exec("found.append(holder.inner.scale)")
    return found[0]


@pytest.mark.parametrize(
    "read",
    [
        lambda holder: eval("holder.inner.scale"),
        lambda holder: eval(EXPRESSION),
        lambda holder: eval("eval('holder.inner.scale')"),
        lambda holder: eval("[one.inner.scale for one in [holder]][0]"),
        executed,
    ],
    ids=["text", "code", "nested", "comprehension", "exec"],
)
def test_variables_of_the_caller_of_eval(observe, x, read):
    holder = SimpleNamespace(inner=SimpleNamespace(scale=2))
    entry = observe(lambda x, holder: x * read(holder), x, holder)
    assert entry.hits(x, holder)
    holder.inner.scale = 3
    assert not entry.hits(x, holder)


class Meta(type):
    scale = 2
    held = 2
    unread = 1

    @property
    def of_property(cls):
        return cls.held

    def of_method(cls):
        return cls.held

    def __getitem__(cls, key):
        return cls.held

    def __len__(cls):
        return Meta.held

    def __call__(cls):
        return cls.held


class Table(metaclass=Meta):
    pass


def _without_state(cls, *key):
    return 5


@pytest.mark.parametrize(
    ("read", "changes"),
    [
        (lambda: Table.scale, ((Meta, "scale", 3), (Table, "scale", 3))),
        (lambda: Table.of_property, ((Meta, "held", 3), (Meta, "of_property", property(_without_state)))),
        (
            lambda: Table.of_method(),
            ((Meta, "held", 3), (Meta, "of_method", _without_state), (Table, "of_method", lambda: 5)),
        ),
        (lambda: Table[0], ((Meta, "held", 3), (Table, "held", 3), (Meta, "__getitem__", _without_state))),
        (lambda: Table(), ((Meta, "held", 3), (Meta, "__call__", _without_state))),
        (lambda: len(Table), ((Meta, "held", 3), (Meta, "__len__", _without_state))),
    ],
    ids=["value", "property", "method", "item", "call", "length"],
)
def test_attributes_of_metaclasses(observe, x, monkeypatch, read, changes):
    entry = observe(lambda x: x * read(), x)
    monkeypatch.setattr(Meta, "unread", 2)
    assert entry.hits(x)
    for owner, name, value in changes:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value, raising=False)
            assert not entry.hits(x), (owner, name)
    assert entry.hits(x)


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    def __get__(self, holder, owner):
        return self.scale


class Box:
    scaled = Scaled(2)


@pytest.mark.parametrize("read", [lambda: Box().scaled, lambda: Box.scaled], ids=["of an object", "of the class"])
def test_descriptors_of_classes_of_created_objects(observe, x, monkeypatch, read):
    entry = observe(lambda x: x * read(), x)
    assert entry.hits(x)
    monkeypatch.setattr(vars(Box)["scaled"], "scale", 3)
    assert not entry.hits(x)


@dataclasses.dataclass
class Item:
    scale: float


def test_items_of_what_the_standard_library_reads(observe, x):
    holder = SimpleNamespace(items=[Item(2.0)])
    entry = observe(lambda x, holder: x * copy.deepcopy(holder.items)[0].__dict__["scale"], x, holder)
    other = observe(lambda x, items: x * json.loads(json.dumps(items, default=vars))[0]["scale"], x, holder.items)
    assert entry.hits(x, holder)
    assert other.hits(x, holder.items)
    holder.items[0].scale = 3.0
    assert not entry.hits(x, holder)
    assert not other.hits(x, holder.items)


def test_match_statement(observe, x):
    def program(x, holder):
        match holder:
            case SimpleNamespace(mode="double"):
                return x * 2
            case _:
                return x

    entry = observe(program, x, SimpleNamespace(mode="double"))
    assert not entry.hits(x, SimpleNamespace(mode="single"))


def test_objects_without_end(observe, x):
    from unittest.mock import MagicMock

    mock = MagicMock()
    mock.scale = 2

    entry = observe(lambda x, mock: x * mock.scale if mock.a.b.c.d else x, x, mock)
    mock.scale = 3
    assert not entry.hits(x, mock)


def test_consumed_iterators(observe, x):
    import itertools

    for make in (lambda: itertools.count(), lambda: iter([1, 2, 3]), lambda: (i for i in range(3))):
        entry = observe(lambda x, numbers: x * next(numbers), x, make())
        assert entry.random == ["numbers"]
    assert observe(lambda x, numbers: x, x, itertools.count()).random == []
    hidden = ["numbers"] if sys.version_info >= (3, 14) else []  # its position cannot be read
    assert observe(lambda x, numbers: x, x, itertools.chain([1])).random == hidden


def test_distribution(observe, x):
    model = nn.Linear(4, 4)
    model.distribution = torch.distributions.Normal(torch.zeros(4), torch.ones(4))

    def program(x):
        return model.distribution.log_prob(x)

    entry = observe(program, x)
    assert entry.hits(x)
    model.distribution = torch.distributions.Normal(torch.zeros(1), torch.ones(1))
    assert not entry.hits(x)


def test_forward_called_directly(observe, x):
    model = nn.Sequential(nn.Linear(4, 4))
    entry = observe(lambda x: model[0].forward(x), x)
    model[0].forward = lambda x: x
    assert not entry.hits(x)


@pytest.mark.parametrize(
    "decorate",
    [
        torch.no_grad(),
        torch.autocast("cpu", enabled=False),
        torch.autograd.profiler.record_function("part"),
        torch.compiler.disable,
        torch.compile(backend="eager"),
        lambda function: torch.no_grad()(torch.enable_grad()(function)),
    ],
    ids=["no_grad", "autocast", "record_function", "disable", "compile", "nested"],
)
def test_closures_of_decorated_functions(x, decorate):
    def scaled_by(factor):
        @decorate
        def function(x):
            return x * factor[0]

        return function

    factor = [3.0]
    function = scaled_by(factor)
    compiled = thunder.jit(lambda x: function(x) + 1)
    assert torch.equal(compiled(x), x * 3 + 1)
    factor[0] = 5.0
    assert torch.equal(compiled(x), x * 5 + 1)
    function = scaled_by([7.0])
    assert torch.equal(compiled(x), x * 7 + 1)


def test_functions_chosen_by_the_class_of_an_argument(x):
    @functools.singledispatch
    def factor(value):
        return 2

    scale = [3]
    factor.register(str)(lambda value: scale[0])
    compiled = thunder.jit(lambda x, value: x * factor(value))
    torch.testing.assert_close(compiled(x, 1.0), x * 2)
    torch.testing.assert_close(compiled(x, ""), x * 3)
    scale[0] = 4
    torch.testing.assert_close(compiled(x, ""), x * 4)
    factor.register(float)(lambda value: 5)
    torch.testing.assert_close(compiled(x, 1.0), x * 5)
    torch.testing.assert_close(compiled(x, 1.0), x * 5)
    assert thunder.cache_misses(compiled) == 4


def test_methods_that_functools_makes(x):
    class Factors:
        @functools.singledispatchmethod
        def of(self, value):
            return 2

        def times(self, x, factor):
            return x * factor

        thrice = functools.partialmethod(times, factor=3)

    factors = Factors()
    compiled = thunder.jit(lambda x, value: factors.thrice(x) * factors.of(value))
    torch.testing.assert_close(compiled(x, 1.0), x * 6)
    vars(Factors)["of"].register(float)(lambda self, value: 5)
    torch.testing.assert_close(compiled(x, 1.0), x * 15)
    Factors.thrice = functools.partialmethod(Factors.times, factor=4)
    torch.testing.assert_close(compiled(x, 1.0), x * 20)
    torch.testing.assert_close(compiled(x, 1.0), x * 20)
    assert thunder.cache_misses(compiled) == 3


def annotated(value: 2.0) -> 1.0:
    return value


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * annotated.__annotations__["value"],
        lambda x: x * inspect.signature(annotated).parameters["value"].annotation,
        lambda x: x * (2 if typing.get_type_hints(annotated)["return"] is int else 3),
    ],
    ids=["annotations", "signature", "hints"],
)
def test_annotations_of_functions(monkeypatch, program):
    compiled, x = thunder.jit(program), torch.ones(2)
    for found in ({"value": 2.0, "return": int}, {"value": 3.0, "return": float}):
        monkeypatch.setattr(annotated, "__annotations__", found)
        for _ in range(2):
            assert torch.equal(compiled(x), program(x))
