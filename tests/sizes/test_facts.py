"""Conditions on symbolic sizes in programs, and their lines in the report."""

from __future__ import annotations

import builtins
import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder_core.ir.size import SizeExpr, are_equal, as_found, least_of
from thunder_core.tracing.sizes import Sizes


def compiled(program: Callable[..., Any], **options: Any) -> Any:
    return thunder.jit(program, **{"dynamic": True, "executors": [], **options})


def misses(program: Any, shapes: list[tuple[int, ...]], eager: Callable[..., Any]) -> list[int]:
    """How often it was compiled after a call with each shape; results are compared."""
    counts = []
    for shape in shapes:
        x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
        actual, expected = program(x), eager(x)
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        else:
            assert actual == expected
            assert actual.__class__ is expected.__class__
        counts.append(thunder.cache_misses(program))
    return counts


def sizes_of(program: Any, entry: int = -1) -> Any:
    return thunder.explain(program).entries[entry].sizes


def test_a_branch_on_a_size_is_two_programs() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 4 else x + 1

    f = compiled(program)
    assert misses(f, [(3, 4), (4, 2), (5, 4), (9, 7), (2, 2)], program) == [1, 1, 2, 2, 2]
    (condition,) = sizes_of(f, 0).conditions
    assert condition.startswith("s0 <= 4, at ")
    assert "x.shape[0] > 4" in condition
    assert "was compiled for s0 <= 4" in thunder.explain(f).entries[1].reason


def test_sizes_zero_and_one_are_compiled_apart() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sum(0) + x.mean()

    f = compiled(program)
    assert misses(f, [(3, 4), (1, 4), (7, 4), (1, 9), (2, 1)], program) == [1, 2, 2, 2, 3]
    assert torch.equal(f(torch.ones(0, 4)).isnan(), torch.ones(4, dtype=torch.bool))
    assert thunder.cache_misses(f) == 4


@pytest.mark.parametrize(
    "use",
    [
        lambda n: list(range(n)),
        lambda n: f"{n} {n:3d} {n!r} {n!s}",
        lambda n: {n: 1},
        lambda n: math.ceil(n / 2) + math.factorial(n),
        lambda n: [0] * n,
        lambda n: (n.to_bytes(2, "big"), divmod(n, 2), n & 3, round(n / 3)),
        lambda n: hash(n),
        lambda n: bytes(n),
    ],
)
@pytest.mark.slow
def test_what_needs_the_number_itself_is_compiled_for_it(use: Callable[[int], Any]) -> None:
    def program(x: torch.Tensor) -> Any:
        return use(x.shape[1])

    f = compiled(program)
    assert misses(f, [(3, 4), (5, 4), (3, 6), (2, 4)], program) == [1, 1, 2, 2]
    (constant,) = sizes_of(f, 0).constants
    assert constant.startswith("s1 = x.shape[1] is 4, at ")
    symbols = [name for name, _ in sizes_of(f, 0).symbols]
    assert symbols[0] == "s0"
    assert "s1" not in symbols


@pytest.mark.parametrize("use", [lambda n: n / 2 > 2.5, lambda n: n > 5.5, lambda n: n == 4.0])
def test_comparisons_with_floats_are_facts(use: Callable[[int], Any]) -> None:
    def program(x: torch.Tensor) -> Any:
        return use(x.shape[1])

    f = compiled(program)
    assert misses(f, [(3, 4), (5, 4), (3, 6), (2, 4), (3, 7)], program) == [1, 1, 2, 2, 2]


def test_numbers_that_are_returned_and_stored_are_ints() -> None:
    class Counter(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[Any, ...]:
            n = x.shape[0]
            self.seen = {"rows": n, "twice": [2 * n]}
            return n, x.shape, n * 3 - 1, -n, n // 2, n % 3, max(n, 2), abs(n), abs(n - 20), x.numel()

    module = Counter()
    eager = copy.deepcopy(module)
    f = thunder.jit(module, dynamic=True, executors=[])
    for n in (3, 8, 12):
        actual, expected = f(torch.ones(n, 4)), eager(torch.ones(n, 4))
        assert actual == expected
        assert [item.__class__ for item in actual] == [item.__class__ for item in expected]
        assert module.seen == eager.seen
        assert module.seen["rows"].__class__ is int
    assert thunder.cache_misses(f) == 1


def test_programs_take_sizes_for_ints() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        assert isinstance(n, int)
        assert not isinstance(n, float | str)
        size = (n, n) if isinstance(n, int) else n
        return torch.ones(size) * x.sum()

    f = compiled(program)
    assert misses(f, [(3, 4), (5, 4)], program)[-1] == 1


def test_equal_sizes_need_not_stay_equal_unless_the_program_needs_it() -> None:
    def alone(x: torch.Tensor) -> torch.Tensor:
        return x.sum(0)[:, None] + x.sum(1)

    def together(x: torch.Tensor) -> torch.Tensor:
        return x + x.T

    f, g = compiled(alone), compiled(together)
    assert misses(f, [(4, 4), (3, 5), (5, 3)], alone) == [1, 1, 1]
    assert misses(g, [(4, 4), (6, 6)], together) == [1, 1]


def test_other_strides_are_another_program() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1) * 2

    f = compiled(program)
    for x in (torch.randn(3, 4), torch.randn(5, 6), torch.randn(4, 3).t().contiguous()):
        torch.testing.assert_close(f(x), program(x), rtol=0, atol=0)
    assert thunder.cache_misses(f) == 1
    for x in (torch.randn(6, 9)[:, :4], torch.randn(4, 7)[:, :5], torch.randn(4, 3).t()):
        torch.testing.assert_close(f(x), program(x), rtol=0, atol=0)


