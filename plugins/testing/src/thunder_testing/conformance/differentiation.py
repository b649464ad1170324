"""Backward passes: from fixed gradients of results to gradients of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from thunder_testing.conformance.call import Call
from thunder_testing.conformance.failure import NotApplicable
from thunder_testing.conformance.running import Run, quietly, run
from thunder_testing.conformance.tested import raised

LAYOUTS: Final = ("dense", "expanded", "transposed")
"""Of cotangents."""


def differentiates(call: Call) -> bool:
    """Whether eager PyTorch has gradients for this call."""
    made = eager(call.copy(tuple(call.differentiable())))
    if made is None or not made.differentiable():
        return False
    try:
        with quietly():
            backward(made, cotangents_for(made.differentiable(), "dense"))
    except Exception:  # noqa: BLE001 - whatever eager refuses is no case
        return False
    return True


def backward(made: Run, cotangents: Sequence[torch.Tensor], *, retain_graph: bool = False) -> list[torch.Tensor | None]:
    """The gradient of each tensor among the arguments that requires grad; None where there is none."""
    outputs, inputs = made.differentiable(), [t for t in made.call.tensors() if t.requires_grad]
    if not outputs or not inputs:
        return []
    return list(torch.autograd.grad(outputs, inputs, cotangents, retain_graph=retain_graph, allow_unused=True))


def eager_backward(made: Run, cotangents: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """`backward` of what eager PyTorch did. Raises NotApplicable for what it raises: gradients have no reference."""
    try:
        return backward(made, cotangents)
    except Exception as error:
        text = str(error).split("\n", 1)[0]
        raise NotApplicable(f"backward of eager PyTorch raises {type(error).__name__}: {text}") from error


def cotangents_for(outputs: Sequence[torch.Tensor], layout: str) -> list[torch.Tensor]:
    """Random gradients of results, the same whenever asked: dense, expanded from one element, or transposed.

    Multiples of a quarter, which all floating-point types hold.
    """
    generator = torch.Generator().manual_seed(1)
    return [_cotangent(output.detach(), layout, generator) for output in outputs]


def cancelling(cotangents: Sequence[torch.Tensor], layout: str) -> float:
    """The largest magnitude in expanded cotangents, else 0: where all elements are equal, derivatives may cancel."""
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
    made = signs * torch.randint(1, 9, shape, generator=generator) / 4
    return (torch.complex(made, made.abs()) if like.is_complex() else made).to(like.device, like.dtype)


def eager(call: Call) -> Run | None:
    """What eager PyTorch does; None if it refuses the call."""
    try:
        return run(call)
    except Exception:  # noqa: BLE001 - whatever eager refuses is no case
        return None


def compiled_backward(
    made: Run, cotangents: Sequence[torch.Tensor], *, retain_graph: bool = False
) -> list[torch.Tensor | None]:
    """`backward` of what a compiled program did. Raises Breach for what it raises."""
    __tracebackhide__ = True
    with quietly():
        try:
            return backward(made, cotangents, retain_graph=retain_graph)
        except Exception as error:
            raise raised("backward of the compiled program", error) from error
