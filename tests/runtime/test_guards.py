"""Whatever a program reads is guarded: a change of it recompiles and gives what eager gives; anything else hits."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import thunder
from thunder_core.errors import RecompileWarning, UncacheableError, UncacheableWarning, UnsupportedError


def t(*shape: int, **options: Any) -> torch.Tensor:
    return torch.randn(shape or (3, 4), **options)


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


@dataclasses.dataclass
class Options:
    scale: float = 2.0
    flags: tuple[bool, ...] = (True,)


class Box:
    """A plain nested object."""

    kind = 1

    def __init__(self) -> None:
        self.value = 2.0
        self.items = [1, 2]
        self.table = {"a": 3}
        self.inner = SimpleNamespace(depth=1)
        self.options = Options()
        self.mode = Mode.FAST

    @property
    def twice(self) -> float:
        return self.value * 2


class Reads(nn.Module):
    """Reads plain Python values of many kinds from itself."""

    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.box = Box()
        self.linear = nn.Linear(4, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4)])
        self.number = 3
        self.name = "name"
        self.names = ["a", "b"]
        self.optional: Any = None
        self.function: Callable[[torch.Tensor], torch.Tensor] = torch.relu
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("buffer", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        box = self.box
        x = self.linear(x) * box.value * box.items[0] * box.table["a"] * box.inner.depth * box.options.scale
        x = x * box.twice * self.number * len(self.name) * len(self.names) * self.factor * box.kind
        x = x * (2 if box.mode is Mode.FAST else 5) * (3 if box.options.flags[0] else 7) + self.buffer
        for layer in self.layers:
            x = layer(x)
        if self.optional is not None:
            x = x + self.optional
        if "b" in box.table:
            x = x * box.table["b"]
        return self.dropout(self.function(x)) if self.training else self.function(x)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda m: setattr(m, "number", 4),
    "string": lambda m: setattr(m, "name", "other"),
    "list": lambda m: m.names.append("c"),
    "nested attribute": lambda m: setattr(m.box, "value", 3.0),
    "nested list": lambda m: m.box.items.__setitem__(0, 5),
    "nested dict": lambda m: m.box.table.__setitem__("a", 5),
    "new dict key": lambda m: m.box.table.__setitem__("b", 5),
    "namespace": lambda m: setattr(m.box.inner, "depth", 5),
    "dataclass": lambda m: setattr(m.box.options, "scale", 5.0),
    "dataclass tuple": lambda m: setattr(m.box.options, "flags", (False,)),
    "enum": lambda m: setattr(m.box, "mode", Mode.SLOW),
    "replaced object": lambda m: setattr(m, "box", _changed_box()),
    "none to number": lambda m: setattr(m, "optional", 1.0),
    "none to tensor": lambda m: setattr(m, "optional", torch.ones(4)),
    "function": lambda m: setattr(m, "function", torch.tanh),
    "instance shadows class attribute": lambda m: setattr(m, "factor", 2.0),
    "training": lambda m: m.train(),
    "submodule training": lambda m: (m.train(), m.dropout.eval()),
    "replaced parameter": lambda m: setattr(m.linear, "weight", nn.Parameter(torch.zeros(4, 4))),
    "retyped parameters": lambda m: m.double(),
    "parameter without gradient": lambda m: m.linear.weight.requires_grad_(False),
    "bias removed": lambda m: setattr(m.linear, "bias", None),
    "replaced module": lambda m: setattr(m, "linear", nn.Sequential(nn.Linear(4, 4), nn.Tanh())),
    "appended module": lambda m: m.layers.append(nn.Linear(4, 4)),
    "deleted module": lambda m: m.layers.__delitem__(0),
    "forward hook": lambda m: m.linear.register_forward_hook(lambda _m, _i, o: o * 2),
    "forward pre-hook": lambda m: m.linear.register_forward_pre_hook(lambda _m, i: (i[0] + 1,)),
    "hook on root": lambda m: m.register_forward_hook(lambda _m, _i, o: o * 2),
    "parametrization": lambda m: parametrize.register_parametrization(m.linear, "weight", nn.Tanh()),
    "replaced buffer": lambda m: setattr(m, "buffer", torch.zeros(4)),
    "buffer of other shape": lambda m: setattr(m, "buffer", torch.zeros(1)),
    "buffer values": lambda m: m.buffer.add_(5),
    "parameter values": lambda m: m.linear.weight.data.add_(5),
    "method of instance": lambda m: setattr(m.linear, "forward", lambda x: x * 9),
    "retyped module": lambda m: setattr(m.layers[0], "__class__", Negated),
}


class Negated(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -super().forward(x)


def _changed_box() -> Box:
    box = Box()
    box.value = 9.0
    return box


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.battery
def test_change_of_module_is_seen(change: str, jit: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    eager = Reads().eval()
    twin = copy.deepcopy(eager)
    compiled = jit(twin)
    x = t()
    assert torch.equal(compiled(x), eager(x))
    for model in (eager, twin):
        torch.manual_seed(1)
        CHANGES[change](model)
    x = x.to(eager.linear.weight.dtype) if hasattr(eager.linear, "weight") else x
    results = []
    for model in (eager, compiled, compiled):
        torch.manual_seed(2)
        results.append(model(x))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("change", ["replaced parameter", "replaced buffer", "buffer values", "parameter values"])
def test_change_of_values_does_not_recompile(change: str) -> None:
    model = Reads().eval()
    compiled = thunder.jit(model)
    compiled(t())
    CHANGES[change](model)
    compiled(t())
    assert thunder.cache_misses(compiled) == 1


UNRELATED: dict[str, Callable[[Any], Any]] = {
    "attribute of the root": lambda m: setattr(m, "unread", 2),
    "attribute of a plain object": lambda m: setattr(m.box, "unread", 3),
    "entry of a dict": lambda m: m.box.table.__setitem__("unread", 4),
    "gradient": lambda m: setattr(m.linear.weight, "grad", torch.zeros(4, 4)),
}


@pytest.mark.parametrize("change", UNRELATED)
def test_unrelated_change_does_not_recompile(change: str) -> None:
    model = Reads().eval()
    model.unread = 1  # type: ignore[assignment]
    compiled = thunder.jit(model)
    compiled(t())
    UNRELATED[change](model)
    compiled(t())
    assert thunder.cache_misses(compiled) == 1


INPUTS: dict[str, Callable[[], torch.Tensor]] = {
    "shape": lambda: t(4, 4),
    "rank": lambda: t(4),
    "dtype": lambda: t(3, 4, dtype=torch.float64),
    "requires_grad": lambda: t(3, 4, requires_grad=True),
    "strides": lambda: t(4, 3).t(),
    "expanded": lambda: t(1, 4).expand(3, 4),
    "sliced": lambda: t(3, 8)[:, ::2],
    "parameter": lambda: nn.Parameter(t()),
    "number": lambda: 3.0,  # type: ignore[dict-item,return-value]
    "meta": lambda: t(3, 4, device="meta"),
    "sparse": lambda: t().to_sparse(),
    "conjugate": lambda: torch.conj(t(3, 4, dtype=torch.complex64)),
    "negative": lambda: torch.randn(3, 4, dtype=torch.complex64).conj().imag,
}


@pytest.mark.parametrize("kind", INPUTS)
def test_change_of_input_is_seen(kind: str, check: Callable[..., None]) -> None:
    calls = iter([t, INPUTS[kind], t, INPUTS[kind]])

    def program(x: Any) -> Any:
        return (
            (x * 2, x)
            if isinstance(x, float) or x.layout is torch.sparse_coo
            else (x.view_as(x) * 2 + 1, x.transpose(0, -1))
        )

    def filtered() -> tuple[Any, ...]:
        return (next(calls)(),)

    with contextlib.suppress(UnsupportedError) if kind == "sparse" else contextlib.nullcontext():
        check(program, filtered, rounds=4, cache_hits=None)


def test_view_needs_strides(jit: Callable[..., Any]) -> None:
    compiled = jit(lambda x: x.contiguous().view(-1) if not x.is_contiguous() else x.view(-1))
    x, y = t(), t(4, 3).t()
    for value in (x, y, x, y):
        assert torch.equal(compiled(value), value.reshape(-1))


ARGUMENTS: list[tuple[Any, Any]] = [
    (1, 2), (1, 1.0), (1, True), (0, False), (0.0, -0.0), ("a", "b"), (None, 0), ((1, 2), [1, 2]), ((1,), (1, 2)),
    ({"a": 1}, {"a": 2}), ({"a": 1}, {"b": 1}), ({"a": 1, "b": 1}, {"b": 1, "a": 1}), (Mode.FAST, Mode.SLOW),
    (Options(), Options(3.0)), (torch.float32, torch.float64), (slice(1), slice(2)), (range(2), range(3)),
    (torch.sin, torch.cos), (int, float), ({1}, {2}), (torch.Size([1]), (1,)), ([1], []), (1j, 1 + 1j), (b"a", "a"),
    (float("nan"), float("nan")), (2**40, 2**40 + 1), (torch.device("cpu"), "cpu"), (Ellipsis, None),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), ARGUMENTS)
@pytest.mark.slow
def test_change_of_python_argument_is_seen(first: Any, second: Any, jit: Callable[..., Any]) -> None:
    def program(x: torch.Tensor, value: Any) -> Any:
        return x + len(repr(value)), repr(value), value

    compiled = jit(program)
    x = t()
    for value in (first, second, first, second):
        result, text, same = compiled(x, value)
        assert text == repr(value)
        assert type(same) is type(value)
        assert torch.equal(result, x + len(repr(value)))


SCALE = 2.0
TABLE = {"scale": 3.0}
NAMES = ["a"]
THIS = sys.modules[__name__]


def reads_globals(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE * TABLE["scale"] * len(NAMES) * THIS.SCALE * _global_function(1.0) * Box.kind


def _global_function(y: float, extra: float = 1.0) -> float:
    return y + extra


def _replacement(y: float, extra: float = 1.0) -> float:
    return y * 10


@pytest.mark.parametrize("change", ["number", "dict", "list", "function", "default", "class attribute", "code"])
def test_change_of_global_is_seen(change: str, jit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = jit(reads_globals)
    x = t()
    assert torch.equal(compiled(x), reads_globals(x))
    match change:
        case "number":
            monkeypatch.setattr(THIS, "SCALE", 5.0)
        case "dict":
            monkeypatch.setitem(TABLE, "scale", 7.0)
        case "list":
            monkeypatch.setattr(THIS, "NAMES", ["a", "b"])
        case "function":
            monkeypatch.setattr(THIS, "_global_function", _replacement)
        case "default":
            monkeypatch.setattr(_global_function, "__defaults__", (6.0,))
        case "class attribute":
            monkeypatch.setattr(Box, "kind", 11)
        case "code":
            monkeypatch.setattr(_global_function, "__code__", _replacement.__code__)
    assert torch.equal(compiled(x), reads_globals(x))


def test_change_of_closure_is_seen(jit: Callable[..., Any]) -> None:
    factor, shift = 2.0, torch.ones(4)

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * factor + shift

    compiled = jit(program)
    x = t()
    assert torch.equal(compiled(x), x * 2 + 1)
    factor = 3.0
    assert torch.equal(compiled(x), x * 3 + 1)
    shift = torch.zeros(4)
    assert torch.equal(compiled(x), x * 3)
    shift = torch.zeros(1, dtype=torch.float64)
    assert torch.equal(compiled(x), x * 3)


def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def _default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def _within(manager: Any) -> Callable[[], Iterator[None]]:
    def enter() -> Iterator[None]:
        with manager():
            yield

    return enter


MODES: dict[str, Callable[[], Iterator[None]]] = {
    "no_grad": _within(torch.no_grad),
    "inference_mode": _within(torch.inference_mode),
    "autocast bfloat16": _within(lambda: torch.autocast("cpu", torch.bfloat16)),
    "autocast float16": _within(lambda: torch.autocast("cpu", torch.float16)),
    "default dtype": _default_dtype,
    "default device": _within(lambda: torch.device("meta")),
    "deterministic": _deterministic,
    "attention kernel": _within(lambda: nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.slow
def test_change_of_mode_is_seen(mode: str, jit: Callable[..., Any]) -> None:
    def program(x: torch.Tensor) -> Any:
        attention = nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])
        return (
            x @ x.t(),
            torch.ones(2),
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            attention,
        )

    compiled = jit(program)
    x = t(3, 4, requires_grad=True)

    def same() -> None:
        for _ in range(2):
            expected, actual = program(x), compiled(x)
            assert expected[2:4] == actual[2:4]
            for a, b in ((expected[0], actual[0]), (expected[1], actual[1]), (expected[4], actual[4])):
                assert (a.dtype, a.device, a.requires_grad, a.is_inference()) == (
                    b.dtype, b.device, b.requires_grad, b.is_inference(),
                )  # fmt: skip
                assert a.is_meta or torch.equal(a, b)

    same()
    for _ in MODES[mode]():
        same()
    same()


def test_module_replaced_by_equal_structure_gives_its_values(jit: Callable[..., Any]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = jit(model)
    x = t()
    compiled(x)
    model[0] = nn.Linear(4, 4)
    assert torch.equal(compiled(x), model(x))
    model[1] = nn.Tanh()
    assert torch.equal(compiled(x), model(x))


def test_two_entries_stay_valid() -> None:
    compiled = thunder.jit(lambda x: x * 2)
    for size in (2, 3, 2, 3, 2):
        compiled(t(size))
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (2, 3)


def test_same_input_mode() -> None:
    compiled = thunder.jit(lambda x: x * SCALE, cache="same input")
    for _ in range(3):
        x = t()
        assert torch.equal(compiled(x), x * SCALE)
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (1, 2)


def test_no_caching_mode() -> None:
    calls = []

    def program(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2

    compiled = thunder.jit(program, cache="no caching")
    for _ in range(3):
        x = t()
        assert torch.equal(compiled(x), x * 2)
    assert len(calls) == 3


def test_recompilations_warn_with_reasons() -> None:
    compiled = thunder.jit(lambda x: x * 2, recompile_warning=3, dynamic=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in range(1, 4):
            compiled(t(size))
    with pytest.warns(RecompileWarning, match="shape"):
        compiled(t(9))


def test_recompile_limit_stays_right() -> None:
    compiled = thunder.jit(lambda x: x * 2, recompile_warning=2, recompile_limit=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for size in range(1, 8):
            x = t(size)
            assert torch.equal(compiled(x), x * 2)


def test_reasons_are_logged(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("THUNDER_LOG", "recompiles")
    compiled = thunder.jit(lambda x: x * 2)
    compiled(t(2))
    compiled(t(3))
    captured = capfd.readouterr()
    assert "shape" in captured.out + captured.err


@pytest.mark.parametrize("source", ["python", "numpy"])
@pytest.mark.parametrize("sharp_edges", ["allow", "warn", "error"])
def test_foreign_random_numbers(source: str, sharp_edges: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * (random.random() if source == "python" else float(np.random.rand()))

    compiled = thunder.jit(program, sharp_edges=sharp_edges)
    x = torch.ones(2)
    if sharp_edges == "error":
        with pytest.raises(UncacheableError):
            compiled(x)
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = {float(compiled(x)[0]) for _ in range(3)}
    assert len(results) == 3, "a random number was compiled in"
    assert any(issubclass(w.category, UncacheableWarning) for w in caught) == (sharp_edges == "warn")
