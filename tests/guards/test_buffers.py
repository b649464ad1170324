"""Memory that code in C writes: arrays, buffers and objects of ctypes that a program reads, writes or shares."""

from __future__ import annotations

import array
import ctypes
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import thunder
from thunder_core.checks.arrays import array_content, is_buffer
from thunder_core.errors import UncacheableWarning
from thunder_frontend.observe.buffers import Buffers


class Tagged(numpy.ndarray):
    """A subclass of arrays that overrides `sum`."""

    def sum(self):
        return -1.0


class Point(ctypes.Structure):
    """A structure of C."""

    _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_float)]


MAKE: dict[str, Callable[[], Any]] = {
    "array": lambda: numpy.arange(3.0),
    "view": lambda: numpy.arange(6.0)[::2],
    "dates": lambda: numpy.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"),
    "subclass": lambda: numpy.arange(3.0).view(Tagged),
    "bytearray": lambda: bytearray(b"abc"),
    "array.array": lambda: array.array("i", [1, 2]),
    "memoryview": lambda: memoryview(bytearray(b"abc")),
    "ctypes": lambda: (ctypes.c_int * 2)(1, 2),
}


@pytest.mark.parametrize("name", MAKE)
def test_contents_are_restored(name: str) -> None:
    value, same = MAKE[name](), MAKE[name]()
    assert is_buffer(value)
    buffers = Buffers()
    buffers.visit(value, name)
    assert buffers.changed() == ()
    value[0] = value[1]
    assert array_content(value) != array_content(same)
    assert buffers.changed() == (name,)
    buffers.restore()
    assert array_content(value) == array_content(same)


@pytest.mark.parametrize("value", [1, [1], object(), torch.ones(2)])
def test_no_buffers(value: Any) -> None:
    assert not is_buffer(value)


def add_to_item(x, held):
    held[0] += 1
    return x * float(held[0])


def add_in_place(x, held):
    held += 1
    return x + torch.from_numpy(held)


def read_before_and_after(x, held):
    before = torch.from_numpy(held).clone()
    held *= 2
    return x * before, torch.from_numpy(held) + x


def write_values_of_a_tensor(x, held):
    held[:] = x.numpy()
    return x * float(held.sum())


def grow(x, held):
    held.resize(held.size + 1, refcheck=False)
    return x + held.size


def write_a_view(x, held):
    held[1:].fill(x.sum().item())
    return x * float(held.sum())


def add_to_field(x, held):
    held.x += 1
    return x * held.x * held.y


WRITES: list[tuple[Callable[..., Any], Callable[[], Any]]] = [
    (add_to_item, MAKE["array"]),
    (add_to_item, MAKE["view"]),
    (add_to_item, MAKE["subclass"]),
    (add_to_item, MAKE["memoryview"]),
    (add_to_item, MAKE["ctypes"]),
    (add_in_place, MAKE["array"]),
    (read_before_and_after, MAKE["array"]),
    (write_values_of_a_tensor, MAKE["array"]),
    (grow, MAKE["array"]),
    (write_a_view, MAKE["array"]),
    (add_to_field, lambda: Point(1, 2.0)),
]


def run(program: Callable[..., Any], make: Callable[[], Any]) -> list[Any]:
    """The results of four calls, with the content of the buffer after each."""
    held = make()
    results = [(program(torch.full((3,), float(step)), held), array_content(held)) for step in range(4)]
    return [([item.tolist() for item in (r if isinstance(r, tuple) else (r,))], held) for r, held in results]


@pytest.mark.parametrize(("function", "make"), WRITES)
def test_writes_are_those_of_eager(function: Callable[..., Any], make: Callable[[], Any]) -> None:
    with pytest.warns(UncacheableWarning, match=r"the program (writes to held|calls numpy\.ndarray\.resize)"):
        compiled = run(thunder.jit(function), make)
    assert compiled == run(function, make)


