"""Programs on arrays: their inputs, guards, writes and results, and the choice of the front end."""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy import float32, zeros
from numpy_comparison import assert_same, check, copied

import thunder
from thunder_core.errors import DataDependentError, UnsupportedError


def grid(start: int = 0, dtype: str = "float64") -> np.ndarray:
    return np.arange(start, start + 6.0).reshape(2, 3).astype(dtype)


def test_arrays_are_inputs() -> None:
    """The second array has an entry; one with other strides, another shape or dtype gets one."""
    program = thunder.jit(lambda x: np.sin(x) + x.sum(), executors=[])
    for x in (grid(), grid(1), np.asfortranarray(grid()), grid()[:, :2], grid(0, "float32"), grid(5)):
        assert_same(program(x), np.sin(x) + x.sum(), 1e-6)
    assert (thunder.cache_hits(program), thunder.cache_misses(program)) == (2, 4)
    assert str(thunder.last_traces(program)[0]).count("torch.sin(x)") == 1
    assert "strides" in str(thunder.explain(program)) or "same_array" in str(thunder.last_prologue_traces(program)[-1])


def add_one(x: Any) -> Any:
    x += 1
    x[0] = 5
    x.T[1:] *= 2
    x[::-1, 0] = x[:, 1]
    return x


def overlapping(x: Any) -> Any:
    x[1:] = x[:-1]
    np.copyto(x[:, 1:], x[:, :-1])
    x[:, 0], x[:, 1] = x[:, 1], x[:, 0]
    x[:, 1:] += x[:, :-1]
    return x


def outs(x: Any, y: Any) -> Any:
    np.add(x, 1, out=y)
    np.sum(y, axis=0, out=x[0])
    np.multiply(x, 2, out=x, where=y > 3)
    np.copyto(y, x, where=x > 8)
    np.putmask(y, y < 2, -1)
    np.fill_diagonal(y, 7)
    y[y > 6] = 0
    y[[0, 1], [1, 2]] = [4, 5]
    y.sort(axis=1)
    x.fill(3)
    return y


def filled(x: Any) -> Any:
    result, other = np.zeros(len(x)), zeros(3, float32)
    for row in range(len(x)):
        result[row] = x[row].mean()
    other[0] = x[0, 0]
    return result, other, np.empty_like(x).shape


@dataclass
class Pair:
    values: Any
    count: int


class Model:
    def __init__(self) -> None:
        self.weight = np.ones(3)

    def __call__(self, x: Any) -> Any:
        self.last = x.sum()
        return x * self.weight


WEIGHT = np.ones((3, 2))


def nested(options: Any, k: int = 2) -> Any:
    return {"a": options["x"] + k, "b": [options["y"][0], 3]}


def same_array(x: Any, y: Any) -> Any:
    x += y
    return x


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (add_one, [(grid(),), (grid(1),)]),
        (add_one, [(np.arange(24.0).reshape(4, 6)[::2, ::2],), (np.arange(1, 25.0).reshape(4, 6)[::2, ::2],)]),
        (overlapping, [(grid(),), (grid(1),)]),
        (outs, [(grid(), grid(2)), (grid(1), grid())]),
        (filled, [(grid(),), (grid(1),)]),
        (lambda x: x @ WEIGHT, [(grid(),), (grid(1),)]),
        (nested, [({"x": grid(n), "y": [grid(), "s"]},) for n in (0, 1)]),
        (lambda x: (x, x.T, x.reshape(-1), x[0, 0], None), [(grid(),), (grid(1),)]),
        (lambda x: x[::-1] * 2, [(grid()[::-1],), (grid(1)[::-1],)]),
        (lambda x: np.array([1, 2, 3]) * x + np.arange(3), [(grid(),), (grid(1),)]),
        (lambda x: np.array([[x[0, 0], 2], [x.sum(), x.max()]]), [(grid(),), (grid(1),)]),
        (lambda x: x + 1, [(np.array(3.0),), (np.array(4.0),)]),
        (lambda x: x[x > 2], [(grid(),), (grid(2),), (grid(9),)]),
        (lambda x: (x.dtype == np.float64, isinstance(x, np.ndarray)), [(grid(),), (grid(1),)]),
        (functools.partial(np.multiply, 2.0), [(grid(),), (grid(1),)]),
        (np.sin, [(grid(),), (grid(1),)]),
        (np.sum, [(grid(),), (grid(1),)]),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_one_program_for_arrays_of_one_kind(function: Any, calls: Any) -> None:
    check(function, *calls)


def test_results_share_memory_as_in_numpy() -> None:
    program = thunder.jit(lambda x: (x, x.T[1:], x * 2), executors=[])
    for x in (grid(), grid(1)):
        same, view, new = program(x)
        assert same is x
        assert np.shares_memory(view, x)
        assert not np.shares_memory(new, x)
        assert new.flags.writeable


