"""`private_names_suite`: the tests of a table of private names."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from thunder_core.private_names import Kind, Missing, PrivateNames, Row, resolve, version_of
from thunder_core.testing.conformance.case import Case, as_test
from thunder_core.testing.conformance.failure import ConformanceError, ConformanceFailure, NotApplicable

Checks = Mapping[str, Callable[..., object]]


def private_names_suite(
    names: PrivateNames, checks: Checks, *, folders: Sequence[str | os.PathLike[str]]
) -> Callable[..., None]:
    """The tests of a table, for a module that pytest collects: ``test_names = private_names_suite(NAMES, ...)``.

    A test for each row fails, with the row's path, where the installed version has no such name although the row says
    so, and where the row's check raises. One more test fails, with file and line, where another file of the package
    imports or spells a private name of these libraries.

    Args:
        names: the table.
        checks: for each row's name a function that gets what the row gives (nothing for `Kind.SPELLED`) and raises if
            that behaves otherwise than the package takes for granted.
        folders: the package's folders; the module of the table itself is left out.

    Raises:
        ConformanceError: a row has no check, or a check no row.
    """
    return as_test(private_names_cases(names, checks, folders=folders), "The table of private names.")


def private_names_cases(
    names: PrivateNames, checks: Checks, *, folders: Sequence[str | os.PathLike[str]]
) -> list[Case]:
    """The tests of `private_names_suite`, one by one."""
    without, strange = sorted(names.rows.keys() - checks.keys()), sorted(checks.keys() - names.rows.keys())
    if without or strange:
        problem = f"rows without a check: {without}" if without else f"checks without a row: {strange}"
        raise ConformanceError(f"{names.module}: {problem}", advice=("give each row a check, by its name",))
    cases = [Case(row.path, partial(_check_row, row, checks[row.name])) for row in names.rows.values()]
    return [*cases, Case("spelled nowhere else", partial(_check_files, names, folders))]


def _check_row(row: Row, check: Callable[..., object]) -> None:
    __tracebackhide__ = True
    version = version_of(row.library)
    if reason := row.why_unused():
        raise NotApplicable(reason)
    found = resolve(row)
    if isinstance(found, Missing):
        raise ConformanceFailure(f"{row.path}, for {row.feature}: {found.reason} in version {version}")
    try:
        check() if row.kind is Kind.SPELLED else check(found)
    except Exception as error:
        raise ConformanceFailure(
            f"{row.path}, for {row.feature}, behaves otherwise in version {version}: {type(error).__name__}: {error}"
        ) from error


def _check_files(names: PrivateNames, folders: Sequence[str | os.PathLike[str]]) -> None:
    __tracebackhide__ = True
    found = [problem for folder in folders for problem in private_uses(names, folder)]
    if found:
        raise ConformanceFailure(f"private names beside {names.module}:\n" + "\n".join(found))


def private_uses(names: PrivateNames, folder: str | os.PathLike[str]) -> Iterator[str]:
    """``file:line: name`` for each private name of the table's libraries that a file below ``folder`` spells.

    That is an import, a chain of attributes of an imported module, an attribute of an object that is a row's, or a text
    that reads like a path; texts and attributes may be those of rows of `Kind.SPELLED`.
    """
    own = names.module.rpartition(".")[2] + ".py"
    for file in sorted(Path(folder).rglob("*.py")):
        if file.name != own:
            for line, name in _Uses(names, ast.parse(file.read_text(encoding="utf-8"))).found():
                yield f"{file}:{line}: {name}"


class _Uses:
    """The uses of private names in one file."""

    def __init__(self, names: PrivateNames, tree: ast.Module) -> None:
        self._tree = tree
        rows = names.rows.values()
        self._libraries = {row.library for row in rows}
        spelled = [row.path for row in rows if row.kind is Kind.SPELLED]
        self._spelled = {path.rpartition(".")[2] for path in spelled}
        self._texts = {".".join(path.split(".")[:end]) for path in (row.path for row in rows) for end in range(1, 9)}
        self._attributes = {row.path.rpartition(".")[2] for row in rows if row.kind is Kind.ATTRIBUTE}
        self._modules: dict[str, str] = {}

    def found(self) -> Iterator[tuple[int, str]]:
        """Line and name of each."""
        inner: set[int] = set()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Import):
                yield from self._import(node, [(alias.name, alias) for alias in node.names])
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from self._import(node, [(f"{node.module}.{alias.name}", alias) for alias in node.names])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and self._is_path(node.value):
                yield node.lineno, node.value
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Attribute) and id(node) not in inner:
                yield from self._attribute(node, inner)

    def _import(self, node: ast.stmt, imported: list[tuple[str, ast.alias]]) -> Iterator[tuple[int, str]]:
        for path, alias in imported:
            if path.partition(".")[0] not in self._libraries:
                continue
            name = alias.asname or (alias.name if isinstance(node, ast.ImportFrom) else path.partition(".")[0])
            self._modules[name] = path if alias.asname or isinstance(node, ast.ImportFrom) else name
            if _is_private(path):
                yield node.lineno, path

    def _attribute(self, node: ast.Attribute, inner: set[int]) -> Iterator[tuple[int, str]]:
        parts, value = [node.attr], node.value
        while isinstance(value, ast.Attribute):
            inner.add(id(value))
            parts.append(value.attr)
            value = value.value
        owner = value.id if isinstance(value, ast.Name) else ""
        if owner in self._modules:
            path = ".".join([self._modules[owner], *reversed(parts)])
            if _is_private(path):
                yield node.lineno, path
        elif owner not in ("self", "cls"):
            for part in parts:
                if part in self._attributes and part not in self._spelled:
                    yield node.lineno, part

    def _is_path(self, text: str) -> bool:
        path = text.partition("(")[0].rstrip(".")
        if path.partition(".")[0] not in self._libraries or not path.replace(".", "").isidentifier():
            return False
        return _is_private(path) and path not in self._texts


def _is_private(path: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in path.split("."))
