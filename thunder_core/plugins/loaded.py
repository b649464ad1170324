"""What a plugin offers, once it is registered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from thunder_core.plugins.specs import (
    Check,
    ExecutorSpec,
    FrontEndSpec,
    InterceptionsSpec,
    Preset,
    SymbolsSpec,
    TransformSpec,
)
from thunder_core.plugins.states import PluginRecord

Spec = TypeVar("Spec")

WORDS: Final[dict[type[Any], str]] = {
    ExecutorSpec: "executor",
    TransformSpec: "transform",
    SymbolsSpec: "table of symbols",
    InterceptionsSpec: "table of interceptions",
    FrontEndSpec: "front end",
    Preset: "preset",
    Check: "check",
}
"""What each kind of specification is called in messages."""


def plural(kind: type[Any]) -> str:
    """``executors``, ``tables of symbols``."""
    noun, of, rest = WORDS[kind].partition(" of ")
    return f"{noun}s{of}{rest}"


@dataclass(frozen=True, slots=True)
class Offered(Generic[Spec]):
    """Something that a plugin offers.

    Attributes:
        plugin: who offers it, in its state at that time.
        spec: what is offered.
    """

    plugin: PluginRecord
    spec: Spec


@dataclass(frozen=True, slots=True)
class Loaded:
    """A plugin that is registered.

    Attributes:
        plugin: its record at that time.
        specs: everything that its hooks returned.
    """

    plugin: PluginRecord
    specs: tuple[Any, ...]

    def of(self, kind: type[Spec]) -> tuple[Spec, ...]:
        """The specifications of one kind."""
        return tuple(spec for spec in self.specs if isinstance(spec, kind))

    def summary(self) -> str:
        """What it offers, for messages: ``executors: a, b; transforms: c``."""
        kinds = [(plural(kind), [spec.name for spec in self.of(kind)]) for kind in WORDS]
        return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds if names) or "nothing"
