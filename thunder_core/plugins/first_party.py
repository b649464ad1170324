"""Plugins of Thunder's own repository that are not installed: their names, and how to get them.

The names come with the package `thunder`, in a file; no plugin is named in the core.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

_PACKAGES: Final = Path(__file__).resolve().parents[2]
_NAMES: Final = _PACKAGES / "thunder" / "first_party_plugins.txt"


@cache
def _offers() -> Mapping[str, frozenset[str]]:
    """By plugin of the repository, what it offers under other names; nothing where the file is not installed.

    A line of the file is the name of a plugin, or ``plugin: item item``.
    """
    if not _NAMES.is_file():
        return {}
    lines = [line for line in _NAMES.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    pairs = [line.partition(":") for line in lines]
    return {name: frozenset(items.split()) for name, _, items in pairs}


def first_party_names() -> tuple[str, ...]:
    """The names of all plugins of the repository."""
    return tuple(_offers())


def first_party_items() -> tuple[str, ...]:
    """Those names, and what the plugins offer under other names."""
    return tuple(dict.fromkeys([*_offers(), *[item for items in _offers().values() for item in sorted(items)]]))


def how_to_get(name: str) -> str:
    """What to do where one of these plugins, or the one that offers an item of this name, is not installed."""
    plugin = next((plugin for plugin, items in _offers().items() if name in items), name)
    what = "is" if plugin == name else f"offers {name!r} and is"
    return f"the plugin {plugin!r} of Thunder's repository {what} not installed: {install_command(plugin)}"


def install_command(name: str) -> str:
    """The command that installs a project of `plugins/`: from the checkout that the core runs from, if it does."""
    folder = _PACKAGES / "plugins" / name
    if (folder / "pyproject.toml").is_file():
        return f"pip install {folder}"
    return f"pip install ./plugins/{name} in a checkout"
