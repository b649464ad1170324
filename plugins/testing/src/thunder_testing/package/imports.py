"""The packages that importing a plugin imports, determined in a new interpreter.

``python -m thunder_testing.package.imports NAME TARGET`` imports the plugin, calls its hooks, and prints the imported
packages that are neither of Python's standard library, nor the plugin's, nor required to list plugins, by the lines
that imported them first.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from types import FrameType

from thunder_core import PACKAGES
from thunder_core.plugins.host import Host
from thunder_core.plugins.importing import imported
from thunder_core.plugins.registration import register

"""Packages that are allowed. Their heavy parts import PyTorch, which is reported."""


class _Witness:
    """A meta path finder that finds nothing, and records which frame imports a package first."""

    def __init__(self, own: str) -> None:
        self.own = own
        self.places: dict[str, str] = {}

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        """Called for each module before other finders."""
        self.places.setdefault(_top(name), _place(sys._getframe(1), self.own))


def heavy_imports(name: str, target: str) -> dict[str, list[str]]:
    """The packages, by the file and line that imports them first, in the order of imports.

    Raises:
        BaseException: an exception of importing the plugin, or of a hook.
    """
    manager, own = Host().manager, _top(target.partition(":")[0])
    before = {_top(module) for module in sys.modules}
    witness = _Witness(own)
    sys.meta_path.insert(0, witness)
    register(manager, name, imported(target))
    sys.meta_path.remove(witness)
    new = {_top(module) for module in sys.modules} - before - {*PACKAGES} - {own}
    heavy: dict[str, list[str]] = {}
    for package, place in witness.places.items():  # added to `sys.modules` by other modules
        if package in new and not _is_pythons(package):
            heavy.setdefault(place, []).append(package)
    return heavy


def _top(module: str) -> str:
    return module.partition(".")[0].strip()


def _is_pythons(package: str) -> bool:
    return package in sys.stdlib_module_names or package.startswith("_sysconfigdata")


def _place(frame: FrameType | None, own: str) -> str:
    """The innermost frame in the plugin; without one, the innermost outside of Python's import system."""
    others = []
    while frame is not None:
        package, line = _top(frame.f_globals.get("__name__", "")), f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if package == own:
            return line
        if package not in ("importlib", "_frozen_importlib", "_frozen_importlib_external"):
            others.append(line)
        frame = frame.f_back
    return others[0] if others else ""


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(heavy_imports(*sys.argv[1:])))
