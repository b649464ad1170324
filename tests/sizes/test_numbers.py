"""Python ints that vary between calls: results as in eager PyTorch, and how many programs there are."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_frontend.observe.observer import Observer

Program = Callable[..., Any]


class Layer:
    def __init__(self) -> None:
        self.seen = 3


class Slots:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 2


class Counter(torch.nn.Module):
    """Reads and writes ints in attributes, slots, lists, tuples and dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0
        self.layers = [Layer(), Layer()]
        self.slots = Slots()
        self.table = {"positions": [1, 2], "scale": 3}
        self.pair = (5, torch.ones(2))

    def forward(self, x: torch.Tensor) -> Any:
        self.step += 1
        for index, layer in enumerate(self.layers):
            layer.seen += index + 1
            x = x + layer.seen
        self.slots.count = self.slots.count * 2 % 1000 + 2
        self.table["scale"] = self.table["scale"] + self.step
        self.table["positions"][1] += 4
        return x * self.table["positions"][1] - self.step, self.table["scale"], self.slots.count, self.pair[0]


class WithNumber(torch.nn.Module):
    """Has an int that the caller changes between calls."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place, self.number, self.held = place, 0, [0, torch.zeros(1)]
        self.table: dict[str, Any] = {"n": 0, "x": torch.zeros(1)}

    def put(self, number: int) -> None:
        if self.place == "attribute":
            self.number = number
        elif self.place == "item":
            self.held[0] = number
        else:
            self.table["n"] = number

    def forward(self, x: torch.Tensor) -> Any:
        number = {"attribute": lambda: self.number, "item": lambda: self.held[0], "entry": lambda: self.table["n"]}
        n = number[self.place]()
        return x * n, n + 1


POSITION = 0


def _global(x: torch.Tensor) -> Any:
    return x + POSITION, POSITION * 2


def _state(module: Counter) -> Any:
    seen = [layer.seen for layer in module.layers]
    return module.step, seen, module.slots.count, module.table, module.pair[0]


def test_counters_of_objects() -> None:
    eager = Counter()
    compiled = thunder.jit(copy.deepcopy(eager))
    for _ in range(12):
        x = torch.randn(2)
        result, *numbers = compiled(x)
        expected, *others = eager(x)
        assert torch.equal(result, expected)
        assert numbers == others
        assert [type(number) for number in numbers] == [int] * 3
        assert _state(thunder.original(compiled)) == _state(eager)
        assert type(compiled.step) is int
    assert thunder.cache_misses(compiled) <= 4


@pytest.mark.parametrize("place", ["attribute", "item", "entry"])
def test_numbers_that_the_caller_changes(place: str) -> None:
    module = WithNumber(place)
    compiled = thunder.jit(module)
    x = torch.randn(3)
    for number in range(2, 30):
        module.put(number)
        result, after = compiled(x)
        assert torch.equal(result, x * number)
        assert after == number + 1
    assert thunder.cache_misses(compiled) == 2


def test_a_variable_of_the_module_and_one_of_a_closure() -> None:
    global POSITION
    count = 0

    def closure(x: torch.Tensor) -> Any:
        nonlocal count
        count += 1
        return x * count

    of_global, of_closure = thunder.jit(_global), thunder.jit(closure)
    x = torch.randn(3)
    for index in range(2, 12):
        POSITION = index
        result, doubled = of_global(x)
        assert torch.equal(result, x + index)
        assert doubled == 2 * index
        assert torch.equal(of_closure(x), x * (index - 1))
        assert count == index - 1
        assert type(count) is int
    assert thunder.cache_misses(of_global) == 2
    assert thunder.cache_misses(of_closure) <= 3


def _integer_tensor(x: torch.Tensor, n: int) -> Any:
    whole = (x * 4).to(torch.int32)
    return whole * n, whole // 3 + n, (x > 0) * n, torch.full((2,), n), x.half() * n


def _arithmetic(x: torch.Tensor, n: int) -> Any:
    return x + n % 7, n // 3, -n, n * n - 1, abs(n), +n, n // -4, n % -5


def _as_size(x: torch.Tensor, n: int) -> Any:
    return torch.arange(n), x.repeat(n, 1), torch.zeros(n, 2)


def _in_slice(x: torch.Tensor, n: int) -> Any:
    return x[:n].sum(), x[n:].sum(), x.narrow(0, 0, n)


def _branch(x: torch.Tensor, n: int) -> Any:
    return x * n if n > 10 else x - n


def _least(x: torch.Tensor, n: int) -> Any:
    return x + min(n, 8), max(n, 8), n if n else x


def _stored(x: torch.Tensor, n: int) -> Any:
    return {"n": n, "list": [n, n + 1], "pair": (n, x)}, isinstance(n, int), isinstance(n, bool)


def _with_gradient(x: torch.Tensor, n: int) -> Any:
    y = (x.clone().requires_grad_() * n).sin()
    return y.detach(), y.detach() / n


def _constant_form(x: torch.Tensor, n: int) -> Any:
    return (
        x * n,
        torch.tensor(n),
        x[n],
        f"{n} steps",
        list(range(n % 3)),
        int(n),
        float(n),
        math.sqrt(n * n),
        n / 2,
        2**n % 5,
        n**2,
    )


def _bits(x: torch.Tensor, n: int) -> Any:
    rounded = (n + 7) & ~7
    return x * (n & 1), n | 5, n ^ 5, 6 & n, n & 10, n << 2, n >> 1, -9 & n, rounded, n.bit_length(), n.bit_count()


def _powers(x: torch.Tensor, n: int) -> Any:
    padded = torch.nn.functional.pad(x, (0, (1 << (n - 1).bit_length()) - n))
    return (
        padded,
        2**n,
        n**6,
        n**-2,
        100 >> n,
        pow(3, n),
        math.isqrt(n),
        math.gcd(n, 12),
        math.lcm(n, 4),
        math.comb(n, 2),
    )


def _undefined(x: torch.Tensor, n: int) -> Any:
    functions = lambda: 1 << n, lambda: 1 >> n, lambda: 2**n, lambda: math.isqrt(n), lambda: n << 60, lambda: n**-1
    return x, [_outcome(function) for function in functions]


def _created(x: torch.Tensor, n: int) -> Any:
    windows = torch.hann_window(n, periodic=False), torch.kaiser_window(n), torch.bartlett_window(window_length=n)
    row, column = torch.triu_indices(n, n, 1)
    return torch.linspace(0, 1, n), torch.logspace(0, 2, steps=n, dtype=torch.float64), windows, row * column


def _created_in_place(x: torch.Tensor, n: int) -> Any:
    out = torch.empty(0)
    torch.linspace(0, 1, n, out=out)
    return x, out.shape[0], out


def _triangles(x: torch.Tensor, n: int) -> Any:
    below = [torch.tril_indices(n, columns, offset) for columns in (3, 5) for offset in (-4, -1, 0, 2)]
    return below, [torch.triu_indices(4, n, offset=offset) for offset in (-5, 0, 1)]


CASES: dict[str, tuple[Program, list[int], int | None]] = {
    "bits": (_bits, [3, 9, *range(4, 20), -3, 0, 1, -8], 8),
    "powers": (_powers, [3, *range(4, 20)], 6),
    "undefined": (_undefined, [3, 5, 70, -1, 0, 1000], None),
    "created": (_created, [3, 9, *range(4, 20), 1, 0], 4),
    "created in place": (_created_in_place, [3, 9, 4, 1, 0, 5], None),
    "triangles": (_triangles, [3, 9, *range(4, 20), 1, 0, 2], 10),
    "integer tensor": (_integer_tensor, [*range(3, 20), -3, 0, 1], 4),
    "arithmetic": (_arithmetic, [*range(2, 20), 0, -1, -7, 1], 4),
    "size": (_as_size, [5, 8, 6, 1, 0, 9], None),
    "slice": (_in_slice, [1, 4, 5, 6, 7, 3, 20], None),
    "branch": (_branch, [3, 4, 12, 13, 5, 20, 30, 9], 3),
    "least": (_least, [3, 5, 9, 20, 4, 0], None),
    "stored": (_stored, [3, 5, 9, 20, 4], 2),
    "gradient": (_with_gradient, [3, 5, 9, 20, 4], 2),
    "constants": (_constant_form, [3, 5, 9, 3, 5], None),
    "beyond int64": (_arithmetic, [3, 5, 2**61], 2),
}


def _outcome(program: Program, *args: Any) -> Any:
    try:
        return program(*args)
    except Exception as error:
        return type(error)


def _assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        _assert_same(list(one.items()), list(other.items()))
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            _assert_same(left, right)
    else:
        assert one == other


@pytest.mark.parametrize("dynamic", ["automatic", False, True], ids=str)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.battery
def test_arguments(case: str, dynamic: Any) -> None:
    program, numbers, most = CASES[case]
    compiled = thunder.jit(program, dynamic=dynamic, recompile_warning=100, recompile_limit=100)
    x = torch.randn(7, generator=torch.Generator().manual_seed(0))
    for number in [*numbers, *numbers]:
        _assert_same(_outcome(compiled, x, number), _outcome(program, x, number))
    if dynamic is False:
        assert thunder.cache_misses(compiled) >= len(set(numbers))
    elif most is not None:
        assert thunder.cache_misses(compiled) <= most


@pytest.mark.filterwarnings("ignore::thunder_core.errors.RecompileWarning")
def test_other_classes_are_constants() -> None:
    """The entry of an int does not serve an equal bool, float, NumPy scalar or instance of a subclass of int."""

    class Kind(int):
        pass

    def program(x: torch.Tensor, n: Any) -> Any:
        return x * n, type(n).__name__

    compiled = thunder.jit(program, recompile_warning=100)
    x = torch.arange(3)
    for number in (1, 2, True, False, 3, 2.0, numpy.int64(3), Kind(4), 5, numpy.float32(2), -0.0, 0.0, math.nan):
        result, name = compiled(x, number)
        expected, other = program(x, number)
        assert name == other
        assert result.dtype == expected.dtype
        torch.testing.assert_close(result, expected, equal_nan=True, rtol=0, atol=0)


def test_numbers_beyond_those_of_pytorch() -> None:
    compiled = thunder.jit(lambda x, n: (x, n + 1))
    x = torch.ones(2)
    for number in (2**70, 2**80, 3, 5, 2**90, -(2**64)):
        assert compiled(x, number)[1] == number + 1


def _condition(x: torch.Tensor, n: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda a: (a * n).sum(), lambda a: (a - n).sum(), (x,))


def _checkpoint(x: torch.Tensor, n: Any) -> Any:
    return checkpoint(lambda a: (a * n).sin().sum(), x, use_reentrant=False)


def _mapped(x: torch.Tensor, n: Any) -> Any:
    return torch.func.vmap(lambda row: row * n)(x[None]).sum()


def _hook(x: torch.Tensor, n: Any) -> Any:
    y = x * 2
    y.register_hook(lambda gradient: gradient * n)
    return y.sum()


def _read(x: torch.Tensor, n: Any) -> Any:
    return (x * n).sum() if x.sum() > 0 else (x * x.sum().item() - n).sum()


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, n: Any) -> torch.Tensor:
        ctx.n = n
        return x * n

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * ctx.n * 2, None


def _function(x: torch.Tensor, n: Any) -> Any:
    return _Scale.apply(x, n).sum()


INTS, FRACTIONS = (3, 4, 5, 6), (0.25, 0.5, 0.75, 2.0)
PARTS = [
    (_condition, INTS),  # PyTorch 2.15's own torch.cond refuses floats that vary
    *[(part, numbers) for part in (_checkpoint, _mapped, _hook, _read, _function) for numbers in (INTS, FRACTIONS)],
]


@pytest.mark.parametrize(("program", "numbers"), PARTS)
@pytest.mark.slow
def test_where_a_part_of_the_compiler_takes_constants(program: Program, numbers: tuple[Any, ...]) -> None:
    compiled = thunder.jit(program)
    for number in (*numbers, *numbers):
        for start in (-1.0, -3.0):
            found = []
            for function in (compiled, program):
                x = torch.linspace(start, 2, 5).requires_grad_()
                result = function(x, number)
                result.backward()
                found.append((result.detach(), x.grad))
            torch.testing.assert_close(*found)


def test_gradients() -> None:
    def program(x: torch.Tensor, n: int) -> torch.Tensor:
        return ((x * n).sin() * (x + n)).sum()

    compiled = thunder.jit(program)
    for number in range(2, 9):
        gradients = []
        for function in (compiled, program):
            x = torch.arange(4.0, requires_grad=True)
            function(x, number).backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)
    assert thunder.cache_misses(compiled) == 2


def test_the_report_says_what_varies_and_what_does_not() -> None:
    def program(x: torch.Tensor, n: int, k: int) -> torch.Tensor:
        return x * n + sum(range(k))

    compiled = thunder.jit(program)
    for number in (3, 4):
        compiled(torch.ones(2), number, number + 3)
    sizes = thunder.explain(compiled).entries[-1].sizes
    assert sizes is not None
    assert sizes.symbols == (("s0", "n"),)
    (constant,) = sizes.constants
    assert constant.startswith("s1 = k is 7, at ")


def test_a_program_that_raises_leaves_the_numbers_as_they_were() -> None:
    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = 2

        def forward(self, x: torch.Tensor, limit: int) -> torch.Tensor:
            self.step += 1
            if self.step > limit:
                raise ValueError("too many steps")
            return x * self.step

    module = Module()
    compiled = thunder.jit(module)
    for expected in range(3, 9):
        assert torch.equal(compiled(torch.ones(2), 8), torch.full((2,), float(expected)))
        assert type(module.step) is int
    with pytest.raises(ValueError, match="too many steps"):
        compiled(torch.ones(2), 8)
    assert module.step == 9
    assert type(module.step) is int


def test_views_of_other_strides() -> None:
    """Slices of longer and longer buffers, as a cache that keeps the last tokens has them."""

    def program(x: torch.Tensor) -> Any:
        return x * 2, x.sum(1)

    compiled = thunder.jit(program)
    for length in range(5, 15):
        whole = torch.randn(2, length, 4)
        part = whole[:, -3:]
        for found, expected in zip(compiled(part), program(part), strict=True):
            assert torch.equal(found, expected)
            assert found.stride() == expected.stride()
    assert thunder.cache_misses(compiled) == 2


@pytest.mark.parametrize("dynamic", ["automatic", False, True], ids=str)
def test_whether_a_tensor_is_a_view(dynamic: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x._base is not None else x * 3

    compiled = thunder.jit(program, dynamic=dynamic)
    x, longer = torch.randn(5, 7), torch.randn(6, 7)
    for value in (x, longer[1:], x, longer[2:], longer[:, 2:]):
        assert torch.equal(compiled(value), program(value))


def test_writes_to_a_view_whose_sizes_vary() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + 1

    compiled = thunder.jit(program)
    for length in range(4, 10):
        whole = torch.randn(length, 5)
        other = whole.clone()
        assert torch.equal(compiled(whole[1:, 1:]), program(other[1:, 1:]))
        assert torch.equal(whole, other)


class Schedule(torch.nn.Module):
    """Computes with floats in attributes and dictionaries, and changes them."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = 0.5
        self.options = {"temperature": 1.0, "x": torch.ones(2)}
        self.weight = torch.nn.Parameter(torch.arange(1.0, 4.0))

    def forward(self, x: torch.Tensor, scale: float) -> Any:
        self.rate = self.rate * 0.9
        y = (x * self.weight * self.rate).sin() / self.options["temperature"]
        return y * scale, {"rate": self.rate, "scale": scale, "sum": scale + self.rate}