@pytest.mark.parametrize("name", ["bytearray", "array.array"])
def test_writes_of_bytes_are_repeated(name: str) -> None:
    assert run(thunder.jit(add_to_item), MAKE[name]) == run(add_to_item, MAKE[name])


@pytest.mark.parametrize("name", [name for name in MAKE if name != "dates"])
def test_changes_by_the_caller_are_seen(name: str) -> None:
    def function(x):
        return x * float(held[0])

    held = MAKE[name]()
    compiled = thunder.jit(function)
    x = torch.ones(2)
    for number in (1, 1, 5, 7):
        held[0] = number
        assert torch.equal(compiled(x), function(x))
    assert thunder.cache_misses(compiled) == 3


def test_classes_of_arrays_are_distinguished() -> None:
    def function(x, values):
        return x * float(values.sum())

    compiled, x = thunder.jit(function), torch.ones(2)
    plain = numpy.arange(3.0)
    for values in (plain, plain.view(Tagged), plain):
        assert torch.equal(compiled(x, values), function(x, values))


def test_arrays_that_become_tensors_and_are_read() -> None:
    class Model:
        rows = numpy.array([0, 2])

    model = Model()

    def function(x):
        return x[model.rows], x[model.rows.tolist()]

    compiled, x = thunder.jit(function), torch.arange(3.0)
    for rows in ([0, 2], [1, 1], [0, 2]):
        model.rows = numpy.array(rows)
        for actual, expected in zip(compiled(x), function(x), strict=True):
            assert torch.equal(actual, expected)


def test_an_argument_that_becomes_a_tensor_may_differ() -> None:
    def function(x, a):
        return x[a] * torch.as_tensor(a) + torch.from_numpy(a)

    compiled, x = thunder.jit(function), torch.arange(3.0)
    for rows in ([0, 2], [1, 1], [0, 2]):
        a = numpy.array(rows)
        assert torch.equal(compiled(x, a), function(x, a))
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("read", [lambda a: a.tolist(), lambda a: int(a[0]), len, lambda a: (a + 1)[0].item()])
def test_an_argument_that_becomes_a_tensor_and_is_read(read: Callable[..., Any]) -> None:
    def function(x, a):
        return x[torch.as_tensor(a)], read(a)

    compiled, x = thunder.jit(function), torch.arange(3.0)
    for rows in ([0, 2], [1, 1], [0, 2]):
        a = numpy.array(rows)
        (actual, number), (expected, same) = compiled(x, a), function(x, a)
        assert torch.equal(actual, expected)
        assert number == same


def write_to_tensor(a, x):
    x.add_(1)
    return float(a.sum()), x * 2


def write_to_tensor_and_convert(a, x):
    x.mul_(2)
    return torch.as_tensor(a) + 1, x * 2


def write_to_result(a, x):
    made = torch.from_numpy(a)
    before = float(a[0])
    made.add_(x)
    return before, float(a[0]), made * 2


SHARED = [write_to_tensor, write_to_tensor_and_convert, write_to_result]


@pytest.mark.parametrize("program", SHARED)
@pytest.mark.parametrize("first", ["shared", "separate"])
def test_memory_of_an_array_and_a_tensor(program: Callable[..., Any], first: str) -> None:
    def results(function):
        seen = []
        for kind in (first, "shared", "separate", "shared"):
            a = numpy.arange(3, dtype=numpy.float32)
            x = torch.from_numpy(a) if kind == "shared" else torch.ones(3)
            seen.append(([r.tolist() if isinstance(r, torch.Tensor) else r for r in function(a, x)], a.tolist()))
        return seen

    with pytest.warns(UncacheableWarning, match="memory"):
        compiled = results(thunder.jit(program))
    assert compiled == results(program)


def test_memory_of_an_array_in_a_closure() -> None:
    def make():
        a = numpy.ones(3, dtype=numpy.float32)

        def function(x):
            x.mul_(2)
            return x + float(a[0])

        return function, torch.from_numpy(a)

    (function, x), (other, y) = make(), make()
    compiled = thunder.jit(function)
    with pytest.warns(UncacheableWarning, match="shares memory with a"):
        results = [compiled(x).tolist() for _ in range(3)]
    assert results == [other(y).tolist() for _ in range(3)]


