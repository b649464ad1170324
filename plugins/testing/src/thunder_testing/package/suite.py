"""`package_suite`: the tests of a package with plugins."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from thunder_core.plugins.importing import FAILURES
from thunder_core.plugins.specs import ExecutorSpec, TransformSpec
from thunder_testing.conformance.case import Case, as_test, with_skips
from thunder_testing.conformance.failure import as_failure
from thunder_testing.package.item_checks import check_created, check_described, check_load, check_misspelt, list_of
from thunder_testing.package.metadata_checks import (
    check_exports,
    check_hooks,
    check_interface,
    check_light,
    check_metadata,
)
from thunder_testing.package.project import Item, Plugin, Project, project_of
from thunder_testing.package.readme_examples import check_examples
from thunder_testing.package.readme_options import check_options, specific_options

Check = Callable[[], None]


def package_suite(path: str | os.PathLike[str], *, skip: Mapping[str, str] | None = None) -> Callable[..., None]:
    """The tests of a plugin's package, for a module that pytest collects: ``test_package = package_suite(__file__)``.

    ``docs/conformance.md`` describes the tests.

    Args:
        path: a file or a folder of the project, which is that of the nearest ``pyproject.toml`` above.
        skip: reasons by pattern of test ids: ``{"readme-examples": "they download a model"}``.

    Returns:
        A function that pytest runs once per test, with ids like ``my_kernels-light``.

    Raises:
        ConformanceError: the suite cannot be created.
    """
    cases = package_cases(path, skip=skip)
    return as_test(cases, "The package: metadata, imports, options, README.")


def package_cases(path: str | os.PathLike[str], *, skip: Mapping[str, str] | None = None) -> list[Case]:
    """The tests of `package_suite` as cases."""
    project = project_of(path)
    return with_skips(list(_cases(project)), skip or {})


def _cases(project: Project) -> Iterator[Case]:
    for name, check in _checks(project):
        yield Case(name, partial(as_failure, f"{project.name}, {name}", check))


def _checks(project: Project) -> Iterator[tuple[str, Check]]:
    plugins = [Plugin(project, name, target) for name, target in project.plugins.items()]
    items = [item for plugin in plugins for item in _items(plugin)]
    yield "metadata", partial(check_metadata, project)
    for plugin in plugins:
        yield f"{plugin.name}-interface", partial(check_interface, plugin)
        yield f"{plugin.name}-hooks", partial(check_hooks, plugin)
        yield f"{plugin.name}-light", partial(check_light, plugin)
        yield f"{plugin.name}-exports", partial(check_exports, plugin)
    for item in items:
        name = f"{item.plugin.name}-{item.title.replace(' ', '-')}"
        yield f"{name}-load", partial(check_load, item)
        if list_of(item) is not None:
            yield f"{name}-create", partial(check_created, item)
        if _has_options(item):
            yield f"{name}-described", partial(check_described, item)
            yield f"{name}-misspelt", partial(check_misspelt, item)
    models = {item.spec.name: item.spec.options for item in items if _has_options(item)}
    yield "readme-options", partial(check_options, project, models)
    yield "readme-examples", partial(check_examples, project, plugins)


def _items(plugin: Plugin) -> list[Item]:
    try:
        return [Item(plugin, spec) for spec in plugin.specs()]
    except FAILURES:  # reported by the test of its hooks
        return []


def _has_options(item: Item) -> bool:
    return isinstance(item.spec, ExecutorSpec | TransformSpec) and bool(specific_options(item.spec.options))
