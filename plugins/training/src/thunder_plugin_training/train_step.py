"""The function that `thunder.train_step` compiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch

from thunder_core.checks.originals import uncompiled
from thunder_core.errors import OptionError


@dataclass(frozen=True)
class TrainStep:
    """One step of a training, called with the arguments of the model and, with a loss function, the target.

    The attributes are the arguments of `thunder.train_step`.
    """

    model: Any
    loss_fn: Callable[..., Any] | None
    optimizer: Any
    max_norm: float | None
    scheduler: Any

    @classmethod
    def of(
        cls,
        model: Any,
        loss_fn: Callable[..., Any] | None,
        optimizer: Any,
        max_norm: float | None,
        scheduler: Any,
    ) -> Self:
        """The step for the original of a compiled model.

        Raises:
            OptionError: an argument does not have the type that is needed.
        """
        model = uncompiled(model)
        if not isinstance(model, torch.nn.Module):
            raise OptionError(f"thunder.train_step takes an nn.Module as its model, not {type(model).__name__}")
        if loss_fn is not None and not callable(loss_fn):
            raise OptionError(
                f"thunder.train_step calls loss_fn(output, target), which {type(loss_fn).__name__} is not made for",
                advice=("pass a function, a module such as nn.CrossEntropyLoss(), or None if the model computes it",),
            )
        if not all(callable(getattr(optimizer, name, None)) for name in ("step", "zero_grad")):
            raise OptionError(
                f"thunder.train_step takes an optimizer of torch.optim, not {type(optimizer).__name__}",
                advice=("create one first: torch.optim.AdamW(model.parameters())",),
            )
        return cls(model, loss_fn, optimizer, max_norm, scheduler)

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss = self._loss(*args, **kwargs)
        loss.backward()
        if self.max_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def _loss(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        if self.loss_fn is None:
            result = self.model(*args, **kwargs)
            loss: torch.Tensor = result if isinstance(result, torch.Tensor) else result.loss
        else:
            *inputs, target = args
            loss = self.loss_fn(self.model(*inputs, **kwargs), target)
        return loss
