"""Plugins of Thunder's own repository that are not installed: their names, and how to get them.

The names come with the package `thunder`, in a file; no plugin is named in the core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_PACKAGES: Final = Path(__file__).resolve().parents[2]
_NAMES: Final = _PACKAGES / "thunder" / "first_party_plugins.txt"


@dataclass(frozen=True, slots=True)
class _Plugin:
    """A line of the file: ``plugin needs other other: item item``.

    Attributes:
        needs: other plugins of the repository that it depends on.
        items: what it offers under other names than its own.
    """

    needs: tuple[str, ...]
    items: tuple[str, ...]


@cache
def _plugins() -> Mapping[str, _Plugin]:
    """By name; none where the file is not installed."""
    if not _NAMES.is_file():
        return {}
    found = {}
    for line in _NAMES.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            start, _, items = line.partition(":")
            name, _, needs = start.partition(" needs ")
            found[name] = _Plugin(tuple(needs.split()), tuple(items.split()))
    return found


def first_party_names() -> tuple[str, ...]:
    """The names of all plugins of the repository."""
    return tuple(_plugins())


def first_party_items() -> tuple[str, ...]:
    """Those names, and what the plugins offer under other names."""
    return tuple(dict.fromkeys([*_plugins(), *[item for plugin in _plugins().values() for item in plugin.items]]))


def how_to_get(name: str) -> str:
    """What to do where one of these plugins, or the one that offers an item of this name, is not installed."""
    plugin = next((own for own, plugin in _plugins().items() if name in plugin.items), name)
    what = "is" if plugin == name else f"offers {name!r} and is"
    return f"the plugin {plugin!r} of Thunder's repository {what} not installed: {install_command(plugin)}"


def install_command(name: str) -> str:
    """The command that installs a project of `plugins/`, after those that it needs: from the checkout that the core
    runs from, if it does.
    """
    plugin = _plugins().get(name)
    names = (*plugin.needs, name) if plugin is not None else (name,)
    folders = [_PACKAGES / "plugins" / each for each in names]
    if all((folder / "pyproject.toml").is_file() for folder in folders):
        return f"pip install {' '.join(map(str, folders))}"
    return f"pip install {' '.join(f'./plugins/{each}' for each in names)} in a checkout"
