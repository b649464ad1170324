"""What the names in a configuration stand for: specifications of plugins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from thunder_core.plugins import builtin
from thunder_core.plugins.distributions import CORE
from thunder_core.plugins.host import host
from thunder_core.plugins.importing import imported
from thunder_core.plugins.loaded import Offered
from thunder_core.plugins.registration import KINDS
from thunder_core.plugins.selection import CORE_PLUGIN
from thunder_core.plugins.specs import ExecutorSpec, FrontEndSpec, Preset, TransformSpec
from thunder_core.plugins.states import PluginRecord, PluginState

Spec = TypeVar("Spec", ExecutorSpec, TransformSpec, FrontEndSpec, Preset)

# The version is not looked up: that takes longer than all else that `thunder.jit` does.
_CORE: Final = PluginRecord(CORE_PLUGIN, CORE, "", PluginState.LOADED)


def find(kind: type[Spec], name: str) -> Offered[Spec]:
    """The specification that ``name`` or ``plugin.name`` refers to. For those of the core, plugins are not discovered.

    Raises:
        PluginError: there is no such thing, or its plugin cannot be used.
    """
    for offered in of_core(kind):
        if name in (offered.spec.name, f"{CORE_PLUGIN}.{offered.spec.name}"):
            return offered
    return host().find(kind, name)


def of_core(kind: type[Spec]) -> list[Offered[Spec]]:
    """What the core offers of this kind."""
    hook = next(hook for hook, returned in KINDS.items() if returned is kind)
    specs: Sequence[Spec] = getattr(builtin, hook)()
    return [Offered(_CORE, spec) for spec in specs]


def use(offered: Offered[Any]) -> None:
    """Add the tables of the plugin of a specification. Raises PluginError where they cannot be added."""
    if offered.plugin is not _CORE:
        host().use(offered)


def import_object(offered: Offered[Any]) -> Any:
    """What is behind a specification. Raises PluginError where it cannot be imported."""
    return imported(offered.spec.load) if offered.plugin is _CORE else host().import_object(offered)