def test_floats_of_objects_and_their_gradients() -> None:
    eager = Schedule()
    compiled = thunder.jit(copy.deepcopy(eager))
    original = thunder.original(compiled)
    for index in range(10):
        x = torch.randn(3)
        results = []
        for module in (compiled, eager):
            module.options["temperature"] += 0.25
            module.weight.grad = None
            y, numbers = module(x, 0.1 * index)
            y.sum().backward()
            results.append((y.detach(), numbers, module.weight.grad, module.rate, module.options["temperature"]))
        _assert_same(*results)
        assert type(original.rate) is float
    assert thunder.cache_misses(compiled) <= 2


def _elementwise(x: torch.Tensor, n: float) -> Any:
    whole = (x * 4).to(torch.int32)
    return x * n, x + n, n - x, x / n, whole * n, x.half() * n, x.clamp(max=n), x.double() ** n


def _number(x: torch.Tensor, n: float) -> Any:
    return x, n * 2 - 1, -n, +n, abs(n), n + 3, [n, {"n": n}]


def _compared(x: torch.Tensor, n: float) -> Any:
    return (x * n if n > 0.5 else x - n), n == n, bool(n), not n


def _float_constants(x: torch.Tensor, n: float) -> Any:
    return x * math.cos(n), f"{n}", int(n), n // 2, 2.0**n, round(n, 2), torch.full((2,), n), torch.tensor(n)


