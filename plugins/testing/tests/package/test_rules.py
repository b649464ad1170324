"""Each rule of `package_suite`, kept and broken."""

from __future__ import annotations

import shutil

import pytest
from package_project import Package

from thunder_testing import ConformanceFailure

# A mistake: the file, its text before and after; the test that fails, and its message.
BROKEN = {
    "stale metadata": ("pyproject.toml", 'rows = "MODULE"', 'rows = "MODULE.plugin"', "metadata", "pip install --edit"),
    "no interface": ("pyproject.toml", 'rows = "1"', "", "rows-interface", 'plugin_api"] rows = "1"'),
    "another interface": ("pyproject.toml", 'rows = "1"', 'rows = "99"', "rows-interface", "written for '99'"),
    "a library that is absent": ("__init__.py", "", "import absent_library\n", "rows-hooks", "No module named"),
    "an unmarked hook": ("__init__.py", "@hookimpl\ndef thunder_d", "def thunder_d", "rows-hooks", "with @hookimpl"),
    "no target": ("__init__.py", "executor:make", "executor.make", "rows-hooks", "not of the form"),
    "PyTorch, by the executor": ("__init__.py", "", "import MODULE.executor\n", "rows-light", "executor.py:1: torch, "),
    "another library": ("__init__.py", "", "import yaml\n", "rows-light", "__init__.py:1: yaml\n"),
    "one in a hook": ("__init__.py", "    return [C", "    import yaml\n    return [C", "*-light", "py:56: yaml\n"),
    "ends Python": ("__init__.py", "", "import sys\nsys.exit(3)\n", "rows-light", "it ends with 3"),
    "no executor": ("__init__.py", "executor:make", "executor:made", "rows-executor-rows-load", "has no made"),
    "an executor of no options": ("executor.py", "make =", "make = 3; other =", "*-rows-load", "int, and cannot be"),
    "no check": ("__init__.py", "executor:check", "absent:check", "rows-check-the-driver-load", "absent"),
    "no front end": ("__init__.py", "executor:record", "executor:recorded", "*-front-end-record-load", "recorded"),
    "no rows": ("executor.py", "SYMBOLS = ()", "SYMBOLS = (3,)", "rows-table-of-symbols-*-load", "not only Row"),
    "no preset": ("__init__.py", "fast.yaml", "faster.yaml", "rows-preset-fast-load", "that is not there"),
    "no package of presets": ("__init__.py", '"fast", "MODULE"', '"fast", "absent"', "*-fast-load", "absent, which"),
    "an absent name": ("__init__.py", '["Options"]', '["Options", "Option"]', "*-exports", "__all__ has 'Option'"),
    "every name": (
        "__init__.py", "class Options(", "__getattr__ = str\n\n\nclass Options(",
        "rows-exports", "its __getattr__ must raise AttributeError",
    ),
    "another name": ("executor.py", 'place = "slow",', 'place = "fast",', "rows-transform-slow-create", "name 'fast'"),
    "no transform": ("executor.py", "options: Slow()", "options: 3", "*-transform-slow-create", "return a Transform"),
    "an error": ("executor.py", "options: Slow()", "options: 1 / 0", "*-transform-slow-create", "ZeroDivisionError"),
    "no word": ("__init__.py", '    """Rows of more elements are declined."""\n', "", "*-rows-described", "largest"),
    "takes anything": (
        "__init__.py", "    largest: int", "    model_config = {'extra': 'allow'}\n    largest: int",
        "rows-executor-rows-misspelt", "takes an option 'llargest'",
    ),
    "another default": ("__init__.py", "= 4096", "= 8192", "readme-options", "UPDATE_DOCUMENTS=1 pytest"),
    "another option": ("__init__.py", "seconds: float", "minutes: float", "readme-options", "+| `minutes` |"),
    "no table": ("README.md", "<!-- options rows -->\n", "", "readme-options", "options rows -->\n    <!-- end"),
    "no end": ("README.md", "declined. |\n\n<!-- end of options -->", "", "readme-options", "no table has largest"),
    "no such name": ("README.md", "options rows -->", "options row -->", "readme-options", "did you mean 'rows'"),
    "no options of a name": ("README.md", "slow slower -->", "slow slowest -->", "readme-options", "nothing called so"),
    "nothing in common": ("README.md", "slow slower -->", "slow rows -->", "readme-options", "none for a table"),
    "no README": ("pyproject.toml", 'readme = "README.md"', 'readme = "README.rst"', "readme-options", "has no README"),
    "an example that fails": ("README.md", "[4, 4]", "[4, 5]", "readme-examples", "README.md:51: AssertionError"),
    "an example that ends": ("README.md", "number = 3", "raise SystemExit", "*-examples", "README.md:39: SystemExit"),
    "an example that is not Python": ("README.md", "number = 3", "number =", "*-examples", "README.md:39: invalid"),
}  # fmt: skip


@pytest.mark.slow
def test_a_package_that_keeps_the_rules(package: Package) -> None:
    package.install()
    cases = package.cases()
    for case in cases:
        case.check()
    kinds = ["executor-rows", "transform-slow", "transform-slower"]
    assert [case.id for case in cases if case.id.endswith("misspelt")] == [f"rows-{kind}-misspelt" for kind in kinds]
    assert {"metadata", "rows-light", "rows-transform-slowest-load", "readme-options"} <= {case.id for case in cases}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.battery
def test_a_broken_rule_is_told(package: Package, what: str) -> None:
    name, right, wrong, pattern, words = BROKEN[what]
    package.change(name, right, wrong)
    package.install()
    with pytest.raises(ConformanceFailure) as caught:
        package.run(pattern)
    assert words in str(caught.value)
    assert str(caught.value).startswith("plugin-rows, ")


@pytest.mark.parametrize("pattern", ["metadata", "rows-executor-rows-load"])
def test_what_is_not_installed(package: Package, pattern: str) -> None:
    package.install()
    shutil.rmtree(package.metadata)
    with pytest.raises(ConformanceFailure, match="is not installed: pip install --editable"):
        package.run(pattern)
