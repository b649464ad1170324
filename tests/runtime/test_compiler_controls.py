"""`torch.compiler`'s controls and ranges of the profiler, in compiled programs as in eager PyTorch."""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.compiler import disable, set_stance
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.profiler import ProfilerActivity, profile, record_function

import thunder
from thunder_core.errors import RecompileError, UncacheableWarning, UnsupportedError
from thunder_saving.reader import read_trace

_CALLS = 6
Program = tuple[Callable[..., Any], list[Any]]
_PROGRAMS: dict[str, tuple[Callable[[], Program], bool]] = {}


def _program(create: Callable[[], Program] | None = None, *, compiles: bool = True) -> Any:
    """Register a function that creates a program and the list of its effects; ``compiles``: later calls are hits."""
    if create is None:
        return functools.partial(_program, compiles=compiles)
    _PROGRAMS[create.__name__] = create, compiles
    return create


@_program
def logs_a_value() -> Program:
    seen: list[Any] = []

    @disable
    def log(x: Any) -> None:
        seen.append(round(x.sum().item(), 4))

    def program(x: Any) -> Any:
        y = x.sin()
        log(y)
        return y.cos()

    return program, seen


@_program
def branches_on_values() -> Program:
    @disable(recursive=False, reason="it reads a value")
    def choose(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x - 1

    return lambda x: choose(x.sin()) * 3, []


@_program
def returns_its_argument_in_a_tree() -> Program:
    seen: list[Any] = []

    @disable
    def pack(tree: Any, *, factor: int, **others: Any) -> Any:
        seen.append(tree["a"][0].item())
        return {"same": tree["a"], "new": [others["z"] * factor, None, "text"]}

    def program(x: Any) -> Any:
        result = pack({"a": x.sin()}, factor=3, z=x)
        return result["same"] + result["new"][0]

    return program, seen


@_program
def uses_a_parameter_and_random_numbers() -> Program:
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    @disable
    def scale(x: Any) -> Any:
        return x * weight * torch.rand(3) * (1 if x.sum() > 0 else 2)

    return lambda x: scale(x + torch.rand(3)) * torch.rand(3), []


@_program
def prints_and_nests() -> Program:
    @disable
    def inner(x: Any) -> Any:
        print("inner", round(x.sum().item(), 4))
        return x + 1

    @disable
    def outer(x: Any) -> Any:
        print("outer", round(x.sum().item(), 4))
        return inner(x) * 2

    return lambda x: inner(outer(x.sin())), []


@_program
def method_of_a_module() -> Program:
    seen: list[Any] = []

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = disable(torch.nn.Linear(3, 3))

        @disable
        def log(self, x: Any) -> None:
            seen.append(round(x.sum().item(), 4))

        def forward(self, x: Any) -> Any:
            y = self.layer(x.sin())
            self.log(y.detach())
            return y * 2

    return Module(), seen


@_program
def registers_a_hook_and_uses_modes() -> Program:
    seen: list[Any] = []

    @disable
    def watch(x: Any) -> Any:
        seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
        if x.requires_grad:
            x.register_hook(lambda gradient: seen.append(gradient.sum().item()))
        return x * 2

    def program(x: Any) -> Any:
        with torch.no_grad():
            a = watch(x)
        with torch.autocast("cpu", torch.bfloat16):
            b = watch(x * 1)
        return a * x + b

    return program, seen


@_program
def returns_other_shapes() -> Program:
    seen: list[Any] = []

    @disable
    def positive(x: Any) -> Any:
        seen.append(1)
        return x[x > 0]

    return lambda x: positive(x.sin()) * 3, seen


@_program
def raises_what_the_program_catches() -> Program:
    seen: list[Any] = []

    @disable
    def check(x: Any) -> Any:
        seen.append(1)
        if x.sum() > 0:
            raise ValueError("positive")
        return x * 2

    def program(x: Any) -> Any:
        try:
            return check(x.sin())
        except ValueError:
            return x

    return program, seen


@_program(compiles=False)
def changes_what_the_program_reads() -> Program:
    state = {"scale": 1.0}

    @disable
    def measure(x: Any) -> Any:
        state["scale"] = x.max().item()
        return x * 1

    return lambda x: measure(x.sin()) * state["scale"], []


@_program(compiles=False)
def writes_a_tensor_of_the_program() -> Program:
    buffer = torch.zeros(3)

    @disable
    def count(x: Any) -> None:
        with torch.no_grad():
            buffer.add_(float(x[0].item() > 0))

    def program(x: Any) -> Any:
        before = x * buffer.sum()
        count(x)
        return before + x * buffer.sum()

    return program, []


@_program(compiles=False)
def writes_its_argument() -> Program:
    @disable
    def change(x: Any) -> None:
        with torch.no_grad():
            x.add_(x[0].item())

    def program(x: Any) -> Any:
        y = x.sin()
        change(y)
        return y * 2

    return program, []


@_program(compiles=False)
def reads_what_the_program_changed() -> Program:
    state = {"count": 0}

    @disable
    def scale(x: Any) -> Any:
        return x * state["count"] * (1 if x.sum() > 0 else 2)

    def program(x: Any) -> Any:
        state["count"] += 1
        return scale(x.sin())

    return program, []


@_program(compiles=False)
def prints_before_and_reads_a_value_after() -> Program:
    @disable
    def scale(x: Any) -> Any:
        return x * x[0].item()

    def program(x: Any) -> Any:
        print("before")
        y = scale(x.sin())
        return y * 2 if y.sum() > 0 else y

    return program, []


@_program(compiles=False)
def returns_a_generator_and_marks_functions() -> Program:
    seen: list[Any] = []

    @disable
    def parts(x: Any) -> Any:
        for index in range(3):
            seen.append(index)
            yield x * index

    def program(x: Any) -> Any:
        last = disable(lambda y: y * 1)
        return last(sum(parts(x.sin())))

    return program, seen


def _calls(create: Callable[[], Program], *, grad: bool, compiled: bool) -> tuple[Any, ...]:
    torch.manual_seed(0)
    random.seed(0)
    function, seen = create()
    called, output, results = thunder.jit(function) if compiled else function, io.StringIO(), []
    with contextlib.redirect_stdout(output), warnings.catch_warnings():
        warnings.simplefilter("ignore", UncacheableWarning)
        for number in range(_CALLS):
            x = torch.randn(3, generator=torch.Generator().manual_seed(number)).requires_grad_(grad)
            y = called(x)
            results.append(y.detach().clone())
            if y.requires_grad:
                y.sum().backward()
                results.append(x.grad)
    return results, seen, output.getvalue(), called


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", _PROGRAMS)
@pytest.mark.battery
def test_disabled_functions(name: str, grad: bool) -> None:
    create, compiles = _PROGRAMS[name]
    *expected, _ = _calls(create, grad=grad, compiled=False)
    *found, compiled = _calls(create, grad=grad, compiled=True)
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0)
    assert found[1:] == expected[1:]
    if compiles:
        assert thunder.explain(compiled).cache_hits > 0


