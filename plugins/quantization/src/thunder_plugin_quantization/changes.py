"""What a transform did to a module, for `thunder.explain`, and the error if it could do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from torch import nn

from thunder_core.errors import OptionError

ONLY_LINEAR: Final = "layers of other classes than torch.nn.Linear cannot be changed; leave the transform out for them"
_ATTRIBUTE: Final = "_thunder_changes"
_SHOWN: Final = 8
"""Largest number of layers that a line of the report names; `Changes.left` has all."""


@dataclass
class Changes:
    """The layers of a module that a transform changed, and those that it left as they are.

    Attributes:
        transform: the name of the transform.
        module: the class of the module.
        changed: by name of a layer what it has become.
        left: by name of a layer why it stays as it is.
        summary: further text about all of the changed layers.
    """

    transform: str
    module: str
    changed: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    summary: str = ""

    @classmethod
    def of(cls, transform: str, module: nn.Module) -> Changes:
        """No changes of a module yet."""
        return cls(transform, type(module).__name__)

    def attach(self, module: nn.Module) -> None:
        """Store the changes in the module, so that its copies have them, too."""
        vars(module).setdefault(_ATTRIBUTE, {})[self.transform] = self

    def check(self, advice: Sequence[str], optional: bool) -> None:
        """Raise OptionError if no layer was changed, unless the transform is optional."""
        if self.changed or optional:
            return
        problem = f"{self.transform!r} can change no layer of {self.module}"
        if not self.left:
            problem += ": it has no torch.nn.Linear"
        raise OptionError("\n".join([problem, *[f"  {line}" for line in self._left_lines()]]), advice=tuple(advice))

    def lines(self) -> list[str]:
        """The report."""
        kinds: dict[str, int] = {}
        for kind in self.changed.values():
            kinds[kind] = kinds.get(kind, 0) + 1
        text = ", ".join(f"{count} x {kind}" for kind, count in kinds.items()) or "no layer can be changed"
        return [f"{self.transform}: {text}{self.summary}", *[f"  {line}" for line in self._left_lines()]]

    def _left_lines(self) -> list[str]:
        names: dict[str, list[str]] = {}
        for name, reason in self.left.items():
            names.setdefault(reason, []).append(name)
        return [f"not changed: {_listed(each)}: {reason}" for reason, each in names.items()]


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} others" if rest > 0 else "")


def changes_of(module: nn.Module, transform: str) -> Changes | None:
    """What a transform did to a module; None if it did nothing."""
    found: Changes | None = vars(module).get(_ATTRIBUTE, {}).get(transform)
    return found
