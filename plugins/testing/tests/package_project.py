"""A package with a plugin that keeps all rules, for tests that break one of them."""

from __future__ import annotations

import itertools
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from thunder_testing.conformance.case import Case
from thunder_testing.distributions import write_metadata
from thunder_testing.package.suite import package_cases

_numbers = itertools.count()

PYPROJECT = """\
[project]
name = "plugin-rows"
version = "1.0"
readme = "README.md"

[project.entry-points."thunder.plugins"]
rows = "MODULE"

[project.entry-points."thunder.plugin_api"]
rows = "1"
"""
PLUGIN = '''\
from thunder_core.plugins import (
    CheckSpec, ExecutorOptions, ExecutorSpec, FrontEndSpec, Preset, SymbolsSpec, TransformOptions, TransformSpec,
    hookimpl,
)

__all__ = ["Options"]


class Options(ExecutorOptions):
    largest: int = 4096
    """Rows of more elements are declined."""


class SlowOptions(TransformOptions):
    lines: tuple[str, ...] = ()
    """Which lines."""
    seconds: float = 0.5
    """How long."""


class SlowerOptions(TransformOptions):
    lines: tuple[str, ...] = ()
    """Which lines."""
    hours: int | None = None
    """How long."""


@hookimpl
def thunder_executors():
    return [ExecutorSpec("rows", "MODULE.executor:make", Options)]


@hookimpl
def thunder_transforms():
    found = {"slow": SlowOptions, "slower": SlowerOptions, "slowest": TransformOptions}
    return [TransformSpec(name, f"MODULE.executor:{name}", options) for name, options in found.items()]


@hookimpl
def thunder_symbols():
    return [SymbolsSpec("MODULE.executor:SYMBOLS")]


@hookimpl
def thunder_front_ends():
    return [FrontEndSpec("record", "MODULE.executor:record")]


@hookimpl
def thunder_presets():
    return [Preset("fast", "MODULE", "fast.yaml")]


@hookimpl
def thunder_doctor():
    return [CheckSpec("the driver", "MODULE.executor:check")]
'''
EXECUTOR = """\
import torch

from thunder_core.executors import Claim, OperatorExecutor
from thunder_core.passes.transform import Place, Transform

SYMBOLS = ()
make = lambda options: OperatorExecutor("rows", (Claim(torch.relu, lambda input: input.clamp(0)),))
check = print


class record:
    record = print


class Slow(Transform):
    name, place = "slow", Place.LAST


class Slower(Transform):
    name, place = "slower", Place.LAST


class Slowest(Transform):
    name, place = "slowest", Place.LAST


slow = lambda options: Slow()
slower = lambda options: Slower()
slowest = lambda options: Slowest()
"""
README = """\
# plugin-rows

<!-- options rows -->

| option | values | default | meaning |
|---|---|---|---|
| `largest` | integer | `4096` | Rows of more elements are declined. |

<!-- end of options -->

<!-- options slow slower -->

| option | values | default | meaning |
|---|---|---|---|
| `lines` | list of strings | `[]` | Which lines. |

<!-- end of options -->

<!-- options slow -->

| option | values | default | meaning |
|---|---|---|---|
| `seconds` | number | `0.5` | How long. |

<!-- end of options -->

<!-- options slower -->

| option | values | default | meaning |
|---|---|---|---|
| `hours` | integer or `null` | `null` | How long. |

<!-- end of options -->

```python
import torch
import thunder

number = 3
```

```text
$ no Python
```

```python
def program(x):
    return torch.relu(x) + number

compiled = thunder.jit(program, executors=["rows"])
assert compiled(torch.ones(2)).tolist() == [4, 4]
```
"""


class Package:
    """The project and, on the path, what is installed of it."""

    def __init__(self, folder: Path, site: Path) -> None:
        self.folder = folder
        self.site = site
        self.module = f"thunder_test_module_package_{next(_numbers)}"
        self.source = self.site / self.module
        self.paths = {"pyproject.toml": folder, "README.md": folder}
        files = {"pyproject.toml": PYPROJECT, "README.md": README, "__init__.py": PLUGIN, "executor.py": EXECUTOR}
        folder.mkdir()
        self.source.mkdir()
        for name, text in {**files, "fast.yaml": "executors: [rows]\n"}.items():
            self.path(name).write_text(text.replace("MODULE", self.module))
        self.metadata: Path | None = None

    def path(self, name: str) -> Path:
        """A file of the project, or of its package."""
        return self.paths.get(name, self.source) / name

    def change(self, name: str, right: str, wrong: str) -> None:
        """Write one thing otherwise; an empty ``right`` is the beginning of the file."""
        text, right = self.path(name).read_text(), right.replace("MODULE", self.module)
        assert not right or text.count(right) == 1
        self.path(name).write_text(text.replace(right, wrong.replace("MODULE", self.module), 1))

    def install(self, **metadata: Any) -> None:
        """Its metadata as pip would write it; with ``requires`` and ``extras``, a library."""
        points = {"plugins": {"rows": self.module}, "interfaces": {"rows": "1"}}
        self.metadata = write_metadata(self.site, "plugin-rows", **points, **metadata)

    def cases(self, pattern: str = "*", **options: object) -> list[Case]:
        """The tests of the suite with such ids."""
        found = package_cases(self.folder, **options)
        return [case for case in found if fnmatchcase(case.id, pattern)]

    def run(self, pattern: str) -> None:
        """The one test with such an id."""
        (case,) = self.cases(pattern)
        case.check()
