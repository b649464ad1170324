"""The project of a package with plugins: the contents of ``pyproject.toml``, and the items that the plugins offer."""

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
from thunder_testing.conformance.failure import Breach, ConformanceError, NotApplicable


@dataclass(frozen=True)
class Project:
    """A project.

    Attributes:
        start: the path from which it was located.
        folder: the folder of its ``pyproject.toml``.
        name: of the distribution.
        plugins: its entry points in the group ``thunder.plugins``: ``module:attribute`` by plugin name.
        interfaces: its entry points in the group ``thunder.plugin_api``.
        readme: its README in Markdown; None if there is none.
    """

    start: Path
    folder: Path
    name: str
    plugins: Mapping[str, str]
    interfaces: Mapping[str, str]
    readme: Path | None

    @property
    def install(self) -> str:
        """The command that installs it in editable mode."""
        return f"pip install --editable {self.folder}"

    @property
    def packages(self) -> frozenset[str]:
        """The top-level packages of its plugins."""
        return frozenset(target.partition(":")[0].partition(".")[0].strip() for target in self.plugins.values())


def project_of(path: str | os.PathLike[str]) -> Project:
    """The project of a file or folder: that of the nearest ``pyproject.toml`` above.

    Raises:
        ConformanceError: there is none, it cannot be read, or it has no plugins.
    """
    start = Path(path).resolve()
    folder = next((each for each in (start, *start.parents) if (each / "pyproject.toml").is_file()), None)
    if folder is None:
        raise ConformanceError(
            f"there is no pyproject.toml above {start}",
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
    return Project(start, folder, project["name"], groups[GROUP], groups.get(API_GROUP, {}), _readme(folder, project))


def _readme(folder: Path, project: Mapping[str, Any]) -> Path | None:
    declared = project.get("readme", "README.md")
    name = declared.get("file", "") if isinstance(declared, dict) else declared
    file_ = folder / name
    return file_ if file_.is_file() and file_.suffix == ".md" else None


_USABLE: Final = (PluginState.AVAILABLE, PluginState.LOADED)


@dataclass(frozen=True)
class Plugin:
    """A plugin: its name, and the location of its object as ``module:attribute``."""

    project: Project
    name: str
    target: str

    def specs(self) -> tuple[Any, ...]:
        """The specifications that its hooks return, whether its library is installed or not.

        Raises:
            InvalidPlugin: they are invalid.
            BaseException: an exception of importing the plugin, or of a hook.
        """
        return register(Host().manager, self.name, imported(self.target))

    def record(self) -> PluginRecord:
        """Its current metadata. Raises Breach if it is not installed."""
        for record in Host().records:
            if record.name == self.name and normalized(record.distribution) == normalized(self.project.name):
                return record
        raise Breach("metadata", f"the plugin {self.name} is not installed: {self.project.install}")

    def why_not(self) -> str:
        """The reason why it cannot be used, such as a missing library; empty if it can."""
        record = self.record()
        return "" if record.state in _USABLE else record.why

    def require(self) -> None:
        """Raise NotApplicable if it cannot be used."""
        why = self.why_not()
        if why:
            raise NotApplicable(f"the plugin {self.name} cannot be used here: {why}")


@dataclass(frozen=True)
class Item:
    """An item that a plugin offers."""

    plugin: Plugin
    spec: Any

    @property
    def name(self) -> str:
        """Its name; for tables the location."""
        name: str = self.spec.name
        return name

    @property
    def title(self) -> str:
        """The kind and the name: ``executor my_kernels``."""
        return f"{self.spec.word} {self.name}"