def _unused(x: torch.Tensor, n: float) -> Any:
    return x + 1


FLOATS: dict[str, tuple[Program, list[float], int | None]] = {
    "elementwise": (_elementwise, [0.5, 0.25, 3.0, 1e-30, -2.0, 1e30, -0.0, 0.0, math.inf, -math.inf, math.nan], 2),
    "number": (_number, [0.5, 0.25, 3.0, 1e-300, -2.0, 1e300, -0.0, 0.0, math.inf, -math.inf], 2),
    "compared": (_compared, [0.5, 0.25, 3.0, 0.0, -0.0, 0.75, 0.1], None),
    "constants": (_float_constants, [0.5, 0.25, 3.0, 0.1], None),
    "unused": (_unused, [0.5, 0.25, 3.0, 0.1], 2),
}


def _assert_same_floats(one: Any, other: Any) -> None:
    """As `_assert_same`, with signs of zeros, and NaN equal to itself."""
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(one.signbit(), other.signbit())
    elif isinstance(one, list | tuple):
        for left, right in zip(one, other, strict=True):
            _assert_same_floats(left, right)
    else:
        assert repr(one) == repr(other)
        assert type(one) is type(other)


@pytest.mark.parametrize("dynamic", ["automatic", False, True], ids=str)
@pytest.mark.parametrize("case", FLOATS)
@pytest.mark.slow
def test_floats(case: str, dynamic: Any) -> None:
    program, numbers, most = FLOATS[case]
    compiled = thunder.jit(program, dynamic=dynamic, recompile_warning=100, recompile_limit=100)
    x = torch.tensor([-1.5, 0.0, 0.25, 7.0])
    for number in [*numbers, *numbers]:
        _assert_same_floats(compiled(x, number), program(x, number))
    if dynamic != "automatic":
        return
    if most is not None:
        assert thunder.cache_misses(compiled) <= most