@pytest.mark.slow
def test_a_disabled_function_is_one_op_without_guards() -> None:
    factor = 2

    @disable
    def scale(x: Any) -> Any:
        return x.sin() * factor

    compiled = thunder.jit(lambda x: scale(x) + 1, dynamic=True)
    for factor in (2, 3, 4):
        x = torch.randn(factor, 2)
        assert torch.equal(compiled(x), x.sin() * factor + 1)
    assert (compiled.hits, compiled.misses, compiled.fallbacks) == (2, 1, {})
    first, *_ = thunder.last_traces(compiled)[0].symbols
    assert first.symbol.name.endswith("scale")
    assert "sin" not in str(thunder.last_traces(compiled)[-1])


def test_another_disabled_function_in_its_place() -> None:
    functions = {"of": disable(lambda x: x * 2)}
    compiled = thunder.jit(lambda x: functions["of"](x))
    assert compiled(torch.ones(1)).item() == 2
    functions["of"] = disable(lambda x: x * 3)
    assert compiled(torch.ones(1)).item() == 3


def test_a_change_that_comes_late_is_an_error() -> None:
    state = {"scale": 1.0, "late": False}

    @disable
    def scale(x: Any) -> Any:
        if state["late"] and x[0].item():
            state["scale"] = 5.0
        return x * (1 if x.sum() > 0 else 2)

    compiled = thunder.jit(lambda x: scale(x) * state["scale"])
    for _ in range(3):
        compiled(torch.ones(1))
    state["late"] = True
    with pytest.raises(UnsupportedError, match=r"scale.*changes what the program reads.*scale"):
        compiled(torch.ones(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncacheableWarning)
        assert compiled(torch.ones(1)).item() == 5


def test_a_reason_is_told_once() -> None:
    @disable
    def count(x: Any) -> Any:
        return x.sum().item()

    compiled = thunder.jit(lambda x: x * count(x))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for number in range(6):
            assert compiled(torch.full((2,), float(number))).tolist() == [2.0 * number**2] * 2
    (warning,) = told
    assert "count, which torch.compiler.disable marks, returns other objects" in str(warning.message)


def test_stances() -> None:
    compiled, module, x = thunder.jit(lambda x: x.sin()), thunder.jit(torch.nn.Linear(3, 3)), torch.randn(3)
    with set_stance("force_eager"):
        module(x)
        assert torch.equal(compiled(x), x.sin())
    with set_stance("eager_on_recompile"):
        assert torch.equal(compiled(x), x.sin())
    with set_stance("fail_on_recompile"), pytest.raises(RecompileError, match="it is the first call"):
        compiled(x)
    assert not compiled.entries
    compiled(x)
    with set_stance("fail_on_recompile"):
        assert torch.equal(compiled(x), x.sin())
        with pytest.raises(RecompileError, match=r"x: shape \(2,\) instead of \(3,\)"):
            compiled(x[:2])
    with set_stance("eager_on_recompile", skip_guard_eval_unsafe=True):
        assert torch.equal(compiled(x[:2]), x[:2].sin())
        compiled(x)
    assert (compiled.hits, len(compiled.entries)) == (2, 1)
    set_stance("force_eager")
    try:
        compiled(x)
    finally:
        set_stance("default")
    assert compiled.hits == 2
    compiled(x)
    assert compiled.hits == 3
    delayed = thunder.jit(lambda x: x.cos())

    @set_stance("eager_then_compile")
    def twice() -> list[int]:
        return [len(delayed.entries) for _ in range(2) if delayed(x) is not None]

    assert twice() == [0, 1]


def test_a_program_that_sets_a_stance_or_resets_runs_eagerly() -> None:
    def program(x: Any) -> Any:
        with set_stance("force_eager"):
            return x.sin()

    def resetting(x: Any) -> Any:
        torch.compiler.reset()
        return x.sin()

    for function, name in ((program, "set_stance"), (resetting, "reset")):
        compiled = thunder.jit(function)
        with pytest.warns(UncacheableWarning, match=f"calls torch.compiler.{name}"):
            results = [compiled(torch.ones(2)) for _ in range(2)]
        assert all(torch.equal(result, torch.ones(2).sin()) for result in results)


def test_reset() -> None:
    compiled, x = thunder.jit(lambda x: x.sin()), torch.randn(3)
    for _ in range(2):
        compiled(x)
        compiled(x)
        assert (compiled.hits, compiled.misses, len(compiled.entries)) == (1, 1, 1)
        torch.compiler.reset()
        assert (compiled.hits, compiled.misses, len(compiled.entries)) == (0, 0, 0)


@record_function("decorated")
def _decorated(x: Any) -> Any:
    return x.cos()


def _with_ranges(x: Any) -> Any:
    with record_function("outer"):
        with record_function("first"):
            y = x.sin()
        y = y * 2
        with record_function("second", "text"), torch.no_grad():
            z = y.cos()
    for _ in range(3):
        with record_function("layer"):
            y = y.exp().log()
    return _decorated(y + z)


_RANGES = {"outer": 1, "first": 1, "second": 1, "layer": 3, "decorated": 1}


def _events(function: Callable[..., Any], x: torch.Tensor) -> dict[str, int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch 2.11 warns of cycles
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            function(x)
    return collections.Counter(event.name for event in profiled.events() if event.name in _RANGES)


@pytest.mark.parametrize("grad", [False, True])
def test_ranges_of_the_profiler(grad: bool) -> None:
    x = torch.randn(3, requires_grad=grad)
    compiled = thunder.jit(_with_ranges)
    torch.testing.assert_close(compiled(x), _with_ranges(x))
    assert _events(compiled, x) == _RANGES == _events(_with_ranges, x)
    acquired = thunder.last_traces(compiled)[0]
    assert str(read_trace(str(acquired))) == str(acquired)
    assert "record_function('second', 'text')" in str(thunder.last_traces(compiled)[-1])
    if grad:
        assert "record_function" not in str(thunder.last_backward_traces(compiled)[-1])


def test_deep_ranges() -> None:
    def nested(x: Any, depth: int) -> Any:
        if not depth:
            return x.sin()
        with record_function(f"depth {depth}"):
            return nested(x, depth - 1) + 1

    compiled, x = thunder.jit(lambda x: nested(x, 25)), torch.randn(3)
    assert torch.equal(compiled(x), nested(x, 25))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            compiled(x)
    assert len({event.name for event in profiled.events() if event.name.startswith("depth ")}) == 25
    acquired = thunder.last_traces(compiled)[0]
    assert str(read_trace(str(acquired))) == str(acquired)


def test_other_controls() -> None:
    x = torch.randn(3)

    @torch.compiler.nested_compile_region
    def region(x: Any) -> Any:
        return x.sin() * 2

    @torch.compiler.allow_in_graph
    def allowed(x: Any) -> Any:
        return x.cos()

    value = 2

    @torch.compiler.assume_constant_result
    def constant() -> int:
        return value

    def program(x: Any) -> Any:
        if torch.compiler.is_dynamo_compiling() or torch.compiler.is_exporting():
            return x
        torch._dynamo.graph_break()
        return allowed(region(region(x))) * constant() + torch.compiler.is_compiling()

    compiled = thunder.jit(program)
    for value in (2, 3):  # its result is guarded
        assert torch.equal(compiled(x), ((x.sin() * 2).sin() * 2).cos() * value + 1)


class _Outer(torch.nn.Module):
    def __init__(self, function: Any, module: Any) -> None:
        super().__init__()
        self.function, self.module = function, module

    def forward(self, x: Any) -> Any:
        return self.module(self.function(x))


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.slow
def test_other_compilers(called: bool) -> None:
    def function(x):
        return x.sin() * 2

    module, x, other = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()), torch.randn(2, 3), torch.randn(2, 3)
    compiled = [thunder.jit(function), thunder.jit(module), _Outer(thunder.jit(function), thunder.jit(module))]
    if called:
        for each in compiled:
            each(x)
    originals = [function, module, _Outer(function, module)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each, original in zip(compiled, originals, strict=True):
            expected = original(other)
            ways = [torch.compile(each, backend="eager"), torch.jit.trace(each, x)]
            if each is not compiled[2]:  # TorchScript compiles a class once
                ways.append(torch.jit.script(each))
            if isinstance(each, torch.nn.Module):
                ways += [torch.fx.symbolic_trace(each), torch.export.export(each, (x,)).module()]
            for way in ways:
                torch.testing.assert_close(way(other), expected)
    torch.testing.assert_close(torch.fx.symbolic_trace(lambda x: compiled[0](x))(other), function(other))
    with pytest.raises(Exception, match=r"thunder\.original\(m\)"):
        torch.export.export(compiled[1], (x,), strict=True)
    torch.compiler.reset()


@pytest.mark.slow
def test_flex_attention() -> None:
    q, k, v = [torch.randn(1, 2, 32, 16) for _ in range(3)]
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 32, 32, device="cpu")
    bias = torch.randn(2)

    def held(q: Any, k: Any, v: Any) -> Any:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s * bias[h] + (i - j), block_mask=mask)

    def computed(q: Any, k: Any, v: Any) -> Any:
        weight = q.mean((0, 2, 3))
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s * weight[h])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function in (held, computed):
            compiled = thunder.jit(function)
            for _ in range(2):
                torch.testing.assert_close(compiled(q, k, v), function(q, k, v))
                bias = torch.randn(2)
    assert list(compiled.fallbacks) == [next(reason for reason in compiled.fallbacks if "FlexAttention" in reason)]
