"""Names of the plugins in Thunder's repository, and the commands that install them.

The names are in a file of the package `thunder`: the core has no names of plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

_PACKAGES: Final = Path(__file__).resolve().parents[2]
_NAMES: Final = _PACKAGES / "thunder" / "first_party_plugins.txt"
_NEEDS: Final = " needs "
_RECORDS: Final = " records "
_COMPILES: Final = " compiles "
_REPLACES: Final = " replaces "
_RELATIONS: Final = (_NEEDS, _RECORDS, _COMPILES, _REPLACES)


def _lines() -> list[str]:
    """Lines like ``plugin``, ``plugin: item item``, ``project needs project``, ``plugin records subject``, ``plugin
    compiles class`` and ``plugin replaces executor``; none where there is no file.
    """
    if not _NAMES.is_file():
        return []
    return [line for line in _NAMES.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


@cache
def _offers() -> Mapping[str, frozenset[str]]:
    """The plugins of the repository, each with the other names of its items."""
    pairs = [line.partition(":") for line in _lines() if not any(word in line for word in _RELATIONS)]
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
    """The names of the plugins and of their items."""
    return tuple(dict.fromkeys([*_offers(), *[item for items in _offers().values() for item in sorted(items)]]))


def how_to_get(name: str) -> str:
    """Advice for the name of a plugin that is not installed, or of an item of such a plugin."""
    plugin = next((plugin for plugin, items in _offers().items() if name in items), name)
    what = "is" if plugin == name else f"offers {name!r} and is"
    return f"the plugin {plugin!r} of Thunder's repository {what} not installed: {install_command(plugin)}"


def projects_needed_by(name: str) -> tuple[str, ...]:
    """The projects of `plugins/` that one of them requires."""
    return _needs().get(name, ())


def subject_of(name: str) -> str:
    """The calls that a plugin of the repository records and the core refuses: ``TorchScript``; empty for others."""
    pairs = [line.partition(_RECORDS) for line in _lines() if _RECORDS in line]
    return next((subject for plugin, _, subject in pairs if plugin == name), "")


def plugin_that_compiles(path: str) -> str:
    """The plugin of the repository whose front end records programs of the class at a dotted path; empty for none."""
    pairs = [line.partition(_COMPILES) for line in _lines() if _COMPILES in line]
    return next((plugin for plugin, _, kind in pairs if kind == path), "")


def plugin_that_replaces(executor: str) -> str:
    """The plugin of the repository in place of an executor of lightning-thunder; empty for none."""
    pairs = [line.partition(_REPLACES) for line in _lines() if _REPLACES in line]
    return next((plugin for plugin, _, executors in pairs if executor in executors.split()), "")


def install_command(name: str) -> str:
    """The command that installs a project of `plugins/` and the projects there that it requires.

    If the core runs from a checkout, the command has the paths of the projects in it.
    """
    names = [*projects_needed_by(name), name]
    folders = [_PACKAGES / "plugins" / name for name in names]
    if all((folder / "pyproject.toml").is_file() for folder in folders):
        return f"pip install {' '.join(map(str, folders))}"
    return f"pip install {' '.join([f'./plugins/{name}' for name in names])} in a checkout"
