"""Call a program once, in training or not."""

from __future__ import annotations

from typing import Any

import torch

from thunder_core.errors import ThunderError
from thunder_core.pytorch_internals import tree_leaves


def run(jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any], train: bool) -> None:
    """Call it, and run backward from the sum of its floating-point outputs if ``train``.

    Raises:
        ThunderError: no output of it has a gradient.
    """
    with torch.set_grad_enabled(train):
        outputs = jitted(*args, **kwargs)
        if train:
            _loss(outputs).backward()


def _loss(outputs: Any) -> torch.Tensor:
    tensors = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    real = [torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in tensors]
    if not real:
        raise ThunderError(
            "no output of the program requires grad, so backward cannot run",
            advice=("leave out --train", "use parameters or inputs with requires_grad=True"),
        )
    loss: torch.Tensor = torch.stack([tensor.sum().to(device="cpu", dtype=torch.float64) for tensor in real]).sum()
    return loss