def test_a_float_that_is_needed_itself_is_reported() -> None:
    def program(x: torch.Tensor, rate: float, scale: float) -> torch.Tensor:
        return x * rate if len(str(scale)) > 1 else x - rate

    compiled = thunder.jit(program)
    for index in range(3):
        x = torch.randn(2)
        assert torch.equal(compiled(x, 0.1 * index, 2.0 + index), program(x, 0.1 * index, 2.0 + index))
    sizes = thunder.explain(compiled).entries[-1].sizes
    assert sizes is not None
    assert sizes.floats == ("rate",)
    (constant,) = sizes.constants
    assert constant.startswith("scale, at ")


def _integers(x: torch.Tensor, n: float) -> Any:
    return x * math.floor(n * 2), math.ceil(n) + 1, round(n), math.trunc(-n), torch.zeros(round(n) + 1).sum()


def _functions(x: torch.Tensor, n: float) -> Any:
    return x * round(n, 2), divmod(n, 0.25), math.fsum([n, 0.1, 0.2]), math.prod([n, 2.0]), sum([n, 1])


def _predicates(x: torch.Tensor, n: float) -> Any:
    return x * n if n.is_integer() else x - n, math.isclose(n, 0.75, abs_tol=0.1), math.isclose(n, 2)


def _of_numpy(x: torch.Tensor, n: float) -> Any:
    y = 2 / (1 + numpy.exp(-10 * n)) - 1
    root = numpy.sqrt(n)
    return x * y, y, root * 0.5, numpy.power(n, 2.0) > 0.5, round(numpy.log1p(n), 3), math.floor(root * 3)


