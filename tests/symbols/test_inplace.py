"""In-place symbols and the symbols that compute their values out of place."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from thunder_core.ir.symbol import CallStyle, Symbol
from thunder_core.symbols.registry import registry
from thunder_testing.opinfo_samples import sample_inputs


class ComparingMode(TorchFunctionMode):
    """Compares each in-place call with its functional symbol. ``seen`` collects the symbols that were compared."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if registry.is_metadata(func):
            return func(*args, **(kwargs or {}))
        symbol, args, kwargs = registry.resolve(func, args, kwargs)
        if symbol.functional is None:
            return symbol.target(*args, **kwargs)
        self.seen.add(symbol.name)
        state = torch.get_rng_state()
        value = symbol.functional.target(*args, **kwargs)
        state_after = torch.get_rng_state()
        torch.set_rng_state(state)
        result = symbol.target(*args, **kwargs)
        assert torch.equal(torch.get_rng_state(), state_after), f"{symbol}: random numbers differ"
        assert_equal_after_conversion(symbol, value, result)
        return result


def assert_equal_after_conversion(symbol: Symbol, value: torch.Tensor, result: torch.Tensor) -> None:
    """PyTorch's own kernels round differently in place and out of place, by the alignment of the memory."""
    converted = value.to(result.dtype).expand(result.shape)
    torch.testing.assert_close(converted, result, equal_nan=True, msg=lambda text: f"{symbol}: {text}")


# Functions without an out-of-place form, and functions with an ``inplace`` argument but without an in-place variant.
WITHOUT_TWIN = {"resize_", "resize_as_", "nn.functional.dropout2d", "nn.functional.dropout3d"}

pytestmark = pytest.mark.filterwarnings("ignore")


def operators() -> dict[str, Any]:
    pytest.importorskip("numpy")
    pytest.importorskip("expecttest")
    from torch.testing._internal.common_methods_invocations import op_db

    return {item.full_name: item for item in op_db if item.inplace_variant and item.supported_dtypes("cpu")}


OPERATORS = operators()


def samples(name: str, count: int = 4):
    """Samples that the in-place variant accepts, each made anew."""
    operator = OPERATORS[name]
    supported = operator.supported_dtypes("cpu")
    for dtype in [dtype for dtype in (torch.float32, torch.int64, torch.complex64) if dtype in supported]:
        for sample in itertools.islice(sample_inputs(operator, "cpu", dtype), count):
            try:
                operator.inplace_variant(sample.input.clone(), *sample.args, **sample.kwargs)
            except (RuntimeError, TypeError, IndexError):  # eager refuses it
                continue
            yield sample


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.battery
def test_functional_symbol_computes_the_same_value(name: str) -> None:
    for sample in samples(name):
        with ComparingMode() as mode:
            OPERATORS[name].inplace_variant(sample.input.clone(), *sample.args, **sample.kwargs)
        assert bool(mode.seen) is (name not in WITHOUT_TWIN), "which in-place symbols have a functional twin"


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.bernoulli_(),
        lambda x: x.bernoulli_(0.3),
        lambda x: x.bernoulli_(torch.full_like(x, 0.7)),
        lambda x: x.uniform_(),
        lambda x: x.uniform_(-1, 1),
        lambda x: x.normal_(),
        lambda x: x.normal_(mean=1.0, std=2.0),
        lambda x: x.exponential_(2.0),
        lambda x: x.geometric_(0.5),
        lambda x: x.log_normal_(),
        lambda x: x.cauchy_(),
        lambda x: x.random_(),
        lambda x: x.random_(5),
        lambda x: x.random_(2, 9),
        lambda x: torch.nn.functional.dropout(x, 0.5, True, True),
        lambda x: torch.nn.functional.alpha_dropout(x, 0.5, True, True),
        lambda x: torch.nn.functional.rrelu(x, training=True, inplace=True),
    ],
)
def test_random_in_place_symbols_consume_the_same_random_numbers(call) -> None:
    with ComparingMode() as mode:
        call(torch.rand(5, 4))
    assert mode.seen


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.__setitem__((slice(None), 1), 5.0),
        lambda x: x.__setitem__(x > 0, torch.tensor(1.0)),
        lambda x: x.copy_(torch.arange(4)),
        lambda x: x.fill_(3),
        lambda x: x.zero_(),
        lambda x: torch.nn.functional.relu(x, inplace=True),
        lambda x: torch.nn.functional.silu(x, inplace=True),
        lambda x: torch.nn.functional.leaky_relu(x, 0.2, True),
        lambda x: torch.relu_(x),
        lambda x: x.__ifloordiv__(2),
        lambda x: x.clamp_(min=0),
        lambda x: x.to(torch.int32).__ilshift__(2),
    ],
)
def test_statements_and_functions_with_an_in_place_argument(call) -> None:
    with ComparingMode() as mode:
        call(torch.randn(5, 4))
    assert mode.seen


@pytest.mark.parametrize("style", [CallStyle.METHOD, CallStyle.FUNCTION])
def test_in_place_symbols_are_told_from_functional_ones(style: CallStyle) -> None:
    name = "add_" if style is CallStyle.METHOD else "torch.dropout_"
    symbol = registry.symbol_named(name, style)
    assert symbol.functional is not None
    assert symbol.functional.functional is None
