"""The syntax of a printed module, without resolving names and calls."""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from dataclasses import dataclass, field

from thunder_core.errors import TraceSyntaxError
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.printer import NO_LOCATION

_LOCATION = re.compile(r"# (?P<file>.+?):(?P<line>\d+) in (?P<function>[^\s:]+)(?: \((?P<module>[^():]+)\))?(?:: .*)?")
_HEADER = re.compile(r"# (trace|stage|provenance|context|storages): (.*)")


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """A call: ``target = value`` inside of ``with`` items, followed by deletions."""

    target: ast.expr | None
    value: ast.expr
    contexts: tuple[ast.expr, ...]
    location: SourceLocation | None
    annotation: str
    deletions: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FunctionSyntax:
    """A function, which is a trace."""

    node: ast.FunctionDef
    header: dict[str, str]
    calls: tuple[CallSyntax, ...]
    deletions: tuple[str, ...]
    output: ast.expr | None


@dataclass(frozen=True, slots=True)
class ModuleSyntax:
    """A printed module: its traces, bodies before their uses, the name of the main trace, and its constants."""

    filename: str
    functions: tuple[FunctionSyntax, ...]
    main: str
    constants: ast.Dict | None = None

    def error(self, problem: str, node: ast.AST | None = None, *advice: str) -> TraceSyntaxError:
        """An error at a location in this file."""
        line = f":{node.lineno}" if isinstance(node, ast.expr | ast.stmt) else ""
        return TraceSyntaxError(f"{self.filename}{line}: {problem}", advice=advice)


def parse_module(source: str, filename: str) -> ModuleSyntax:
    """Parse a module that `print_trace` or `save_trace` wrote. Raises TraceSyntaxError."""
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    try:
        tree = ast.parse(source, filename)
    except SyntaxError as error:
        raise TraceSyntaxError(f"{filename}:{error.lineno}: {error.msg}") from error
    comments = _Comments(source)
    header = comments.header_at_top()
    nodes, constants = _parts(ModuleSyntax(filename, (), ""), tree)
    main = header.get("trace") or (nodes[-1].name if nodes else "")
    module = ModuleSyntax(filename, (), main)
    printed = [node for node in nodes if node.name == main or comments.header_above(node.lineno)]
    if main not in [node.name for node in printed]:
        raise module.error(f"there is no function {main!r}" if main else "there is no function")
    for node in nodes:
        if node not in printed and node.name not in _HELPERS:
            raise module.error(f"the function {node.name!r} is not a trace: it has no header", node)
    functions = []
    for node in printed:
        own_header = header if node.name == main else comments.header_above(node.lineno)
        functions.append(_FunctionParser(module, comments, node).parse(own_header))
    return ModuleSyntax(filename, tuple(functions), main, constants)


_HELPERS = ("decode", "program")
"""Functions of saved programs that are not traces, and are not read."""


def _parts(module: ModuleSyntax, tree: ast.Module) -> tuple[list[ast.FunctionDef], ast.Dict | None]:
    """The functions of a module, and the dict ``CONSTANTS``. Raises TraceSyntaxError for other statements."""
    functions: list[ast.FunctionDef] = []
    constants: ast.Dict | None = None
    for index, node in enumerate(tree.body):
        match node:
            case ast.FunctionDef():
                functions.append(node)
            case ast.Assign(targets=[ast.Name(id="CONSTANTS")], value=ast.Dict() as value):
                constants = value
            case ast.Expr(value=ast.Constant(value=str())) if index == 0:
                pass
            case ast.Import() | ast.ImportFrom() | ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                pass  # for running the file as a script
            case _:
                raise module.error(f"a trace has no {type(node).__name__} statement", node)
    return functions, constants