@pytest.mark.parametrize(
    "create", [torch.from_numpy, torch.as_tensor, lambda a: torch.frombuffer(a, dtype=torch.float32), torch.Tensor]
)
@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
def test_the_array_of_an_earlier_call_changes(create: Callable[..., Any]) -> None:
    def function(a):
        return create(a) * 2

    compiled, a = thunder.jit(function), numpy.ones(3, dtype=numpy.float32)
    assert torch.equal(compiled(a), function(a))
    a[:] = 9
    b = numpy.ones(3, dtype=numpy.float32)
    for held in (b, a):
        assert torch.equal(compiled(held), function(held))


def test_results_in_the_memory_of_an_array() -> None:
    compiled = thunder.jit(torch.from_numpy)
    for _ in range(2):
        a = numpy.ones(3, dtype=numpy.float32)
        compiled(a).add_(1)
        assert a.tolist() == [2, 2, 2]


def test_bytes_of_a_tensor_are_refused_or_those_of_eager() -> None:
    def function(x, held):
        x.add_(1)
        return held[0]

    def results(program):
        held = bytearray(b"abc")
        return [(program(torch.frombuffer(held, dtype=torch.uint8), held), bytes(held)) for _ in range(3)]

    with pytest.warns(UncacheableWarning, match="shares memory with held"):
        compiled = results(thunder.jit(function))
    assert compiled == results(function)


def shape_of(a):
    a.shape = (2, 3)


def dtype_of(a):
    a.dtype = numpy.int64


def dtype_and_shape(a):
    a.dtype = numpy.int32
    a.shape = (-1, 1)
    a.fill(7)


def read_only(a):
    a.sort()
    a.flags.writeable = False


def writeable(a):
    a.flags.writeable = True
    a[0] = 9


def read_only_array():
    a = numpy.arange(6.0)
    a.flags.writeable = False
    return a


LAYOUTS = {
    "shape": (shape_of, lambda: numpy.arange(6.0)),
    "shape of a view": (shape_of, lambda: numpy.arange(12.0)[:6]),
    "dtype": (dtype_of, lambda: numpy.arange(6.0)),
    "dtype and shape": (dtype_and_shape, lambda: numpy.arange(6.0)),
    "read-only": (read_only, lambda: numpy.arange(6.0)[::-1].copy()),
    "no longer read-only": (writeable, read_only_array),
    "resized": (lambda a: a.resize(8, refcheck=False), lambda: numpy.arange(6.0)),
    "resized by its class": (lambda a: numpy.ndarray.resize(a, 4, refcheck=False), lambda: numpy.arange(6.0)),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.filterwarnings("ignore:Setting the .* on a NumPy array:DeprecationWarning")
def test_the_layout_of_an_array_changes(name: str) -> None:
    change, make = LAYOUTS[name]

    def outcomes(wrap):
        a = make()

        def function(x):
            change(a)
            return x * float(a.sum())

        program, found = wrap(function), []
        for _ in range(3):
            try:
                found.append(program(torch.ones(2)).tolist())
            except ValueError as error:  # of the second call
                found.append(str(error))
            found.append((a.dtype, a.shape, a.strides, a.flags.writeable, a.tolist()))
        return found

    assert outcomes(thunder.jit) == outcomes(lambda function: function)


def test_an_array_that_the_program_creates_is_resized() -> None:
    def function(x):
        a = numpy.zeros(3)
        a.resize(5)  # NumPy counts the references to it
        return x * len(a)

    compiled = thunder.jit(function)
    with pytest.warns(UncacheableWarning, match=r"numpy\.ndarray\.resize"):
        assert [compiled(torch.ones(2)).tolist() for _ in range(3)] == [[5.0, 5.0]] * 3
