"""Programs that use rarely used functions, dtypes and arguments of PyTorch, against eager."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import thunder
from thunder_core.errors import UnsupportedError
from thunder_core.pytorch_internals import TorchDispatchMode


def t(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (4, 6))


def writes_through_views_of_views(x: torch.Tensor) -> Any:
    inner = x.view(2, 2, 6)[1]
    rows = inner.t()[2:]
    rows.mul_(2)
    inner[0, ::2].add_(1)
    part = x.reshape(-1)[3:9].view(2, 3)
    part.zero_()
    return inner, rows, part, x.sum()


def writes_to_out(x: torch.Tensor) -> Any:
    grown, transposed, wide = torch.empty(0), torch.empty(6, 4).t(), torch.empty(4, 6, dtype=torch.float64)
    torch.mul(x, x, out=grown)
    torch.sub(x, 1, out=transposed)
    torch.add(x, x, out=wide)
    return grown, transposed, wide


def swaps_data(x: torch.Tensor) -> Any:
    first, second = x * 2, x * 3
    first.data, second.data = second.data, first.data
    return first, second


def indexes(x: torch.Tensor) -> Any:
    return (
        *(
            x[[0, 2]],
            x[[0, 2], [1, 3]],
            x[None, ..., None],
            x[1:, ::2],
            x[[True, False, True, False]],
            x[True],
            x[False],
        ),
        *(x[:, [1, 2], None], x[-2:, -3:-1], x[np.array([0, 1])], x[torch.tensor(1)], x[:, 9:]),
    )


def assigns_to_items(x: torch.Tensor) -> torch.Tensor:
    x[[0, 2]] = x[[1, 3]]
    x[x > 0] = 0
    x[..., 1] = 5
    x[1:, ::2] += 1
    x[[0, 0], [1, 1]] += 3
    x[[True, False, False, True]] = 9
    x.index_put_((torch.tensor([0, 0]), torch.tensor([1, 1])), torch.ones(2), accumulate=True)
    x.masked_scatter_(x > 1, torch.arange(24.0))
    return x


def computes_with_sizes(x: torch.Tensor) -> Any:
    size = x.shape
    more = torch.Size([1])
    return size + more, more + size, size * 2, size[::-1], size == (4, 6), f"{size}", x.new_zeros(size + more)


def uses_tensors_as_keys(x: torch.Tensor) -> Any:
    y = x + 1
    scales = {x: 1.0, y: 2.0}
    return x * scales[x] + y * scales[y], x in [x], [y, x].index(y)


def reads_inference(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y, view = x * 2, x[0]
        part = y[0]
    tensors = (x, y, view, part, part[1:], torch.ones(2))
    return [tensor.is_inference() for tensor in tensors], torch.is_inference(y)


def makes_tensors_of_numpy_numbers(x: torch.Tensor) -> Any:
    number = np.float64(2)
    return (
        *(torch.tensor(number), torch.as_tensor(number), torch.asarray(number), torch.tensor([[number], [True]])),
        *(torch.tensor([number, 2j]), torch.scalar_tensor(number), x.new_tensor(number), torch.tensor(np.float16(2))),
        *(torch.tensor(data=number), torch.as_tensor(data=[number])),
        *(torch.tensor(number, dtype=torch.float32), torch.full((1,), number), x * number),
    )


def restores_in_contexts(x: torch.Tensor) -> Any:
    log = []

    @contextlib.contextmanager
    def scaled(factor: float) -> Any:
        nonlocal x
        x = x * factor
        try:
            yield x
        finally:
            log.append(factor)
            x = x / factor

    with contextlib.suppress(ValueError), scaled(3):
        raise ValueError
    with scaled(2) as y:
        z = y + 1
    return x, z, log


def sends_to_generators(x: torch.Tensor) -> Any:
    def totals(count: int) -> Any:
        total = x.sum()
        for index in range(count):
            sent = yield total * index
            if sent is not None:
                total = total + sent

    generator = totals(4)
    return next(generator), generator.send(x.mean()), list(generator)


PROGRAMS: tuple[Callable[..., Any], ...] = (
    writes_through_views_of_views,
    writes_to_out,
    swaps_data,
    indexes,
    assigns_to_items,
    computes_with_sizes,
    uses_tensors_as_keys,
    reads_inference,
    makes_tensors_of_numpy_numbers,
    restores_in_contexts,
    sends_to_generators,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(program: Callable[..., Any], check: Callable[..., None]) -> None:
    check(program, lambda: (t(),))


def test_complex_views(check: Callable[..., None]) -> None:
    def program(x: torch.Tensor) -> Any:
        x.imag.zero_()
        x.real.add_(1)
        lazy = x.conj()
        lazy.mul_(2j)
        return x, lazy, lazy.imag, torch.view_as_real(x)

    check(program, lambda: (torch.randn(3, dtype=torch.complex64),))


def test_is_inference_in_inference_mode() -> None:
    with torch.inference_mode():
        assert thunder.jit(lambda x: (x * 2).is_inference())(torch.ones(2))


def test_is_set_to_with_a_tensor_of_the_program_as_keyword() -> None:
    whole = torch.ones(2)
    with pytest.raises(UnsupportedError, match="is_set_to"):
        thunder.jit(lambda x, y: (x.is_set_to(tensor=y.view(2)), y + 1))(whole[:], whole)


def quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(t(), 0.1, 0, torch.qint8)


def of_onednn() -> torch.Tensor:
    return t().reshape(1, -1).to_mkldnn()


HELD: dict[str, Any] = {}


def stores_quantized(x: torch.Tensor) -> torch.Tensor:
    HELD["made"] = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    return x * 2


UNTRACED: dict[str, tuple[Callable[..., Any], Callable[[], torch.Tensor], str]] = {
    "dequantized": (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(), t, "quantized.*qint8"),
    "integers": (lambda x: torch.quantize_per_tensor(x, 0.1, 0, dtype=torch.quint8).int_repr(), t, "quantized.*quint8"),
    "quantized result": (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), t, "quantized.*qint8"),
    "quantized, stored": (stores_quantized, t, "quantized.*qint8"),
    "quantized argument": (lambda x: (x.dequantize() * 2, x.q_scale()), quantized, "x is a quantized tensor"),
    "quantized, passed on": (lambda x: [x, x.shape], quantized, "x is a quantized tensor"),
    "argument of oneDNN": (lambda x: x.to_dense() * 2, of_onednn, "x is a tensor in the format of oneDNN"),
    "passed on, of oneDNN": (lambda x: {"x": x}, of_onednn, "x is a tensor in the format of oneDNN"),
    "made for oneDNN": (lambda x: (x.to_mkldnn() * 2).to_dense(), t, "to_mkldnn returns a tensor in the format"),
    "result of oneDNN": (lambda x: x.to_mkldnn(), t, "to_mkldnn returns a tensor in the format"),
}


def comparable(value: Any) -> Any:
    """``value`` with tensors as text, which has their format and values."""
    return [comparable(item) for item in value] if isinstance(value, list | tuple) else repr(value)


@pytest.mark.parametrize("name", UNTRACED)
@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")  # deprecated since PyTorch 2.13
def test_tensors_that_cannot_be_traced_run_eagerly(name: str) -> None:
    """PyTorch's fake tensors have another dtype, and ``dequantize`` of these returns its argument; or no format."""
    program, make, message = UNTRACED[name]
    compiled = thunder.jit(program)
    for seed in range(2):
        found = []
        for call in (program, compiled):
            HELD.clear()
            torch.manual_seed(seed)
            found.append(comparable((call(make()), list(HELD.values()))))
        assert found[0] == found[1]
    ((reason, count),) = thunder.explain(compiled).fallbacks.items()
    assert count == 2
    assert re.search(message, reason)
    assert "test_unusual_programs.py" in reason