def _integer_only(x: torch.Tensor, n: float) -> Any:
    return x * int(n), list(range(int(n)))


COMPUTED: dict[str, tuple[Program, int]] = {
    "integers": (_integers, 8),
    "functions": (_functions, 2),
    "predicates": (_predicates, 6),
    "numpy": (_of_numpy, 8),
    "integer only": (_integer_only, 6),
}


@pytest.mark.battery
@pytest.mark.parametrize("source", ["argument", "tensor", "size"])
@pytest.mark.parametrize("case", COMPUTED)
def test_what_python_computes_from_floats(case: str, source: str) -> None:
    program, most = COMPUTED[case]

    def called(x: torch.Tensor, n: Any) -> Any:
        if source == "tensor":
            n = n.item()
        return program(x[0], x.shape[0] / 8 if source == "size" else n)

    compiled = thunder.jit(called, recompile_warning=100)
    for index in range(2, 34):
        x, n = torch.arange(6.0).expand(index, 6).contiguous(), index / 8
        value = torch.tensor(n, dtype=torch.float64) if source == "tensor" else n
        if source == "size":
            value = 0
        _assert_same(compiled(x, value), called(x, value))
    assert thunder.cache_misses(compiled) <= most + 3


def test_ints_of_sizes_and_numbers() -> None:
    def program(x: torch.Tensor, ratio: float) -> Any:
        kept = math.ceil(x.shape[0] * ratio)
        return x[:kept].sum(0) / kept, torch.full((kept, 2), ratio), x[: math.ceil(x.shape[0] / 2)], kept

    compiled = thunder.jit(program)
    for size in range(4, 40):
        x = torch.randn(size, 3)
        _assert_same(compiled(x, 1 - size / 80), program(x, 1 - size / 80))
    assert thunder.cache_misses(compiled) <= 3
    with pytest.raises(ValueError, match="cannot convert float NaN to integer"):
        compiled(torch.randn(5, 3), math.nan)


