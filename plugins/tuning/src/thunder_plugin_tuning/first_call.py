"""The option ``tune`` of `thunder.jit`: the executors of a module are chosen at its first call."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder.config import settings_of
from thunder.config.settings import ConfiguredSettings
from thunder_core.errors import ExecutorWarning, ThunderError
from thunder_core.pytorch_internals import tree_leaves
from thunder_core.tracing.frames import warn_user
from thunder_plugin_tuning.tuning import tune

_SECONDS: Final = 120.0


def tuned(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, settings: ConfiguredSettings
) -> ConfiguredSettings:
    """The settings with the chosen executors; after a warning without, if the program cannot be tuned.

    Backward is measured, too, if gradients are enabled and the module or an argument requires them.
    """
    seconds = _SECONDS if settings.config.tune is True else float(settings.config.tune)
    config = settings.config.model_copy(update={"tune": False})
    tensors = [*module.parameters(), *tree_leaves((args, kwargs))]
    train = torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in tensors)
    try:
        return settings_of(tune(module, args, kwargs, train=train, config=config, limit=seconds, name=name).config)
    except ThunderError as error:
        warn_user(f"the executors of {name} are not tuned: {error.problem}", ExecutorWarning)
        return settings_of(config)