class _Comments:
    """The comments of a module by line."""

    def __init__(self, source: str) -> None:
        self.standing: dict[int, str] = {}
        self.trailing: dict[int, str] = {}
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                alone = not token.line[: token.start[1]].strip()
                (self.standing if alone else self.trailing)[token.start[0]] = token.string

    def header_at_top(self) -> dict[str, str]:
        return self._header(1, 1)

    def header_above(self, line: int) -> dict[str, str]:
        return self._header(line - 1, -1)

    def _header(self, line: int, step: int) -> dict[str, str]:
        header = {}
        while line in self.standing:
            match = _HEADER.fullmatch(self.standing[line])
            if match is not None:
                header[match[1]] = match[2]
            line += step
        return header

    def locations(self, first: int, last: int) -> list[tuple[int, SourceLocation | None]]:
        """The comments with source locations of the user's program, within a range of lines."""
        comments_: list[tuple[int, SourceLocation | None]] = []
        for line, text in self.standing.items():
            if first <= line <= last and text == NO_LOCATION:
                comments_.append((line, None))
            elif first <= line <= last and (match := _LOCATION.fullmatch(text)):
                place = SourceLocation(
                    match["file"], int(match["line"]), match["function"], module=match["module"] or ""
                )
                comments_.append((line, place))
        return comments_


class _FunctionParser:
    """Reads the statements of one function."""

    def __init__(self, module: ModuleSyntax, comments: _Comments, node: ast.FunctionDef) -> None:
        self.module = module
        self.comments = comments
        self.node = node
        self.calls: list[CallSyntax] = []
        self.early_deletions: list[str] = []
        self.output: ast.expr | None = None
        self.locations = comments.locations(node.lineno, node.end_lineno or node.lineno)
        self.location: SourceLocation | None = None

    def parse(self, header: dict[str, str]) -> FunctionSyntax:
        name = header.get("trace", self.node.name)
        if not name.isidentifier() or keyword.iskeyword(name):
            raise self.module.error(f"{name!r} is not the name of a function", self.node)
        if self.node.decorator_list or self.node.returns is not None or getattr(self.node, "type_params", None):
            raise self.module.error(
                "the function of a trace has no decorators and no annotation of its result", self.node
            )
        *body, last = self.node.body
        if not isinstance(last, ast.Return):
            raise self.module.error("a function must end with a return statement", last)
        self._statements(body, ())
        return FunctionSyntax(self.node, header, tuple(self.calls), tuple(self.early_deletions), last.value)

    def _statements(self, statements: list[ast.stmt], contexts: tuple[ast.expr, ...]) -> None:
        for statement in statements:
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._call(statement, statement.targets[0], statement.value, contexts)
            elif isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant):
                self._call(statement, None, statement.value, contexts)
            elif isinstance(statement, ast.With):
                self._with(statement, contexts)
            elif isinstance(statement, ast.Delete):
                self._delete(statement)
            elif not isinstance(statement, ast.Pass | ast.Expr):
                raise self.module.error(
                    f"a trace has no {type(statement).__name__} statement",
                    statement,
                    "write one call per line: name = function(arguments)",
                )

    def _call(
        self, statement: ast.stmt, target: ast.expr | None, value: ast.expr, contexts: tuple[ast.expr, ...]
    ) -> None:
        while self.locations and self.locations[0][0] < statement.lineno:
            self.location = self.locations.pop(0)[1]
        annotation = self.comments.trailing.get(statement.end_lineno or 0, "").removeprefix("#").strip()
        self.calls.append(CallSyntax(target, value, contexts, self.location, annotation))

    def _with(self, statement: ast.With, contexts: tuple[ast.expr, ...]) -> None:
        if any(item.optional_vars is not None for item in statement.items):
            raise self.module.error("a with statement of a trace has no 'as'", statement)
        items = tuple(item.context_expr for item in statement.items)
        before = len(self.calls)
        self._statements(statement.body, contexts + items)
        if len(self.calls) == before:
            raise self.module.error("a with statement of a trace has calls", statement)

    def _delete(self, statement: ast.Delete) -> None:
        for target in statement.targets:
            if not isinstance(target, ast.Name):
                raise self.module.error("only names can be deleted", target)
            (self.calls[-1].deletions if self.calls else self.early_deletions).append(target.id)
