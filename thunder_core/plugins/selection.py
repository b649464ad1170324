"""Which plugins the environment lets in: ``THUNDER_PLUGINS``.

Names separated by commas. ``nvfuser,cudnn`` lets in these two and no other; ``-triton`` keeps one out; ``core`` alone
blocks all. Unset or empty, all are let in. The core itself cannot be blocked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from thunder_core.errors import PluginError
from thunder_core.plugins.nearest import suggestion

VARIABLE: Final = "THUNDER_PLUGINS"
CORE_PLUGIN: Final = "core"
"""The name of the core as a plugin."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What the variable says.

    Attributes:
        text: the variable itself.
        only: the names that are let in; empty: all.
        blocked: the names of plugins that are not let in.
    """

    text: str
    only: frozenset[str]
    blocked: frozenset[str]

    def why_blocked(self, name: str) -> str:
        """Why a plugin is blocked, as a sentence; empty if it is let in."""
        if name in self.blocked:
            return f"{VARIABLE}={self.text} blocks it"
        if self.only and name not in self.only:
            return f"{VARIABLE}={self.text} does not name it"
        return ""


def selection(installed: Iterable[str]) -> Selection:
    """What the environment selects of the plugins that are installed, ``core`` among them.

    Raises:
        PluginError: it names one that is not installed, or blocks the core.
    """
    text = os.environ.get(VARIABLE, "").strip()
    items = [item.strip() for item in text.split(",") if item.strip()]
    blocked = frozenset(item[1:].strip() for item in items if item.startswith("-"))
    only = frozenset(item for item in items if not item.startswith("-"))
    names = sorted(installed)
    for name in sorted((only | blocked) - set(names)):
        raise PluginError(
            f"{VARIABLE}={text} names {name!r}, and no plugin of this name is installed{suggestion(name, names)}",
            advice=(f"installed are: {', '.join(names)}", f"unset {VARIABLE}"),
        )
    if CORE_PLUGIN in blocked:
        raise PluginError(
            f"{VARIABLE}={text} blocks {CORE_PLUGIN!r}, without which nothing runs",
            advice=(f"leave it out; {VARIABLE}={CORE_PLUGIN} keeps everything else out",),
        )
    return Selection(text, only, blocked)
