"""Create a plugin from templates. The templates are a plugin called my_kernels; its name is replaced by the new one."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import importlib.util
import keyword
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from typing import Final

from thunder_core import PACKAGES
from thunder_core._version import __version__
from thunder_core.errors import ThunderError
from thunder_core.plugins import API

_SUFFIX: Final = ".template"
_LONGEST: Final = 40

KERNEL: Final = "scaffold"
FRONT_END: Final = "scaffold_front_end"
TRANSFORM: Final = "scaffold_transform"
"""The folders of templates."""


@dataclass(frozen=True)
class NewPlugin:
    """A new plugin.

    Attributes:
        name: the name of its package, and of the plugin in configurations.
        templates: the folder of its templates.
    """

    name: str
    templates: str = KERNEL

    @property
    def distribution(self) -> str:
        """The name of its distribution."""
        return f"thunder-plugin-{self.name.replace('_', '-')}"

    def fill(self, text: str) -> str:
        """The text or the path of a template with the names of this plugin."""
        replaced = text.replace("thunder-plugin-my-kernels", self.distribution).replace("my_kernels", self.name)
        return replaced.replace("{version}", __version__).replace("{api}", str(API))


def name_problem(name: str) -> str | None:
    """Why ``name`` is not a valid name of a plugin; None if it is."""
    if re.fullmatch("[a-z][a-z0-9_]*", name) is None or keyword.iskeyword(name):
        return (
            f"{name!r} is not a valid package name; use lower-case letters, digits and '_', starting with a letter: "
            "my_kernels"
        )
    if len(name) > _LONGEST:
        return f"{name!r} has {len(name)} characters; the limit is {_LONGEST}"
    if name in sys.stdlib_module_names:
        return f"Python has a module {name!r}; choose another name"
    return None


def taken(name: str) -> str | None:
    """Why ``name`` clashes with an installed package or plugin; None if it does not."""
    others = set(importlib.metadata.packages_distributions().get(name, ())) - {NewPlugin(name).distribution}
    if others or name in PACKAGES:
        return f"{', '.join(sorted(others)) or 'thunder-core'} installs a package {name!r}; choose another name"
    found_plugins = importlib.metadata.entry_points(group="thunder.plugins", name=name)
    owners = [entry.dist.name for entry in found_plugins if entry.dist is not None]
    if owners or name == "core":
        owner = ", ".join(owners) or "thunder-core"
        return f"{owner} has a plugin {name!r}; choose another name, or uninstall it first"
    found = importlib.util.find_spec(name)  # also packages that are installed as editable
    if found is None or found.origin is None:
        return None
    return f"a module {name!r} exists, {found.origin}; choose another name"


def write_plugin(plugin: NewPlugin, folder: Path) -> Sequence[Path]:
    """Write the plugin to ``folder``, which must not exist.

    Returns:
        The files, sorted.

    Raises:
        ThunderError: a file could not be written.
    """
    templates = importlib.resources.files("thunder.command_line") / plugin.templates
    written = []
    try:
        for relative, template in _files(templates, PurePosixPath()):
            path = folder / plugin.fill(str(relative)).removesuffix(_SUFFIX)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(plugin.fill(template.read_text(encoding="utf-8")), encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise ThunderError(
            f"{folder} could not be written: {error}",
            advice=("check the permissions of the folder, or use --directory",),
        ) from error
    return sorted(written)


def _files(folder: Traversable, inside: PurePosixPath) -> Iterator[tuple[PurePosixPath, Traversable]]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _files(item, inside / item.name)
        elif item.name.endswith(_SUFFIX):
            yield inside / item.name, item
