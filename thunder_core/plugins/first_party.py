"""Plugins of Thunder's own repository that are not installed: their names, and how to get them.

The names come with the package `thunder`, in a file; no plugin is named in the core.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

_PACKAGES: Final = Path(__file__).resolve().parents[2]
_NAMES: Final = _PACKAGES / "thunder" / "first_party_plugins.txt"


@cache
def first_party_names() -> tuple[str, ...]:
    """The names of all plugins of the repository; none where the core is installed without the file."""
    if not _NAMES.is_file():
        return ()
    lines = _NAMES.read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def how_to_get(name: str) -> str:
    """What to do where one of these plugins is not installed."""
    return f"the plugin {name!r} of Thunder's repository is not installed: {install_command(name)}"


def install_command(name: str) -> str:
    """The command that installs a project of `plugins/`: from the checkout that the core runs from, if it does."""
    folder = _PACKAGES / "plugins" / name
    if (folder / "pyproject.toml").is_file():
        return f"pip install {folder}"
    return f"pip install ./plugins/{name} in a checkout"
