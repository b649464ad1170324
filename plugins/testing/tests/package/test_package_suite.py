"""How the suite is made, what pytest makes of it, and how it writes a README's tables."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from forked_pytest import run_pytest
from package_project import README, Package

from thunder_testing import ConformanceError, package_suite

FILE = "from thunder_testing import package_suite\n\ntest_package = package_suite(__file__)\n"


def run(package: Package, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """pytest on a file of the project, away from this checkout."""
    tests = package.folder / "tests"
    tests.mkdir(exist_ok=True)
    (tests / "test_package.py").write_text(FILE)
    return run_pytest("-q", str(tests), *arguments, directory=package.folder, **variables)


@pytest.mark.slow
def test_tables_are_written_where_it_is_asked_for(package: Package) -> None:
    package.change("__init__.py", "= 4096", "= 8192")
    package.change("README.md", "| `seconds` | number |", "| `minutes` | text |")
    package.install()
    select = ("-k", "readme-options")
    failed = run(package, *select)
    assert failed.returncode == 1, failed.stdout
    assert "-| `minutes` | text | `0.5` | How long. |" in failed.stdout
    assert f"run UPDATE_DOCUMENTS=1 pytest {package.folder}/tests/test_package.py -k readme-options" in failed.stdout
    written = run(package, *select, UPDATE_DOCUMENTS="1")
    assert written.returncode == 0, written.stdout
    assert package.path("README.md").read_text() == README.replace("`4096`", "`8192`")
    assert run(package, *select).returncode == 0


def test_a_table_is_written_between_empty_marks(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    start = README.index("\n| option", README.index("options rows"))
    package.path("README.md").write_text(README[:start] + README[README.index("<!-- end of", start) :])
    package.install()
    monkeypatch.setenv("UPDATE_DOCUMENTS", "1")
    package.run("readme-options")
    assert package.path("README.md").read_text() == README


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no pyproject.toml above"),
        ("[project", "cannot be read"),
        ('[project]\nname = "a"\n', "has no plugin"),
        ('[project.entry-points."thunder.plugins"]\na = "b"\n', "has no name"),
    ],
)
def test_a_project_that_is_none(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ConformanceError, match=words):
        package_suite(tmp_path / "tests" / "test_package.py")


def test_tests_are_left_out_with_a_reason(package: Package) -> None:
    package.install()
    skipped = {case.id: case.skip for case in package.cases(skip={"*-light": "it has its own test"}) if case.skip}
    assert skipped == {"rows-light": "it has its own test"}
    with pytest.raises(ConformanceError, match="matches none of the"):
        package.cases(skip={"*-lihgt": "misspelt"})