def test_errors_name_the_line_that_calls_the_standard_library() -> None:
    with pytest.raises(UnsupportedError, match=r"test_unusual_programs\.py"):
        thunder.jit(lambda x: copy.deepcopy((x + 1).untyped_storage()))(t())


async def doubled(x: torch.Tensor, factor: int) -> torch.Tensor:
    await asyncio.sleep(0)
    return x * factor


async def gathered(x: torch.Tensor, factor: int) -> Any:
    first, second = await asyncio.gather(doubled(x, factor), doubled(x, factor + 1))
    return first + second


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
def test_event_loops() -> None:
    """`asyncio.run` formats the task, and so its result, for an exception that it discards."""

    def program(x: torch.Tensor, factor: int) -> Any:
        return asyncio.run(gathered(x, factor))

    compiled, x = thunder.jit(program), torch.ones(3)
    for factor in (1, 2, 2):
        assert torch.equal(compiled(x, factor), program(x, factor))


def resolves(z: torch.Tensor) -> Any:
    return z.resolve_conj(), z.imag.resolve_neg()


@pytest.mark.parametrize(
    "program",
    [resolves, lambda z: resolves(z.conj()), lambda z: (*resolves(z), *resolves(z.conj())), lambda z: resolves(z * 1j)],
)
def test_lazy_conjugates_are_resolved(program: Callable[..., Any]) -> None:
    """These functions return their argument itself if it has no such bit: equal metadata else is not enough."""
    z = torch.randn(3, dtype=torch.complex64)
    thunder.jit(resolves)(z)
    for argument in (z, z.conj()):
        actual, expected = thunder.jit(program)(argument), program(argument)
        for one, other in zip(actual, expected, strict=True):
            assert (one.is_conj(), one.is_neg()) == (other.is_conj(), other.is_neg())
            torch.testing.assert_close(one.resolve_conj().resolve_neg(), other.resolve_conj().resolve_neg())


class Doubles(TorchDispatchMode):
    """A mode that counts operators and returns float64."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {})).double()


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
def test_modes_of_the_dispatcher_see_all_operators() -> None:
    def program(x: torch.Tensor, mode: Doubles) -> torch.Tensor:
        inside = x.cos()
        with mode:
            return x.sin() + inside

    compiled, x, eager, mode = thunder.jit(program), torch.ones(3), Doubles(), Doubles()
    expected = program(x, eager)
    for calls in (1, 2):
        torch.testing.assert_close(compiled(x, mode), expected)
        assert mode.calls == calls * eager.calls
