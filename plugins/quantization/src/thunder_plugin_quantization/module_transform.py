"""The base of transforms that change a module when it is compiled, and nothing in its programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from thunder_core.passes.transform import Place, Transform, TransformContext
from thunder_plugin_quantization.changes import changes_of


@dataclass(frozen=True)
class ModuleTransform(Transform):
    """A transform that has no pass: its `on_module` returns the module that is compiled.

    Attributes:
        optional: a module of which no layer can be changed is compiled as it is; otherwise this is an error.
    """

    place: ClassVar[Place] = Place.ACQUIRED
    verified: ClassVar[bool] = False
    of_modules: ClassVar[bool] = True

    optional: bool = False

    def applies(self, context: TransformContext) -> bool:
        return False

    def module_notes(self, module: nn.Module) -> Sequence[str]:
        changes = changes_of(module, self.name)
        return () if changes is None else changes.lines()
