"""Every literal has a spelling that evaluates to an equal value of the same type."""

import enum
import math
from collections import namedtuple

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence

from thunder_core.errors import TraceError
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.literals import LiteralPrinter

Pair = namedtuple("Pair", "first second")
WithDefaults = namedtuple("WithDefaults", "first second third", defaults=(0.0, (1,)))


class Single(Pair):
    """A named tuple that is created from one of its items."""

    __slots__ = ()

    def __new__(cls, first):
        return super().__new__(cls, first, 3)


class Items(tuple):
    """A tuple that is created from its items as arguments."""

    __slots__ = ()

    def __new__(cls, *items):
        return super().__new__(cls, items)


class Initialized(tuple):
    """A tuple whose ``__init__`` takes other arguments."""

    def __new__(cls, first, second):
        return super().__new__(cls, (first, second))

    def __init__(self, first, second):
        assert first < second


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2


class Function(torch.autograd.Function):
    """An importable class with a class method."""

    class Inner:
        """A nested one."""


def evaluate(value):
    literals = LiteralPrinter()
    text = literals.expression(value)
    assert "\n" not in text
    namespace = dict(vars(math))
    for module in literals.modules:
        exec(f"import {module}", namespace)
    for name in literals.constants:
        exec(f"from math import {name}", namespace)
    return eval(text, namespace)


LITERALS = [
    None,
    True,
    3,
    -(10**40),
    1.5,
    1e-300,
    -0.0,
    float("inf"),
    float("-inf"),
    2j,
    complex(-0.0, 1.0),
    complex(1.0, float("-inf")),
    "text with 'quotes' \" and\nlines \u2028",
    b"bytes",
    ...,
    range(2, 9, 3),
    slice(None, -1, 2),
    (),
    (1,),
    (1, [2.0, {"a": (True, None), 3: slice(1, 2)}]),
    [],
    {},
    torch.Size([2, 3]),
    torch.Size([]),
    Pair(1, [2]),
    WithDefaults(1),
    WithDefaults(1, 0),
    WithDefaults(1, -0.0, (1.0,)),
    Single([1]),
    Items(1),
    Items(1, [2]),
    Initialized(1, 2),
    torch.return_types.max((1, 2)),
    tuple.__new__(PackedSequence, ([1.0], [2], None, None)),
    torch.float32,
    torch.float8_e4m3fn,
    torch.bool,
    torch.device("cpu"),
    torch.device("cuda", 1),
    torch.device("meta"),
    torch.strided,
    torch.sparse_coo,
    torch.channels_last,
    torch.preserve_format,
    torch.per_tensor_affine,
    Color.RED,
    Level.LOW,
    Level.LOW | Level.HIGH,
    torch.nn.attention.SDPBackend.MATH,
    int,
    max,
    Function,
    Function.Inner,
    Function.apply,
    torch.relu,
    torch.nn.functional.gelu,
    torch.nn.functional.linear,
    torch.Tensor.add,
    torch.Tensor,
    torch.nn.Linear,
    torch.ops.aten.add.Tensor,
    torch.ops.aten.mm.default,
    torch.ops.aten.add,
    math.sqrt,
]


@pytest.mark.parametrize("value", LITERALS)
def test_spelling_evaluates_to_an_equal_value(value):
    result = evaluate(value)
    assert type(result) is type(value)
    assert result == value
    assert repr(result) == repr(value)  # -0.0 and 0.0 are equal


def test_nan():
    assert math.isnan(evaluate(float("nan")))
    assert math.isnan(evaluate([complex(0.0, float("nan"))])[0].imag)


def test_struct_sequence():
    value = torch.return_types.max((1, 2))
    result = evaluate(value)
    assert type(result) is type(value)
    assert tuple(result) == (1, 2)


def local():
    """Stands for what is not importable."""

    def inner():
        pass

    return inner


@pytest.mark.parametrize("value", [local(), lambda: 1, object(), torch.Generator(), torch.zeros(2), {1, 2}])
def test_what_cannot_be_imported_is_no_literal(value):
    assert import_path(value) is None
    with pytest.raises(TraceError, match="Make it an input"):
        LiteralPrinter().expression([value])


def test_an_import_that_gives_another_object_is_refused():
    impostor = type("Color", (), {"__module__": __name__, "__qualname__": "Color"})
    assert import_path(Color) == (__name__, "Color")
    assert import_path(impostor) is None