def test_a_miss_that_differs_in_sizes_alone_makes_them_symbols() -> None:
    def program(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
        return torch.cat([x, x * scale]) @ y

    f = compiled(program, dynamic="automatic")
    y = torch.randn(4, 3)
    for number, (rows, scale, expected) in enumerate([(3, 2.0, 1), (5, 2.0, 2), (9, 2.0, 2), (9, 3.0, 3), (2, 3.0, 3)]):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(f(x, y, scale), program(x, y, scale), rtol=0, atol=0)
        assert thunder.cache_misses(f) == expected, number
    assert thunder.explain(f).entries[0].sizes is None
    assert sizes_of(f, 1).symbols == (("s0", "x.shape[0]"),)


def test_sizes_that_are_constants_each_time_are_no_symbols_any_more() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * len(range(x.shape[0])) + x.shape[1]

    f = compiled(program, dynamic="automatic")
    shapes = [(3, 4), (5, 4), (6, 7), (7, 4), (8, 4), (8, 9), (8, 5)]
    assert misses(f, shapes, program) == [1, 2, 3, 4, 5, 5, 5]
    varied = [dict(entry.sizes.symbols) if entry.sizes else None for entry in thunder.explain(f).entries]
    assert varied == [None, {}, {"s1": "x.shape[1]"}, {"s0": "x.shape[1]"}, {"s0": "x.shape[1]"}]


def test_a_divisor_that_becomes_zero_is_another_program() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[1] % (x.shape[0] - 3) == 0 else x

    def guarded(x: torch.Tensor) -> torch.Tensor:
        return program(x) if x.shape[0] != 3 else x + 1

    f = compiled(guarded)
    assert misses(f, [(5, 4), (7, 8), (3, 4), (6, 4)], guarded)[-1] == 3


def test_marks() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    dynamic, static = torch.randn(3, 4), torch.randn(3, 4)
    torch._dynamo.mark_dynamic(dynamic, 0, min=2, max=8)
    torch._dynamo.mark_static(static, 1)
    f = thunder.jit(program, executors=[])
    f(dynamic)
    assert misses(f, [(3, 4), (7, 4), (8, 4), (9, 4), (3, 5)], program) == [1, 1, 1, 2, 3]
    assert sizes_of(f, 0).symbols == (("s0", "x.shape[0]"),)
    g = compiled(program)
    g(static)
    assert misses(g, [(5, 4), (5, 6)], program) == [1, 2]
    h = compiled(program, dynamic=False)
    h(dynamic)
    assert misses(h, [(3, 4), (7, 4)], program) == [1, 2]


def test_what_cannot_be_recorded_with_symbols_takes_constants_and_says_why() -> None:
    namespace: dict[str, Any] = {"type": builtins.type}  # the name cannot lead to another function
    source = "def program(x):\n    return x * 2 if type(x.shape[0]) is int else x\n"
    exec(compile(source, "test_facts.py", "exec"), namespace)
    program = namespace["program"]
    f = compiled(program)
    assert misses(f, [(3, 4), (5, 4), (5, 4)], program) == [1, 2, 2]
    assert "class" in sizes_of(f).reason
    assert "test_facts.py" in sizes_of(f).reason


def test_an_error_of_the_program_is_eagers() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0] + 1, -1)

    def caught(x: torch.Tensor) -> torch.Tensor:
        try:
            return x.view(7, -1)
        except RuntimeError:
            return x * 2

    f, g = compiled(program), compiled(caught)
    for rows in (3, 4):
        with pytest.raises(RuntimeError, match="invalid for input of size"):
            f(torch.ones(rows, 3))
    assert misses(g, [(3, 4), (7, 2), (5, 4)], caught)[-1] >= 2


