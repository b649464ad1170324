"""What the machine does not have is a reason to skip a test, and nothing else is."""

from __future__ import annotations

import pytest
import torch
from package_project import Package

from thunder_testing import ConformanceFailure
from thunder_testing.conformance.failure import NotApplicable

LIBRARY = {"requires": ('absent-library>=2; extra == "lib"',), "extras": ("lib",)}
WHY = "it needs absent-library, which is not installed"


@pytest.mark.slow
def test_what_cannot_be_used_is_not_loaded(package: Package) -> None:
    package.install(**LIBRARY)
    for case in package.cases("*-load"):
        with pytest.raises(NotApplicable, match=WHY):
            case.check()
    for case in package.cases("rows-[il]*"):  # interface, light: metadata and hooks need no library
        case.check()


@pytest.mark.parametrize("pattern", ["rows-exports", "rows-executor-rows-create"])
def test_what_cannot_be_used_is_not_created(package: Package, pattern: str) -> None:
    package.install(**LIBRARY)
    with pytest.raises(NotApplicable, match=WHY):
        package.run(pattern)


def test_a_refusal_of_the_plugin_is_a_reason_to_skip(package: Package) -> None:
    lines = (
        "def slow(options):",
        "    from thunder_core.errors import PluginError",
        "    raise PluginError('no card')",
    )
    package.change("executor.py", "slow = lambda options: Slow()", "\n".join(lines))
    package.install()
    with pytest.raises(NotApplicable, match="no card"):
        package.run("rows-transform-slow-create")


@pytest.mark.parametrize(
    ("examples", "problem"), [("", "needs seconds, for which there is no example"), (", examples=[2.0]", "")]
)
def test_an_option_that_must_be_given_has_its_first_example(package: Package, examples: str, problem: str) -> None:
    package.change("__init__.py", "seconds: float = 0.5", f"seconds: float = Field(...{examples})")
    package.change("__init__.py", "", "from pydantic import Field\n")
    package.install()
    if problem:
        with pytest.raises(NotApplicable, match=problem):
            package.run("rows-transform-slow-create")
    else:
        package.run("rows-transform-slow-create")


def test_an_example_that_names_what_cannot_be_used_is_skipped(package: Package) -> None:
    package.install(**LIBRARY)
    with pytest.raises(NotApplicable, match=rf"README.md:50: {WHY}"):
        package.run("readme-examples")


@pytest.mark.parametrize("line", ["import absent_library", "from absent_library.parts import thing"])
def test_an_example_that_imports_an_absent_library_is_skipped(package: Package, line: str) -> None:
    package.change("README.md", "number = 3", line)
    package.install(**LIBRARY)
    with pytest.raises(NotApplicable, match=r"README.md:39: it needs absent-library"):
        package.run("readme-examples")


@pytest.mark.parametrize(
    "line", ["import MODULE.absent", "from MODULE import absent", "import thunder.absent", "1 / 0"]
)
def test_other_errors_are_failures_without_the_library_too(package: Package, line: str) -> None:
    package.change("README.md", "number = 3", line)
    package.install(**LIBRARY)
    with pytest.raises(ConformanceFailure, match=r"README.md:39: "):
        package.run("readme-examples")


def test_with_the_library_an_import_that_fails_is_a_failure(package: Package) -> None:
    package.change("README.md", "number = 3", "import absent_library")
    package.install()
    with pytest.raises(ConformanceFailure, match=r"README.md:39: ModuleNotFoundError"):
        package.run("readme-examples")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("line", ["x = torch.ones(2, device='cuda')", "x = torch.nn.Linear(2, 2).cuda()"])
def test_an_example_that_needs_a_gpu_is_skipped(package: Package, line: str) -> None:
    package.change("README.md", "number = 3", line)
    package.install()
    with pytest.raises(NotApplicable, match=r"README.md:39: there is no such device"):
        package.run("readme-examples")


def test_nothing_to_test_is_a_skip(package: Package) -> None:
    text = package.path("README.md").read_text()
    package.path("README.md").write_text(text.replace("```python", "```py"))
    package.install()
    with pytest.raises(NotApplicable, match="no README in Markdown with a block"):
        package.run("readme-examples")