def test_objects_and_their_attributes() -> None:
    model, compiled = Model(), thunder.jit(Model(), executors=[])
    for x in (grid(), grid(1)):
        assert_same(compiled(x), model(x))
        assert_same(thunder.original(compiled).last, model.last)
    pair = thunder.jit(lambda x: Pair(x * 2, 3), executors=[])(grid())
    assert_same(pair.values, grid() * 2)
    WEIGHT[0, 0] = 3  # arrays that are no arguments are constants, whose content is guarded
    check(lambda x: x @ WEIGHT, (grid(),))
    program = thunder.jit(lambda x: x @ WEIGHT, executors=[])
    assert_same(program(grid()), grid() @ WEIGHT)
    WEIGHT[0, 0] = 1
    assert_same(program(grid()), grid() @ WEIGHT)


def test_what_numpy_makes_read_only_is_not_written() -> None:
    for function in (np.diagonal, np.diag, lambda x: np.broadcast_to(x, (2, 3, 3))):

        def write(x: Any, function: Any = function) -> None:
            function(x)[0] = 1

        with pytest.raises(ValueError, match="read-only"):
            thunder.jit(write, executors=[])(np.ones((3, 3)))

    def flipped(x: Any) -> Any:
        np.flip(x)[0] = 5
        (+x)[0] = 7
        np.abs(x).fill(0)
        x.astype(x.dtype)[:] = 1
        np.round(x.astype(int))[:] = 1
        return x

    assert_same(thunder.jit(flipped, executors=[])(grid()), flipped(grid()))


def test_containers_of_arrays() -> None:
    shared = {"x": grid()}
    check(lambda one, other: (one["x"] + 1, one is other), (shared, shared), ({"x": grid(1)},) * 2)
    items: list[Any] = [grid()]
    items.append(items)
    program = thunder.jit(lambda items: items[0] * 2, executors=[])
    assert_same(program(items), grid() * 2)
    with pytest.warns(match="contains itself"):
        program(items)

    def stores(results: Any, x: Any) -> None:
        results["y"] = x * 2
        results["x"] += 1

    program = thunder.jit(stores, executors=[])
    results: dict[str, Any] = {"x": grid()}
    expected: dict[str, Any] = {"x": grid()}
    for function, given in ((program, results), (stores, expected)):
        function(given, grid(1))
    assert_same(results, expected)
    with pytest.warns(match="the program changes results, a dict that holds arrays"):
        program({"x": grid()}, grid())
    empty: dict[str, Any] = {}
    thunder.jit(lambda results, x: results.update(y=x * 2), executors=[])(empty, grid())
    assert_same(empty, {"y": grid() * 2})


def test_values_decide() -> None:
    def program(x: Any, limit: float) -> Any:
        count = 0
        while x.max() < limit:
            x, count = x * 2, count + 1
        return (x if x.sum() > 20 else -x), count, math.sqrt(x[0, 1])

    check(program, (grid(), 9.0), (grid(1), 9.0), (grid(3), 9.0), (grid(), 9.0), hits=3)


