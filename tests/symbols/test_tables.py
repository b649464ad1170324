"""The tables themselves: complete, free of contradictions, and in agreement with PyTorch's own signatures."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.symbols.resolving import printed_function
from thunder_core.ir.symbol import CallStyle, Symbol
from thunder_core.symbols.binding import REQUIRED, Layout, parse_layout, same_value
from thunder_core.symbols.naming import existing_function
from thunder_core.symbols.registry import registry
from thunder_core.symbols.row import Row

ROWS = registry.catalogue.rows
BY_NAME = {row.name: row for row in ROWS.values()}


def symbol_of(row: Row) -> Symbol:
    return registry.symbol_named(row.name.removeprefix("torch.Tensor."), row.style)


def test_tables_fit_this_version_of_pytorch() -> None:
    assert registry.catalogue.problems == []


def test_there_are_many_rows() -> None:
    assert len(ROWS) >= 500


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.battery
def test_printed_name_and_target(name: str) -> None:
    row = BY_NAME[name]
    symbol = symbol_of(row)
    assert callable(printed_function(symbol))
    assert symbol.target == existing_function(row.target)
    assert symbol.tags == row.tags
    inplace = symbol.style is CallStyle.METHOD and symbol.name.endswith("_") and not symbol.name.endswith("__")
    assert (symbol.functional is not None) is inplace


def test_no_two_rows_share_a_target() -> None:
    targets = [existing_function(row.target) for row in ROWS.values()]
    assert len(set(targets)) == len(targets)


def signatures(name: str) -> list[Layout]:
    """PyTorch's own signatures of a function: from the stubs for builtins, else from Python. Empty when unknown."""
    function = inspect.unwrap(existing_function(name))
    if inspect.isfunction(function):
        return _python_layouts(inspect.signature(function))
    owner, _, base = name.rpartition(".")
    if owner == "torch.Tensor":
        return stubs("__init__.pyi", "TensorBase").get(base, [])
    return stubs("_VariableFunctions.pyi", None).get(base, []) if owner in {"torch", "torch.nn.functional"} else []


def _python_layouts(signature: inspect.Signature) -> list[Layout]:
    parameters = signature.parameters.values()
    if any(item.kind in {item.VAR_KEYWORD, item.VAR_POSITIONAL} for item in parameters):
        return []
    keyword_only = {item.name: item.default for item in parameters if item.kind is item.KEYWORD_ONLY}
    positional = [item for item in parameters if item.kind is not item.KEYWORD_ONLY]
    defaults = [REQUIRED if item.default is item.empty else item.default for item in positional]
    return [Layout(tuple(item.name for item in positional), tuple(defaults), False, keyword_only, frozenset(), {})]


@cache
def stubs(file: str, owner: str | None) -> dict[str, list[Layout]]:
    body = ast.parse((Path(torch.__file__).parent / "_C" / file).read_text()).body
    if owner is not None:
        [body] = [node.body for node in body if isinstance(node, ast.ClassDef) and node.name == owner]
    found: dict[str, list[Layout]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(_stub_layout(node.args))
    return found


def _stub_layout(arguments: ast.arguments) -> Layout:
    positional = [item.arg for item in arguments.posonlyargs + arguments.args]
    defaults = [REQUIRED] * (len(positional) - len(arguments.defaults)) + list(map(_default, arguments.defaults))
    if arguments.vararg is not None:
        positional.append(arguments.vararg.arg)
        defaults.append(REQUIRED)
    keywords = {
        item.arg: REQUIRED if default is None else _default(default)
        for item, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    }
    return Layout(tuple(positional), tuple(defaults), arguments.vararg is not None, keywords, frozenset(), {})


def _default(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ...  # "...", and constants of torch: not compared


def layouts_with_signatures() -> Iterator[tuple[str, str, list[Layout]]]:
    for entry in registry.catalogue.spellings.values():
        known = signatures(entry.spelling.name)
        for text in entry.spelling.layouts if known else ():
            yield entry.spelling.name, text, known


@pytest.mark.parametrize(
    ("name", "text", "known"), list(layouts_with_signatures()), ids=lambda item: item if isinstance(item, str) else ""
)
@pytest.mark.battery
def test_layout_agrees_with_pytorch(name: str, text: str, known: list[Layout]) -> None:
    layout = parse_layout(text)
    assert any(agrees(layout, signature) for signature in known), [item.positional for item in known]


def agrees(layout: Layout, signature: Layout) -> bool:
    """Whether each parameter stands where PyTorch has it, with the same default."""
    own = {
        name: [name, *[alias for alias, target in layout.aliases.items() if target == name]] for name in layout.names
    }
    if len(layout.positional) > len(signature.positional):
        return False
    for position, (mine, theirs) in enumerate(zip(layout.positional, signature.positional, strict=False)):
        if theirs.removesuffix("_") not in own[mine] and (position, theirs) != (0, "self"):
            return False
        if not same_default(layout.defaults[position], signature.defaults[position]):
            return False
    return all(
        any(other in signature.names and same_default(default, signature.default(other)) for other in own[name])
        for name, default in layout.keywords.items()
    )


def same_default(mine: object, theirs: object) -> bool:
    """None also selects the overload without the parameter; a table may require what is optional in PyTorch."""
    return theirs is ... or mine is REQUIRED or (mine is None and theirs is REQUIRED) or same_value(mine, theirs)