def test_learning_rate_of_a_hundred_steps() -> None:
    def step(weight: torch.Tensor, gradient: torch.Tensor, rate: float, count: int) -> torch.Tensor:
        return weight - rate * gradient / count

    compiled = thunder.jit(step)
    weight, gradient = torch.randn(3), torch.randn(3)
    for count in range(2, 102):
        assert torch.equal(compiled(weight, gradient, 0.1 / count, count), step(weight, gradient, 0.1 / count, count))
    assert thunder.cache_misses(compiled) == 2


def test_a_float_and_a_size_beside_each_other() -> None:
    def program(x: torch.Tensor, n: float) -> Any:
        return x * n * x.shape[0], n * x.shape[0], x.shape[0] + n

    compiled = thunder.jit(program, recompile_warning=100)
    for size in (3, 4, 5, 6):
        x = torch.randn(size)
        _assert_same(compiled(x, size / 8), program(x, size / 8))


def test_a_float_that_leaves_the_program_elsewhere_is_an_error() -> None:
    held: list[Any] = []
    keep = type("Keep", (), {"__slots__": ("add",)})()
    keep.add = held.append

    def program(x: torch.Tensor, n: float) -> torch.Tensor:
        keep.add(n)
        return x * n

    compiled = thunder.jit(program)
    for number in (0.5, 0.25, 0.125):
        try:
            assert torch.equal(compiled(torch.ones(2), number), torch.full((2,), number))
        except thunder.LeakedTensorError:
            held.clear()
    assert all(type(number) is float for number in held)


def test_numbers_of_tuples_that_are_passed_twice_and_of_defaults_are_constants() -> None:
    x = torch.randn(3)

    def with_default(x: torch.Tensor, n: int = 2, *, rate: float = 0.5) -> Any:
        return x * n + rate, n, rate

    compiled = thunder.jit(with_default)
    of_pair = thunder.jit(lambda pair, other: (pair[1] * pair[0], other[0] + 1))
    of_nested = thunder.jit(lambda nested: nested["a"][1][0] * nested["x"])
    for n in range(2, 8):
        with_default.__defaults__ = (n,)
        with_default.__kwdefaults__ = {"rate": n / 8}
        _assert_same(compiled(x), with_default(x))
        pair = (n, x)
        _assert_same(of_pair(pair, pair), (x * n, n + 1))
        _assert_same(of_nested({"a": [0, [n, x]], "x": x}), x * n)
    assert thunder.cache_misses(of_pair) == 6  # the program may compare a tuple that it gets twice
    assert thunder.cache_misses(of_nested) == 2
    assert with_default.__defaults__ == (7,)
    assert type(with_default.__defaults__[0]) is int


class Bounds(NamedTuple):
    low: float
    count: int


def _unpacked(x: torch.Tensor, pair: Any) -> Any:
    low, count = pair
    return x * low + count, [value * 2 for value in pair], (*pair, 1), pair[::-1], sum(pair), len(pair)