def test_tensors_that_share_memory_take_constants() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    f = compiled(program)
    for n in (4, 6):
        base, other = torch.arange(float(n)), torch.arange(float(n))
        torch.testing.assert_close(f(base, base[1:]), program(other, other[1:]), rtol=0, atol=0)
        torch.testing.assert_close(f(base, base.clone()), program(other, other.clone()), rtol=0, atol=0)
        torch.testing.assert_close(base, other, rtol=0, atol=0)


def test_sizes_of_traces() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[1], -1)

    f = compiled(program)
    f(torch.ones(3, 4))
    trace = thunder.last_traces(f)[0]
    assert trace.sizes == ("s0", "s1")
    assert 'x: "f32[s0, s1]"' in str(trace)
    assert "torch.reshape(x, (s1, -1))" in str(trace)
    (size, _) = trace.inputs[0].shape
    assert isinstance(size, SizeExpr)
    assert (size.hint, (size * 2).value({"s0": 5, "s1": 2})) == (3, 10)
    with pytest.raises(RuntimeError, match="varies between calls"):
        bool(size)
    assert "s0" not in str(trace.with_constant_sizes())


def test_saved_programs_have_constant_sizes(tmp_path: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[1], -1) * 2

    f = compiled(program)
    x = torch.randn(3, 4)
    f(x)
    thunder.save_trace(f, tmp_path / "program.py")
    loaded = thunder.load_trace(tmp_path / "program.py")
    torch.testing.assert_close(loaded(x)[0], program(x), rtol=0, atol=0)


def test_functions_that_tell_the_class_of_ints_get_ints() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if type(x.shape[0]) is int else x * 3

    compiled = thunder.jit(program, dynamic=True)
    for size in (4, 5):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == 1


def test_what_was_found_out_later_counts_for_all_ops() -> None:
    weight = nn.Parameter(torch.ones(8, 8))

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * 2 + y) @ weight

    f = thunder.jit(program, dynamic=True, executors=[])
    for n in (3, 5):
        x = torch.ones(n, 8, requires_grad=True)
        f(x, torch.ones(n, 8)).sum().backward()
    assert thunder.cache_misses(f) == 1
    line = thunder.last_traces(f)[1].symbols[0]
    assert [str(size) for size in line.output.shape] == ["s0", "8"]
    assert "1 by a hand-written rule" in str(thunder.explain(f).training)  # of the product


def test_what_is_known_of_sizes() -> None:
    sizes = Sizes()
    a, b, c, d = [sizes.new(hint, f"x.shape[{index}]") for index, hint in enumerate((3, 4, 3, 4))]
    assert [least_of(size) for size in (5, a, a * 3, a - 2)] == [5, 2, 6, 0]
    assert are_equal((a * b, 2), (b * a, 2))
    assert not are_equal((a * b,), (c * d,))
    assert not are_equal((a,), (3,))
    assert bool((a * b).symint == (c * d).symint)
    assert are_equal((a * b,), (c * d,))
    assert are_equal((c * d,), (a * b,))
    assert a.symint == 3
    assert as_found(a * b) == b * 3
    assert are_equal((a,), (3,))


def test_the_length_of_a_tensor_is_a_size() -> None:
    def program(x: torch.Tensor) -> Any:
        y = torch.cat([x, x])[1:]
        return y * len(y) if len(x) > len([y, y]) else y

    f = compiled(program)
    assert misses(f, [(3, 4), (5, 4), (3, 6)], program) == [1, 1, 1]


class Layers:
    def __init__(self) -> None:
        self.layers = [torch.nn.Linear(2, 2)]

    def size(self, length: int, index: int) -> int:
        if index >= len(self.layers):
            raise ValueError(f"layer {index} is missing, the last one is a {type(self.layers[-1]).__name__}")
        return length + 1


def _another_object(x: torch.Tensor) -> Any:
    return x[: LAYERS.size(x.shape[0], 0) - 2] * 2


def _names(x: torch.Tensor) -> Any:
    length = x.shape[0] - 1
    return x * len(type(length).__name__), type(x.shape[0]).__qualname__, type(length).__module__


def _key(x: torch.Tensor) -> Any:
    length = x.shape[0]
    return x * {int: 2.0}[type(length)]


def _returned(x: torch.Tensor) -> Any:
    def kind(number: int) -> type:
        return type(number)

    return x * (2 if kind(x.shape[0]) is kind(3) else 3)


LAYERS = Layers()


@pytest.mark.parametrize(("program", "misses"), [(_another_object, 2), (_names, 2), (_key, 2), (_returned, 2)])
def test_classes_of_numbers(program: Callable[[torch.Tensor], Any], misses: int) -> None:
    compiled = thunder.jit(program)
    for length in (3, 4, 5, 6):
        x = torch.rand(length)
        assert str(compiled(x)) == str(program(x))
    assert thunder.cache_misses(compiled) == misses
