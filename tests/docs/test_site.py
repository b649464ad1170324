"""The site: its navigation has all pages, and its reference has all public names. ``scripts/docs`` checks the rest."""

import importlib
import inspect
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.main import get_command

import thunder_core.errors
from thunder.command_line.main import app
from thunder.config.model import ThunderConfig

ROOT = Path(__file__).resolve().parents[2]
IMPORT = re.compile(r"^ *from (thunder\S*) import ([\w, ]+|\([^)]*\))", re.MULTILINE)
ENTRIES = [
    entry
    for page in sorted((ROOT / "docs" / "reference").glob("*.md"))
    for entry in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "docs"))


PACKAGES = ["thunder", "thunder.config", "thunder_core.executors", "thunder_core.plugins"]
PACKAGES += sorted(path.parent.name for path in (ROOT / "plugins").glob("*/src/*/__init__.py"))
DESCRIBED = {
    *("thunder_core.plugins.API", "thunder_core.plugins.hookimpl"),  # in the page of the hooks
    "thunder_core.executors.Decision",  # the union of two entries
}


@pytest.mark.parametrize("package", PACKAGES)
def test_reference_has_each_public_name_of_a_package(package: str) -> None:
    names = getattr(importlib.import_module(package), "__all__", ())
    assert not {f"{package}.{name}" for name in names} - set(ENTRIES) - DESCRIBED


def test_reference_has_each_error_and_warning() -> None:
    entries = {id(_resolve(entry)) for entry in ENTRIES}
    raised = (thunder_core.errors.ThunderError, Warning)
    kinds = [kind for kind in vars(thunder_core.errors).values() if inspect.isclass(kind) and issubclass(kind, raised)]
    assert len(kinds) > 20
    assert not [kind for kind in kinds if id(kind) not in entries]


def test_reference_has_each_name_that_pages_import() -> None:
    """The pages for users and authors of plugins: what they tell to import is public, whatever its module is."""
    entries = {id(_resolve(entry)) for entry in ENTRIES}
    imported = {
        f"{module}.{name}"
        for page in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("plugins/*/README.md")]
        for module, names in IMPORT.findall(page.read_text())
        for name in re.findall(r"\w+", names)
    }
    assert len(imported) > 50
    absent = {
        path
        for path in imported - set(ENTRIES) - DESCRIBED
        if not inspect.ismodule(found := _resolve(path)) and not {id(found), id(type(found))} & entries
    }
    assert not absent


def test_the_page_about_the_command_line_has_each_command_and_option() -> None:
    text = (ROOT / "docs" / "command_line.md").read_text()
    words = {word for path, option in _options(get_command(app), "thunder") for word in (path, option)}
    assert len(words) > 40
    assert not [word for word in words if word not in text]


def _options(command: Any, path: str) -> Iterator[tuple[str, str]]:
    """Each option of a command and of its subcommands, after the command's path."""
    context = typer.Context(command)
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from _options(command.get_command(context, name), f"{path} {name}")
    for parameter in command.params:
        yield from ((path, option) for option in parameter.opts if option.startswith("--"))


def test_the_page_about_configurations_has_each_option() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    assert not [name for name in ThunderConfig.model_fields if f"`{name}`" not in text]


def test_entries_of_the_reference_are_documented_objects() -> None:
    assert len(ENTRIES) == len(set(ENTRIES))
    for entry in ENTRIES:
        found = _resolve(entry)
        assert isinstance(found, str) or found.__doc__, entry


def _resolve(path: str) -> Any:
    module, _, name = path.rpartition(".")
    owner = importlib.import_module(module)
    return getattr(owner, name) if hasattr(owner, name) else importlib.import_module(path)


def test_navigation_has_each_page_once(script: dict[str, Any]) -> None:
    navigation = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(navigation) == sorted(map(str, script["documents"]()))


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the page is about one version of torch.compile")
def test_the_page_about_torch_compile_has_each_argument_mode_log_and_function() -> None:
    from torch._inductor import list_mode_options
    from torch._logging._internal import log_registry

    text = (ROOT / "docs" / "migration_torch_compile.md").read_text()
    words = set(re.findall(r"[\w-]+", text))
    logs = {*log_registry.artifact_names, *log_registry.log_alias_to_log_qnames}
    logs -= {name for name in logs if name in ("all", "custom_format_test_artifact")}
    for names in (inspect.signature(torch.compile).parameters, list_mode_options(), logs, torch.compiler.__all__):
        assert not sorted(set(names) - words)


def test_lists_are_lists_on_the_site(script: dict[str, Any]) -> None:
    """GitHub needs neither a blank line before a list nor four spaces for a nested one; Python-Markdown needs both."""
    written = "Two items:\n- one\n  goes on\n  - nested\n- two\n\n```text\n- code\n  - code\n```\n"
    expected = "Two items:\n\n- one\n    goes on\n    - nested\n- two\n\n```text\n- code\n  - code\n```\n"
    assert script["for_mkdocs"](written) == expected


def test_comments_for_tests_are_not_on_the_site(script: dict[str, Any]) -> None:
    assert script["for_mkdocs"]("a\n\n<!-- output: x -->\n```text\nb\n```\n") == "a\n\n```text\nb\n```\n"
