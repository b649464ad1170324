"""Executors with one defect each. Most run silu, whose right kernels come first."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import torch
import torch.nn.functional as F

from thunder_core.executors import Claim, DerivativePair, OperatorExecutor

SILU = "torch.nn.functional.silu"


def silu(input: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(input)
    return torch.mul(input, torch.sigmoid(input), out=result)


def silu_forward(input: torch.Tensor) -> Any:
    return silu(input), (input,)


def silu_backward(residuals: Any, cotangents: Any, wanted: Any) -> Any:
    (x,), (cotangent,) = residuals, cotangents
    gate = torch.sigmoid(x)
    return (cotangent * (gate + x * gate * (1 - gate)),)


def claims(**changed: Any) -> OperatorExecutor:
    """A right claim of silu with something changed."""
    return OperatorExecutor("kernels", (Claim(F.silu, **{"run": silu, **changed}),))


def derivative(**changed: Any) -> OperatorExecutor:
    """A right derivative pair with something changed."""
    pair = {"forward": silu_forward, "backward": silu_backward, **changed}
    return claims(derivative=DerivativePair(**pair))


# ---------------------------------------------------------------------------------------------------- results


def wrong_value(input: torch.Tensor) -> torch.Tensor:
    return silu(input) + 1e-3


def wrong_dtype(input: torch.Tensor) -> torch.Tensor:
    return silu(input).double()


def wrong_strides(input: torch.Tensor) -> torch.Tensor:
    return silu(input).mT.contiguous().mT if input.ndim > 1 else silu(input)


def several_results(input: torch.Tensor) -> Any:
    return silu(input), input


def same_memory(input: torch.Tensor, **options: Any) -> torch.Tensor:
    return input


def fails_on_empty(input: torch.Tensor) -> torch.Tensor:
    if not input.numel():
        raise ValueError("cannot launch a kernel with 0 blocks")
    return silu(input)


def ignores_strides(input: torch.Tensor) -> torch.Tensor:
    return silu(input.as_strided(input.shape, torch.empty(input.shape).stride()))


def ignores_offset(input: torch.Tensor) -> torch.Tensor:
    return silu(input.as_strided(input.shape, input.stride(), 0))


def sum_without_negative_dimensions(input: torch.Tensor, dim: Any = None, *rest: Any, **options: Any) -> torch.Tensor:
    return torch.sum(input, max(dim, 0) if isinstance(dim, int) else dim, *rest, **options)


def add_without_broadcasting(input: torch.Tensor, other: torch.Tensor, **options: Any) -> torch.Tensor:
    """Takes shapes that can be broadcast for equal ones, as kernels over flat memory do."""
    left, right = torch.broadcast_tensors(input, other)
    flat = torch.zeros(left.numel())
    flat[: other.numel()] = other.reshape(-1)
    return left + flat.reshape(left.shape) * options.get("alpha", 1) if left.shape != right.shape else left + right


# ----------------------------------------------------------------------------------------------------- memory


def writes_argument(input: torch.Tensor) -> torch.Tensor:
    result = silu(input)
    if not input.is_inference():
        input.zero_()
    return result


def _elements(tensor: torch.Tensor, first: int, count: int) -> Any:
    """Elements next to a tensor, as a kernel in another language reaches them; tests run it where there is memory."""
    address = tensor.data_ptr() + first * tensor.element_size()
    return (ctypes.c_float * count).from_address(address)


def writes_behind_result(input: torch.Tensor) -> torch.Tensor:
    result = silu(input)
    if result.numel():
        _elements(result, result.numel(), 3)[:] = [7, 7, 7]
    return result


def writes_before_argument(input: torch.Tensor) -> torch.Tensor:
    if input.numel():
        _elements(input, -2, 1)[0] = 7
    return silu(input)


def reads_behind_argument(input: torch.Tensor) -> torch.Tensor:
    return silu(input) + 0 * _elements(input, input.numel(), 1)[0] if input.numel() else silu(input)


def leaves_result_unwritten(input: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(input)
    if input.ndim == 1:
        result[:-1] = silu(input)[:-1]
        return result
    return silu(input)


# ---------------------------------------------------------------------------------------------------- repeating


class CountsCalls:
    def __init__(self) -> None:
        self.calls = itertools.count()

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        return silu(input) + 1e-6 * (next(self.calls) % 2)


class RemembersShapes:
    """Its result depends on the shapes that it has seen."""

    def __init__(self) -> None:
        self.shapes: set[torch.Size] = set()

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        self.shapes.add(input.shape)
        return silu(input) * (1 + 1e-7 * len(self.shapes))


class ReusesResult:
    """Has one result for each shape."""

    def __init__(self) -> None:
        self.results: dict[Any, torch.Tensor] = {}

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        made = silu(input)
        return self.results.setdefault((made.shape, made.stride(), made.dtype), made).copy_(made)


# ------------------------------------------------------------------------------------------------- derivatives


def wrong_gradient(residuals: Any, cotangents: Any, wanted: Any) -> Any:
    (x,), (cotangent,) = residuals, cotangents
    return (cotangent * torch.sigmoid(x),)


def assumes_dense_cotangents(residuals: Any, cotangents: Any, wanted: Any) -> Any:
    (x,), (cotangent,) = residuals, cotangents
    if cotangent.numel() > 1 and isinstance(cotangent, torch.Tensor) and 0 in cotangent.stride():
        cotangent = torch.zeros_like(x).copy_(cotangent) * 2
    return silu_backward((x,), (cotangent,), wanted)


def gradient_of_other_strides(residuals: Any, cotangents: Any, wanted: Any) -> Any:
    (gradient,) = silu_backward(residuals, cotangents, wanted)
    return (gradient.mT.contiguous().mT if gradient.ndim > 1 else gradient,)


def writes_cotangent(residuals: Any, cotangents: Any, wanted: Any) -> Any:
    found = silu_backward(residuals, cotangents, wanted)
    residuals[0].detach().numpy()  # fake tensors have no memory to write to
    cotangents[0].copy_(torch.zeros_like(cotangents[0]))
    return found


def fake_silu(input: torch.Tensor) -> Any:
    return torch.empty_like(input), (torch.empty_like(input),)


def fake_of_other_residuals(input: torch.Tensor) -> Any:
    return torch.empty_like(input), (input.new_empty(input.shape[:-1]),)


def copies_residual(input: torch.Tensor) -> Any:
    return silu(input), (input.clone(),)


def not_for_fakes(input: torch.Tensor) -> Any:
    return torch.from_numpy(silu(input.detach()).numpy().copy()), (input,)


def unwanted_gradients(residuals: Any, cotangents: Any, wanted: Any) -> Any:
    (x, y), (cotangent,) = residuals, cotangents
    return cotangent * y, cotangent * x


def product(input: torch.Tensor, other: torch.Tensor) -> Any:
    return input * other, (input, other)


def product_fake(input: torch.Tensor, other: torch.Tensor) -> Any:
    return torch.empty_like(input), (input, other)


# ------------------------------------------------------------------------------------------------------ answers


class AlternatesAnswers:
    def __init__(self) -> None:
        self.asked = itertools.count()

    def __call__(self, input: Any) -> bool | str:
        return True if next(self.asked) % 2 else "not this time"


def computing_check(input: Any) -> bool | str:
    return bool(torch.zeros(1) == 0)


def drawing_check(input: Any) -> bool | str:
    torch.default_generator.manual_seed(5)
    return True


def raising_check(input: Any) -> bool | str:
    return bool(input.no_such_attribute)


def silent_check(input: Any) -> bool | str:
    return False if input.ndim == 1 else "no vector"


def never(input: Any) -> bool | str:
    return "the moon is in the wrong phase"


def always(input: Any) -> bool | str:
    return True


def rewritten_wrongly(input: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(input).double()
