"""From what the user gave to `Settings`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder_core.config.model import ThunderConfig
from thunder_core.config.settings import Settings
from thunder_core.executors.executor import Executor
from thunder_core.passes.common_subexpression import CommonSubexpression
from thunder_core.passes.constant_folding import ConstantFolding
from thunder_core.passes.transform import Transform
from thunder_core.passes.transform_order import ordered


def settings_of(
    config: Any = None,
    *,
    executors: Sequence[Any] | None = None,
    transforms: Sequence[Any] | None = None,
    **options: Any,
) -> Settings:
    """The settings for a configuration, and for what is given besides, which overrides it."""
    model = ThunderConfig(executors=executors, transforms=tuple(transforms or ()), **options)
    found = tuple([item for item in executors or () if isinstance(item, Executor)])
    own = [item for item in transforms or () if isinstance(item, Transform)]
    return Settings(model, found, ordered([ConstantFolding(), CommonSubexpression(), *own]))