def _returned(x: torch.Tensor, pair: Any) -> Any:
    return x * pair[0], pair, {"pair": pair}


def _named(x: torch.Tensor, pair: Any) -> Any:
    return x * pair.low, pair._replace(low=1.0), pair._asdict(), type(pair).__name__


def _nested(x: torch.Tensor, pair: Any) -> Any:
    return x * pair[0][0] + pair[1]["b"][1], pair[0]


def _beside_tensor(x: torch.Tensor, pair: Any) -> Any:
    return x * pair[0] * pair[1], pair[0]


def _equal(x: torch.Tensor, pair: Any) -> Any:
    return x if pair == (0.75, 6) or 9 in pair else x * pair[1]


TUPLES: dict[str, tuple[Program, Callable[[float, int], Any], int]] = {
    "unpacked": (_unpacked, lambda low, count: (low, count), 2),
    "returned": (_returned, lambda low, count: (low, count), 2),
    "named": (_named, Bounds, 2),
    "nested": (_nested, lambda low, count: ((low, 2), {"b": (1, count)}), 2),
    "beside a tensor": (_beside_tensor, lambda low, count: (low, torch.full((3,), 2.0)), 2),
    "equal": (_equal, lambda low, count: (low, count), 5),
    "shape": (lambda x, pair: torch.zeros(pair), lambda low, count: (count, 2), 2),
    "size": (lambda x, pair: torch.ones(pair) * pair[0], lambda low, count: torch.Size([count, 2]), 2),
    "other length": (lambda x, pair: x * sum(pair), lambda low, count: (low,) * (count % 2 + 1), 4),
}


@pytest.mark.parametrize("case", TUPLES)
def test_numbers_in_tuples(case: str) -> None:
    program, make, most = TUPLES[case]
    compiled, x = thunder.jit(program), torch.arange(3.0)
    for count in range(3, 12):
        pair = make(count / 8, count)
        _assert_same(compiled(x, pair), program(x, pair))
    assert thunder.cache_misses(compiled) <= most


def test_numbers_of_tuples_in_attributes() -> None:
    class Optimizer:
        def __init__(self) -> None:
            self.group: dict[str, Any] = {"betas": (0.5, 2)}
            self.last: Any = None

        def __call__(self, x: torch.Tensor) -> Any:
            low, count = self.last = self.group["betas"]
            self.group["betas"] = (low * 0.5, *self.group["betas"][1:])
            return x * low + count, self.group["betas"]

    eager, optimizer = Optimizer(), Optimizer()
    compiled, x = thunder.jit(lambda x: optimizer(x)), torch.arange(3.0)
    for _ in range(8):
        _assert_same(compiled(x), eager(x))
        assert (optimizer.last, optimizer.group) == (eager.last, eager.group)
        assert [type(value) for value in optimizer.last] == [float, int]
    assert thunder.cache_misses(compiled) <= 3


def test_tuples_that_are_compared_by_identity() -> None:
    def program(x: torch.Tensor, one: Any, other: Any) -> Any:
        return x * one[0] if one is other else x - other[1]

    compiled, x = thunder.jit(program, recompile_warning=100), torch.arange(3.0)
    for count in range(2, 20):
        one = (count / 8, count)
        other = one if count % 3 else (count / 8, count)
        _assert_same(compiled(x, one, other), program(x, one, other))


def test_numbers_of_shared_objects_and_threads() -> None:
    module = Counter()
    compiled = thunder.jit(module)
    errors: list[BaseException] = []

    def call() -> None:
        try:
            for _ in range(10):
                compiled(torch.randn(2))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert {type(module.step), type(module.slots.count), type(module.table["scale"])} == {int}
    assert {type(layer.seen) for layer in module.layers} == {int}


