"""Checks of a plugin's discovery: entry points, hooks, and light imports."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys

from thunder_core.plugins.distributions import API_GROUP, GROUP
from thunder_core.plugins.hookspecs import API
from thunder_core.plugins.importing import FAILURES, failure, imported
from thunder_testing.conformance.failure import Breach
from thunder_testing.package.project import Plugin, Project


def check_metadata(project: Project) -> None:
    """Check that the installed entry points are those of ``pyproject.toml``."""
    try:
        installed = importlib.metadata.distribution(project.name).entry_points
    except importlib.metadata.PackageNotFoundError:
        raise Breach("metadata", f"{project.name} is not installed: {project.install}") from None
    for group, declared in ((GROUP, project.plugins), (API_GROUP, project.interfaces)):
        installed_points = {point.name: point.value for point in installed.select(group=group)}
        if installed_points != declared:
            raise Breach(
                "metadata",
                f"{project.name} is installed with {installed_points} in the group {group}, and pyproject.toml has "
                f"{dict(declared)}: {project.install}",
            )


def check_interface(plugin: Plugin) -> None:
    """Check that it declares the version of the plugin interface, and that this is the current one."""
    declared = plugin.project.interfaces.get(plugin.name)
    line = f'[project.entry-points."{API_GROUP}"] {plugin.name} = "{API}"'
    if declared is None:
        raise Breach("interface", f"pyproject.toml does not say what {plugin.name} was written for; add {line}")
    if declared != str(API):
        raise Breach(
            "interface",
            f"{plugin.name} was written for {declared!r} of the plugin interface, and this Thunder has {API}; read the "
            f"changelog, change what it asks for, and write {line}",
        )


def check_hooks(plugin: Plugin) -> None:
    """Check that it can be imported, and that its hooks return valid specifications."""
    try:
        plugin.specs()
    except FAILURES as error:
        raise Breach("hooks", f"{plugin.target}: {failure(error, plugin.target)}") from error


def check_light(plugin: Plugin) -> None:
    """Check that importing it and calling its hooks imports no heavy packages."""
    command = [sys.executable, "-m", "thunder_testing.package.imports", plugin.name, plugin.target]
    done = subprocess.run(command, cwd=plugin.project.folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"it ends with {done.returncode}"])[-1]
        raise Breach("hooks", f"{plugin.target}, in a fresh interpreter: {last}")
    heavy: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    if heavy:
        lines = "".join(f"\n    {place}: {', '.join(packages)}" for place, packages in heavy.items())
        raise Breach(
            "light imports",
            f"{plugin.target} is imported whenever plugins are listed, and imports more than Python's own modules and "
            f"those of thunder_core.plugins:{lines}\n  Import it in the module that `load` names.",
        )


def check_exports(plugin: Plugin) -> None:
    """Check that its module has all names in ``__all__``, if it can be used, and no others by a ``__getattr__``."""
    module = imported(plugin.target.partition(":")[0])
    unknown = "name_that_no_package_exports"
    if hasattr(module, unknown):
        raise Breach(
            "exports",
            f"{module.__name__} has an attribute {unknown!r}: its __getattr__ must raise AttributeError for it",
        )
    plugin.require()
    for name in getattr(module, "__all__", ()):
        try:
            getattr(module, name)
        except FAILURES as error:
            raise Breach(
                "exports", f"{module.__name__}.__all__ has {name!r}: {failure(error, plugin.target)}"
            ) from error
