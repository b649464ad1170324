"""The project of a package with plugins: what its ``pyproject.toml`` says of them, and what they offer."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from thunder_core.plugins.distributions import API_GROUP, GROUP, normalized
from thunder_core.plugins.host import Host
from thunder_core.plugins.importing import imported
from thunder_core.plugins.registration import register
from thunder_core.plugins.states import PluginRecord, PluginState
from thunder_core.plugins.table import WORDS
from thunder_testing.conformance.failure import Breach, ConformanceError, NotApplicable


@dataclass(frozen=True)
class Project:
    """A project.

    Attributes:
        asked: the path that it was found from.
        folder: where its ``pyproject.toml`` is.
        name: of the distribution.
        plugins: its entry points in the group ``thunder.plugins``: ``module:attribute`` by the plugin's name.
        interfaces: those in the group ``thunder.plugin_api``.
        readme: in Markdown; None if there is none.
    """

    asked: Path
    folder: Path
    name: str
    plugins: Mapping[str, str]
    interfaces: Mapping[str, str]
    readme: Path | None

    @property
    def install(self) -> str:
        """The command that installs it as it is."""
        return f"pip install --editable {self.folder}"

    @property
    def packages(self) -> frozenset[str]:
        """The top-level packages that its plugins are in."""
        return frozenset(target.partition(":")[0].partition(".")[0].strip() for target in self.plugins.values())


def project_of(path: str | os.PathLike[str]) -> Project:
    """The project that a file, or a folder, is in: that of the nearest ``pyproject.toml`` above.

    Raises:
        ConformanceError: there is none, it cannot be read, or it has no plugins.
    """
    asked = Path(path).resolve()
    folder = next((each for each in (asked, *asked.parents) if (each / "pyproject.toml").is_file()), None)
    if folder is None:
        raise ConformanceError(
            f"there is no pyproject.toml above {asked}",
            advice=("call it with a file or a folder of the project: package_suite(__file__)",),
        )
    file = folder / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConformanceError(f"{file} cannot be read: {error}") from error
    groups = project.get("entry-points", {})
    if not groups.get(GROUP) or "name" not in project:
        raise ConformanceError(
            f"{file} has no {'plugin' if 'name' in project else 'name'}",
            advice=(f'say where it is: [project.entry-points."{GROUP}"] my_kernels = "my_kernels:plugin"',),
        )
    return Project(asked, folder, project["name"], groups[GROUP], groups.get(API_GROUP, {}), _readme(folder, project))


def _readme(folder: Path, project: Mapping[str, Any]) -> Path | None:
    declared = project.get("readme", "README.md")
    name = declared.get("file", "") if isinstance(declared, dict) else declared
    found = folder / name
    return found if found.is_file() and found.suffix == ".md" else None


_USABLE: Final = (PluginState.AVAILABLE, PluginState.LOADED)


@dataclass(frozen=True)
class Plugin:
    """A plugin: its name, and where its object is, ``module:attribute``."""

    project: Project
    name: str
    target: str

    def specs(self) -> tuple[Any, ...]:
        """What its hooks return, whether its library is there or not.

        Raises:
            InvalidPlugin: they are not those of the manual.
            BaseException: whatever importing it, or a hook, raises.
        """
        return register(Host().manager, self.name, imported(self.target), of_core=False)

    def record(self) -> PluginRecord:
        """What its metadata says, as it is now. Raises Breach if it is not installed."""
        for record in Host().records:
            if record.name == self.name and normalized(record.distribution) == normalized(self.project.name):
                return record
        raise Breach("metadata", f"the plugin {self.name} is not installed: {self.project.install}")

    def why_not(self) -> str:
        """Why it cannot be used here, as that its library is absent; empty if it can."""
        record = self.record()
        return "" if record.state in _USABLE else record.why

    def require(self) -> None:
        """Raise NotApplicable where it cannot be used."""
        why = self.why_not()
        if why:
            raise NotApplicable(f"the plugin {self.name} cannot be used here: {why}")


@dataclass(frozen=True)
class Item:
    """Something that a plugin offers."""

    plugin: Plugin
    spec: Any

    @property
    def name(self) -> str:
        """What it is called; of tables, where they are."""
        name: str = self.spec.name
        return name

    @property
    def title(self) -> str:
        """``executor my_kernels``."""
        return f"{WORDS[type(self.spec)]} {self.name}"
