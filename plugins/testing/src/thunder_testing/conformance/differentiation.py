"""Backward passes: from fixed cotangents of results to gradients of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from thunder_testing.conformance.call import Call
from thunder_testing.conformance.failure import NotApplicable
from thunder_testing.conformance.running import Run, quietly, run
from thunder_testing.conformance.tested import raised

LAYOUTS: Final = ("dense", "expanded", "transposed")
"""Layouts of cotangents."""


def differentiates(call: Call) -> bool:
    """Whether eager PyTorch computes gradients for this call."""
    performed = eager(call.copy(tuple(call.differentiable())))
    if performed is None or not performed.differentiable():
        return False
    try:
        with quietly():
            backward(performed, cotangents_for(performed.differentiable(), "dense"))
    except Exception:  # noqa: BLE001 - whatever eager refuses is not a case
        return False
    return True


def backward(
    performed: Run, cotangents: Sequence[torch.Tensor], *, retain_graph: bool = False
) -> list[torch.Tensor | None]:
    """The gradient of each tensor among the arguments that requires grad; None if it has none."""
    outputs, inputs = performed.differentiable(), [t for t in performed.call.tensors() if t.requires_grad]
    if not outputs or not inputs:
        return []
    return list(torch.autograd.grad(outputs, inputs, cotangents, retain_graph=retain_graph, allow_unused=True))


def eager_backward(performed: Run, cotangents: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """`backward` of a run with eager PyTorch. Raises NotApplicable if that raises, because there is no reference."""
    try:
        return backward(performed, cotangents)
    except Exception as error:
        text = str(error).split("\n", 1)[0]
        raise NotApplicable(f"backward of eager PyTorch raises {type(error).__name__}: {text}") from error


def cotangents_for(outputs: Sequence[torch.Tensor], layout: str) -> list[torch.Tensor]:
    """Random cotangents of results, the same in each call: dense, expanded from one element, or transposed.

    Their values are multiples of a quarter, which all floating-point dtypes represent exactly.
    """
    generator = torch.Generator().manual_seed(1)
    return [_cotangent(output.detach(), layout, generator) for output in outputs]


def cancelling(cotangents: Sequence[torch.Tensor], layout: str) -> float:
    """The largest magnitude in expanded cotangents, else 0. If all elements are equal, derivatives may cancel."""
    wide = [cotangent.to(torch.complex128).abs() for cotangent in cotangents if cotangent.numel()]
    return max([float(magnitude.max()) for magnitude in wide], default=0.0) if layout == "expanded" else 0.0


def _cotangent(output: torch.Tensor, layout: str, generator: torch.Generator) -> torch.Tensor:
    shape = tuple(output.shape)
    if layout == "expanded":
        return _quarters((1,) * output.ndim, output, generator).expand(shape)
    if layout == "transposed":
        return _quarters(shape[::-1], output, generator).permute(tuple(range(output.ndim))[::-1])
    return torch.empty_like(output).copy_(_quarters(shape, output, generator))


def _quarters(shape: tuple[int, ...], like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    signs = 2 * torch.randint(0, 2, shape, generator=generator) - 1
    performed = signs * torch.randint(1, 9, shape, generator=generator) / 4
    return (torch.complex(performed, performed.abs()) if like.is_complex() else performed).to(like.device, like.dtype)


def eager(call: Call) -> Run | None:
    """The call run by eager PyTorch; None if it raises."""
    try:
        return run(call)
    except Exception:  # noqa: BLE001 - whatever eager refuses is not a case
        return None


def compiled_backward(
    performed: Run, cotangents: Sequence[torch.Tensor], *, retain_graph: bool = False
) -> list[torch.Tensor | None]:
    """`backward` of a run of a compiled program. Raises Breach if that raises."""
    __tracebackhide__ = True
    with quietly():
        try:
            return backward(performed, cotangents, retain_graph=retain_graph)
        except Exception as error:
            raise raised("backward of the compiled program", error) from error
