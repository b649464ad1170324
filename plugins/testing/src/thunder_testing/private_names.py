"""`private_names_suite`: the tests of a table of private names."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from thunder_core import PACKAGES
from thunder_core.private_names import EntryPoint, Kind, Missing, Name, PrivateNames, resolve, version_of
from thunder_testing.conformance.case import Case, as_test
from thunder_testing.conformance.failure import ConformanceError, ConformanceFailure, NotApplicable

Checks = Mapping[str, Callable[..., object]]

_OF_NAMED_TUPLES: Final = frozenset({"_asdict", "_field_defaults", "_fields", "_make", "_replace"})


def private_names_suite(
    names: PrivateNames, checks: Checks, *, folders: Sequence[str | os.PathLike[str]]
) -> Callable[..., None]:
    """The tests of a table, for a module that pytest collects: ``test_names = private_names_suite(NAMES, ...)``.

    The test of a row fails, with the row's path, if the installed version lacks the name although the row includes this
    version, or if the row's check raises. One more test fails, with file and line, if another file of the package
    imports or spells a private name of another package.

    Args:
        names: the table.
        checks: for the name of each row, a function of the row's object (without arguments for `Kind.NAME_ONLY`) that
            raises if its behavior is not the expected one.
        folders: the package's folders; the module of the table is excluded.

    Raises:
        ConformanceError: a row has no check, or a check no row.
    """
    return as_test(private_names_cases(names, checks, folders=folders), "The table of private names.")


def private_names_cases(
    names: PrivateNames, checks: Checks, *, folders: Sequence[str | os.PathLike[str]]
) -> list[Case]:
    """The tests of `private_names_suite` as cases."""
    without, strange = sorted(names.rows.keys() - checks.keys()), sorted(checks.keys() - names.rows.keys())
    if without or strange:
        problem = f"rows without a check: {without}" if without else f"checks without a row: {strange}"
        raise ConformanceError(f"{names.module}: {problem}", advice=("give each row a check, by its name",))
    cases = [Case(row.path, partial(_check_row, row, checks[row.name])) for row in names.rows.values()]
    return [*cases, Case("spelled nowhere else", partial(_check_files, names, folders))]


def called_through(point: EntryPoint, run: Callable[[], Any]) -> list[tuple[Any, ...]]:
    """The arguments of each call of an entry point during ``run``.

    Raises:
        AssertionError: PyTorch does not call it.
    """
    calls: list[tuple[Any, ...]] = []
    original = point.value

    def replacement(*args: Any, **kwargs: Any) -> Any:
        calls.append((args, kwargs))
        return original(*args, **kwargs)

    setattr(point.owner, point.name, replacement)
    try:
        run()
    finally:
        setattr(point.owner, point.name, original)
    assert calls, f"{point.name} is not called"
    return calls


def _check_row(row: Name, check: Callable[..., object]) -> None:
    __tracebackhide__ = True
    version = version_of(row.library)
    if reason := row.why_unused():
        raise NotApplicable(reason)
    resolved = resolve(row)
    if isinstance(resolved, Missing):
        raise ConformanceFailure(f"{row.path}, for {row.feature}: {resolved.reason} in version {version}")
    try:
        check() if row.kind is Kind.NAME_ONLY else check(resolved)
    except Exception as error:
        raise ConformanceFailure(
            f"{row.path}, for {row.feature}, behaves otherwise in version {version}: {type(error).__name__}: {error}"
        ) from error


def _check_files(names: PrivateNames, folders: Sequence[str | os.PathLike[str]]) -> None:
    __tracebackhide__ = True
    uses = [problem for folder in folders for problem in private_uses(names, folder)]
    if uses:
        raise ConformanceFailure(f"private names beside {names.module}:\n" + "\n".join(uses))


def private_uses(names: PrivateNames, folder: str | os.PathLike[str]) -> Iterator[str]:
    """``file:line: name`` for each private name of another package that a file below ``folder`` spells.

    This includes imports, attribute chains of an imported module or of a variable that holds one, attributes of other
    objects that no file of the folder defines or that a row has, and strings that look like a path in one of the
    table's libraries. Strings and attributes of rows of `Kind.NAME_ONLY` are allowed. The standard library is excluded.
    """
    table = names.module.rpartition(".")[2] + ".py"
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(Path(folder).rglob("*.py"))}
    own = {name for file, tree in trees.items() if file.name != table for name in _defined(tree)}
    for file, tree in trees.items():
        if file.name != table:
            for line, name in _Uses(names, tree, Path(folder).name, own).found():
                yield f"{file}:{line}: {name}"


class _Uses:
    """The uses of private names in one file.

    Args:
        names: the table.
        tree: the file.
        package: the folder's name, by which its files import each other.
        own: the names that the folder's files define.
    """

    def __init__(self, names: PrivateNames, tree: ast.Module, package: str, own: set[str]) -> None:
        self._tree = tree
        rows = names.rows.values()
        self._libraries = {row.library for row in rows}
        self._exempt = {*sys.stdlib_module_names, package, *PACKAGES} - self._libraries
        spelled = {row.path.rpartition(".")[2] for row in rows if row.kind is Kind.NAME_ONLY}
        self._texts = {".".join(path.split(".")[:end]) for path in (row.path for row in rows) for end in range(1, 9)}
        self._refused = {row.path.rpartition(".")[2] for row in rows if row.kind is Kind.ATTRIBUTE} - spelled
        self._allowed = own | spelled | _OF_NAMED_TUPLES
        self._modules: dict[str, str] = {}  # dotted paths by the names that are bound to them; empty for exempt ones

    def found(self) -> Iterator[tuple[int, str]]:
        """Line and name of each use."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Import):
                yield from self._import(node, [(alias.name, alias) for alias in node.names])
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from self._import(node, [(f"{node.module}.{alias.name}", alias) for alias in node.names])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and self._is_path(node.value):
                yield node.lineno, node.value
        self._name_modules()
        inner: set[int] = set()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Attribute) and id(node) not in inner:
                yield from self._attribute(node, inner)
            elif isinstance(node, ast.Call) and self._is_refused(name := _asked_for(node)):
                yield node.lineno, name

    def _import(self, node: ast.stmt, imported: list[tuple[str, ast.alias]]) -> Iterator[tuple[int, str]]:
        for path, alias in imported:
            top = path.partition(".")[0]
            name = alias.asname or (alias.name if isinstance(node, ast.ImportFrom) else top)
            if top in self._exempt:
                self._modules[name] = ""
                continue
            self._modules[name] = path if alias.asname or isinstance(node, ast.ImportFrom) else name
            if _is_private(path):
                yield node.lineno, path

    def _name_modules(self) -> None:
        """Variables that hold a part of a module: ``aten = torch.ops.aten``."""
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            owner, *parts = _chain(node.value)
            if parts and isinstance(target, ast.Name) and self._modules.get(owner):
                self._modules[target.id] = ".".join([self._modules[owner], *parts])

    def _attribute(self, node: ast.Attribute, inner: set[int]) -> Iterator[tuple[int, str]]:
        below: ast.expr = node
        while isinstance(below, ast.Attribute):
            inner.add(id(below))
            below = below.value
        owner, *parts = _chain(node)
        if owner in self._modules:
            path = ".".join([self._modules[owner], *parts])
            if self._modules[owner] and _is_private(path):
                yield node.lineno, path
            return
        for part in parts[1:] if owner in ("self", "cls") else parts:
            if self._is_refused(part):
                yield node.lineno, part

    def _is_refused(self, name: str) -> bool:
        return name in self._refused or (_is_private(name) and name not in self._allowed)

    def _is_path(self, text: str) -> bool:
        path = text.partition("(")[0].rstrip(".")
        if path.partition(".")[0] not in self._libraries or not path.replace(".", "").isidentifier():
            return False
        return _is_private(path) and path not in self._texts


def _defined(tree: ast.Module) -> Iterator[str]:
    """Names of functions, classes and variables, and attributes of ``self``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _chain(node)[0] == "self":
            yield node.attr


def _chain(node: ast.expr) -> list[str]:
    """``["a", "b", "c"]`` for ``a.b.c``; the first is empty if the expression does not start with a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id if isinstance(node, ast.Name) else "", *reversed(parts)]


def _asked_for(call: ast.Call) -> str:
    """The attribute name in a call of ``getattr`` or a similar function; empty for other calls."""
    if not isinstance(call.func, ast.Name) or call.func.id not in ("getattr", "hasattr", "setattr", "delattr"):
        return ""
    name = call.args[1] if len(call.args) > 1 else None
    return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ""


def _is_private(path: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in path.split("."))
