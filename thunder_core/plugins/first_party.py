"""Plugins of Thunder's repository that are not installed: their names, and how to get them.

The names come with the package `thunder`, in a file; no plugin is named in the core.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

_PACKAGES: Final = Path(__file__).resolve().parents[2]
_NAMES: Final = _PACKAGES / "thunder" / "first_party_plugins.txt"
_NEEDS: Final = " needs "


def _lines() -> list[str]:
    """Lines like ``plugin``, ``plugin: item item`` and ``project needs project``; none where there is no file."""
    if not _NAMES.is_file():
        return []
    return [line for line in _NAMES.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


@cache
def _offers() -> Mapping[str, frozenset[str]]:
    """By plugin of the repository, what it offers under other names."""
    pairs = [line.partition(":") for line in _lines() if _NEEDS not in line]
    return {name: frozenset(items.split()) for name, _, items in pairs}


@cache
def _needs() -> Mapping[str, tuple[str, ...]]:
    """By project of `plugins/`, the projects there that it requires, if there are any."""
    pairs = [line.partition(_NEEDS) for line in _lines() if _NEEDS in line]
    return {name: tuple(projects.split()) for name, _, projects in pairs}


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


def projects_needed_by(name: str) -> tuple[str, ...]:
    """The projects of `plugins/` that one of them requires."""
    return _needs().get(name, ())


def install_command(name: str) -> str:
    """The command that installs a project of `plugins/`, with those there that it needs: from the checkout that the
    core runs from, if it does.
    """
    names = [*projects_needed_by(name), name]
    folders = [_PACKAGES / "plugins" / name for name in names]
    if all((folder / "pyproject.toml").is_file() for folder in folders):
        return f"pip install {' '.join(map(str, folders))}"
    return f"pip install {' '.join([f'./plugins/{name}' for name in names])} in a checkout"