def test_another_thread_stores_a_number_over_its_symbol(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Counter()
    compiled, x = thunder.jit(module), torch.randn(3)
    stored = iter([9])
    enter = Observer.__enter__

    def store_first(observer: Observer) -> Observer:
        module.layers[0].seen = next(
            stored, module.layers[0].seen
        )  # as another thread may, once the symbol is in its place
        return enter(observer)

    compiled(x)
    module.layers[0].seen = 5
    monkeypatch.setattr(Observer, "__enter__", store_first)
    compiled(x)
    assert next(stored, None) is None
    for number in (8, 12, 31):
        module.layers[0].seen = number
        expected = copy.deepcopy(module)(x)
        _assert_same(compiled(x), expected)
    assert thunder.cache_misses(compiled) == 2


class Scheduled(torch.nn.Module):
    """Has an int and a float that its caller changes, and that another thread reads."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.rate = 2, 0.5

    def forward(self, x: torch.Tensor) -> Any:
        for _ in range(20):
            x = x * self.rate + self.step
        return x, self.step + 1


def test_a_thread_reads_numbers_while_a_program_is_recorded_with_them() -> None:
    module, stop = Scheduled(), threading.Event()
    compiled, kinds = thunder.jit(module), set()
    errors: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                step, rate = module.step, module.rate
                kinds.update([type(step + 1), type(-step), type(step * 2.0), type(step > 3), type(abs(step))])
                kinds.update([type(rate + 1), type(2 * rate), type(rate < 0.25), type(f"{rate}{step}"), type(step / 2)])
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for step in range(2, 8):
            module.step, module.rate = step, 1 / step
            x = torch.randn(3)
            _assert_same(compiled(x), module(x))
    finally:
        stop.set()
        thread.join()
    assert not errors
    assert kinds == {int, float, bool, str}
    assert thunder.cache_misses(compiled) == 2


def test_numpy_arrays_of_numbers() -> None:
    def program(x: torch.Tensor, n: int) -> Any:
        sizes = x.shape[0], n
        return [numpy.array(size).dtype for size in sizes], numpy.array([*sizes, 2]), numpy.full(2, n), x * n

    compiled = thunder.jit(program)
    for size, n in ((3, 4), (5, 6), (7, 8)):
        expected, result = program(torch.ones(size, 2), n), compiled(torch.ones(size, 2), n)
        assert result[0] == expected[0]
        for one, other in zip(result[1:3], expected[1:3], strict=True):
            numpy.testing.assert_array_equal(one, other, strict=True)
        assert torch.equal(result[3], expected[3])


@pytest.mark.parametrize("number", [int, float])
def test_a_number_that_is_overwritten_with_what_it_was(number: type) -> None:
    class State:
        def __init__(self) -> None:
            self.rate = number(2)
            self.table = {"a": number(2)}
            self.items = [number(2)]

    three = number(3)

    def program(state: State, x: torch.Tensor) -> torch.Tensor:
        result = x * state.rate + state.table["a"] + state.items[0]
        state.rate = state.table["a"] = state.items[0] = three
        return result

    compiled, ours, theirs = thunder.jit(program), State(), State()
    for value in (2, 2, 3, 3, 4, 5, 3, 6):
        for state in (ours, theirs):
            state.rate = state.table["a"] = state.items[0] = three if value == 3 else number(value)
        x = torch.rand(3)
        torch.testing.assert_close(compiled(ours, x), program(theirs, x))
        assert vars(ours) == vars(theirs)


def test_divisors_that_are_not_positive() -> None:
    def program(x: torch.Tensor, k: int) -> Any:
        n = x.shape[0]
        return x + 1, n // 2 // -2, (n // 2) // k, n % k, 7 // k, -n // k, (n * k) // k, math.log(n, 2), math.log(8, n)

    compiled = thunder.jit(program)
    for n, k in ((4, -1), (5, -2), (7, -3), (9, 2), (11, 3), (12, -4), (5, 0), (7, 0)):
        x = torch.ones(n)
        if k == 0:
            with pytest.raises(ZeroDivisionError):
                compiled(x, k)
        else:
            _assert_same(compiled(x, k), program(x, k))


def test_a_write_by_a_number_that_varies_is_the_operation_that_returns_a_new_value() -> None:
    """Executors and derivatives know that operation."""

    def program(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x.sin().mul_(factor)

    compiled = thunder.jit(program)
    x = torch.ones(3)
    for factor in (0.5, 0.25, 0.125):
        assert torch.equal(compiled(x, factor), program(x, factor))
    assert thunder.cache_misses(compiled) == 2
    functional = thunder.last_traces(compiled)[1]
    assert [line.symbol.name for line in functional.symbols] == ["torch.sin", "torch.mul"]