def test_numbers() -> None:
    check(lambda x, s: x * s, (grid(0, "float32"), np.float64(2)), (grid(1, "float32"), np.float64(2)))
    check(lambda x, s: x * s, (grid(0, "float32"), 2.0), (grid(1, "float32"), 2.0))
    check(lambda x, n: x[:n] * n, (grid(), 1), (grid(), 2), (grid(1), np.int64(1)), hits=0)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x: x + np.ones(5), ValueError),
        (lambda x: x[7], IndexError),
        (lambda x: x[0, 0, 0], IndexError),
        (lambda x: x[1.5], IndexError),
        (lambda x: x.reshape(4), ValueError),
        (lambda x: bool(x), ValueError),
        (lambda x: np.add(x.astype(int), 1.5, out=x.astype(int)), TypeError),
        (lambda x: x & 1, TypeError),
        (lambda x: x.astype(np.uint8) + 300, OverflowError),
        (lambda x: x.nothing, AttributeError),
        (lambda x: x.astype(int) ** -x.astype(int), ValueError),
        (lambda x: np.concatenate([x, x[0]]), ValueError),
        (lambda x: {x: 1}, TypeError),
    ],
)
def test_errors_are_those_of_numpy(function: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        function(grid(1))
    with pytest.raises(error) as raised:
        thunder.jit(function, executors=[], front_end="numpy")(grid(1))
    assert not isinstance(raised.value, UnsupportedError)


def test_a_read_only_array_stays_so() -> None:
    x = grid()
    x.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = check(lambda x: x * 2, (x,), (x,))
    assert_same(program(grid(1)), grid(1) * 2)
    for front_end in ("numpy", "run"):
        with pytest.raises(ValueError, match="read-only"):
            thunder.jit(add_one, executors=[], front_end=front_end)(x)
    assert_same(x, grid())


@pytest.mark.filterwarnings("ignore:.*shares memory with:thunder_core.errors.UncacheableWarning")
def test_the_same_array_twice_and_shared_memory() -> None:
    x = grid()
    check(same_array, (x, x), (x, x))
    program = thunder.jit(same_array, executors=[])
    program(grid(), grid(1))
    buffer = np.arange(6.0)
    expected = buffer.copy()
    for each in (buffer, expected):  # not the program of separate arrays
        (program if each is buffer else same_array)(each[1:], each[:-1])
        (program if each is buffer else same_array)(each[:3].reshape(3), each[:3])
    assert_same(buffer, expected)
    assert "shares memory" in thunder.explain(program).details()


@pytest.mark.parametrize(
    ("array", "named"),
    [
        (np.array([1, "a"], dtype=object), "array of"),
        (np.array([1, 2], dtype=np.uint16), "x is an array of the dtype uint16"),
        (np.array(["a", "b"]), "dtype <U1"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "datetime64"),
        (np.zeros(2, dtype=[("a", "f4")]), r"dtype \[\('a', '<f4'\)\]"),
        (np.arange(3.0).astype(">f8"), "dtype >f8"),
        (np.ma.array([1.0, 2.0], mask=[0, 1]), "numpy.ma.MaskedArray, a subclass"),
    ],
)
def test_arrays_that_are_not_covered(array: np.ndarray, named: str) -> None:
    """The front end that the configuration names refuses them; otherwise NumPy runs the call, with the reason."""
    if array.dtype != object:  # NumPy runs calls with these in any case
        with pytest.raises(UnsupportedError, match=named):
            thunder.jit(lambda x: x == x, executors=[], front_end="numpy")(array)
    program = thunder.jit(lambda x: x == x, executors=[])
    np.testing.assert_array_equal(program(array), array == array)
    with pytest.warns(match=named):
        program(array)
    assert thunder.cache_misses(program) == 2


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda x: f"{x.sum():.2f}", "text"),
        (lambda x: str(x), "text"),
        (lambda x: print(x), "text"),
        (lambda x: type(x) is np.ndarray, r"type\(\)"),
        (lambda x: type(x).__name__, "class"),
        (lambda x: np.vectorize(lambda value: value * 2)(x), "code in C"),
        (lambda x: torch.frombuffer(x, dtype=torch.float64).sum().item(), "ValueError"),
        (lambda x: np.add(x, 1, out=WEIGHT.T.copy()), "not an argument"),
    ],
)
def test_what_shows_another_class_or_needs_values(
    function: Any, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = thunder.jit(function, executors=[])
    assert_same(program(grid()), function(grid()))
    with pytest.warns(match=named):
        assert_same(program(grid(1)), function(grid(1)))
    one, other = capsys.readouterr().out.splitlines()[::2], capsys.readouterr().out.splitlines()[1::2]
    assert "TracedArray" not in str(one + other)
    assert "compiled program" not in str(one + other)


def test_without_a_configured_front_end_numpy_runs_what_is_not_covered() -> None:
    program = thunder.jit(lambda x: np.lexsort((x[0], x[1])), executors=[])
    assert_same(program(grid()), np.lexsort((grid()[0], grid()[1])))
    with pytest.warns(match=r"numpy.lexsort is not covered, at .*test_programs.py"):
        program(grid())


def test_random_numbers_of_numpy_are_new_in_each_call() -> None:
    def program(x: Any, generator: Any) -> Any:
        return x + np.random.rand(3) + generator.normal(size=3)

    compiled = thunder.jit(program, executors=[])
    results = []
    for function in (compiled, program):
        np.random.seed(0)
        generator = np.random.default_rng(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.append([function(grid(), generator) for _ in range(3)])
    assert_same(*results)
    assert not np.array_equal(results[0][0], results[0][1])


def test_with_tensors() -> None:
    check(lambda x: torch.from_numpy(x).sin().numpy().shape, (grid(),), (grid(),))
    program = thunder.jit(lambda x: (torch.from_numpy(x) * 2, torch.as_tensor(x) + 1, torch.tensor(x)), executors=[])
    for x in (grid(), grid(1)):
        for result, factor in zip(program(x), (x * 2, x + 1, x), strict=True):
            assert type(result) is torch.Tensor
            assert_same(result.numpy(), factor)
    assert thunder.cache_hits(program) == 1
    mixed = thunder.jit(lambda t, x: t * torch.from_numpy(x), executors=[])  # as without this package
    torch.testing.assert_close(mixed(torch.ones(2, 3), grid(0, "float32")), torch.from_numpy(grid(0, "float32")))


def test_modules_have_their_front_end() -> None:
    class Scale(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.from_numpy(x) * 2

    torch.testing.assert_close(thunder.jit(Scale(), executors=[])(grid()), torch.from_numpy(grid() * 2))


def test_the_default_executors() -> None:
    def program(x: Any, y: Any) -> Any:
        for _ in range(3):
            y = np.tanh(x @ y) + y.mean(axis=0)
        return y

    compiled = thunder.jit(program)
    for seed in (0, 1):
        x, y = np.random.default_rng(seed).standard_normal((2, 4, 4))
        assert_same(compiled(x, y), program(x, y))
    assert thunder.cache_hits(compiled) == 1


def test_nothing_of_the_program_is_left() -> None:
    x = grid()
    before = copied(x)
    with pytest.raises((UnsupportedError, DataDependentError)):
        thunder.jit(lambda x: (add_one(x), np.lexsort((x[0], x[1]))), executors=[], front_end="numpy")(x)
    assert_same(x, before)
