"""The creation of a program's result, as text that a file can have.

A result may be any structure of tensors, numbers and text: tuples, lists, dicts, named tuples, dataclasses, the outputs
and caches of Transformers. Their classes are named in the file. A class is used if it is imported already, or given to
`thunder.load`; of Transformers, the modules with outputs and caches are imported. Its instances are created without
running code of the class.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from thunder_core.checks.stored_attributes import set_attributes, set_default_factory
from thunder_core.errors import UnsupportedError
from thunder_core.ir.import_paths import module_of
from thunder_core.ir.symbol import Symbol
from thunder_saving.guards import class_path, literal_of

if TYPE_CHECKING:
    from thunder_core.contract import Reconstruction

__all__ = ["class_named", "result_functions", "result_text"]

_BASES: Final = {
    **{kind.__name__: kind for kind in (object, tuple, int, float, str, bytes, list, dict, set, frozenset)},
    "collections.OrderedDict": collections.OrderedDict,
    "collections.defaultdict": collections.defaultdict,
    "collections.deque": collections.deque,
}
_STORES: Final = {
    "list.append": list.append,
    "set.add": set.add,
    "dict.__setitem__": dict.__setitem__,
    "collections.OrderedDict.__setitem__": collections.OrderedDict.__setitem__,
    "collections.defaultdict.__setitem__": collections.defaultdict.__setitem__,
}
_FUNCTIONS: Final[Mapping[str, Any]] = {
    **_BASES,
    **{f"{name}.__new__": kind.__new__ for name, kind in _BASES.items()},
    **_STORES,
    "set_attributes": set_attributes,
    "set_default_factory": set_default_factory,
}
"""What the code that creates a result may call, by name."""
_IMPORTED: Final = re.compile(r"transformers\.(modeling_outputs|cache_utils)")
"""Modules that are imported because a file names a class in them."""
_VARIABLE: Final = re.compile(r"[ov]\d+|args|kwargs|inputs|values|after")


def result_functions(classes: Iterable[type]) -> Callable[[str], Any]:
    """A lookup of the names in the code that creates results.

    Args:
        classes: classes of the user's that a file may name, though they are not data classes.
    """
    given = {class_path(kind): kind for kind in classes}

    def find(name: str) -> Any:
        return _FUNCTIONS[name] if name in _FUNCTIONS else class_named(name, given)

    return find


def class_named(name: str, given: Mapping[str, type] = {}) -> type:
    """The class with a dotted path, of which a file may create instances.

    Raises:
        LookupError: it is not imported, or is none that holds data.
    """
    if name in given:
        return given[name]
    module, parts = _module_of(name)
    if module is None:
        match = _IMPORTED.match(name)
        if match is None:
            raise LookupError(f"import the module of {name} first, or pass load(..., classes=[...])")
        module = importlib.import_module(match[0])
        parts = name.removeprefix(match[0]).strip(".").split(".")
    value: Any = module
    for part in parts:
        value = vars(value).get(part) if isinstance(value, type(sys) | type) else None
    if isinstance(value, type) and class_path(value) == name and _holds_data(value):
        return value
    raise LookupError(f"{name} is no data class, named tuple, or output of Transformers; pass load(..., classes=[...])")


def _module_of(name: str) -> tuple[Any, list[str]]:
    """The imported module in which a class with this path would be, and the rest of the path."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module = sys.modules.get(".".join(parts[:end]))
        if module is not None:
            return module, parts[end:]
    return None, []


def _holds_data(kind: type) -> bool:
    """Whether instances of a class are data: nothing runs when they are created from their parts, or freed."""
    if hasattr(kind, "__del__"):
        return False
    named_tuple = issubclass(kind, tuple) and (hasattr(kind, "_fields") or module_of(kind) == "torch.return_types")
    of_transformers = module_of(kind).startswith("transformers.") and any(
        class_path(base) in _DATA_OF_TRANSFORMERS for base in kind.__mro__
    )
    return named_tuple or dataclasses.is_dataclass(kind) or of_transformers or kind in _BASES.values()


_DATA_OF_TRANSFORMERS: Final = {
    "transformers.utils.generic.ModelOutput",
    "transformers.cache_utils.Cache",
    "transformers.cache_utils.CacheLayerMixin",
}


def result_text(reconstruction: Reconstruction, first_line: str, prelude: list[str]) -> str:
    """The function that runs a program and creates its result.

    Args:
        reconstruction: the recorded creation of the result.
        first_line: ``def run(...):``.
        prelude: the statements that run the program and define ``o0``, ``o1``, ...

    Raises:
        UnsupportedError: the result has an object that no file can create, or the program writes to Python objects.
    """
    if reconstruction.writes:
        variables = dict([text.split(" = ", 1) for text in reconstruction.statements if re.match(r"v\d+ = ", text)])
        written = [text for text in reconstruction.statements if not re.match(r"v\d+ = ", text)]
        shown = [_shown(text, variables, reconstruction.namespace) for text in written[-reconstruction.writes :]]
        raise UnsupportedError(
            f"the program writes to {reconstruction.writes} Python object(s), which a saved program cannot do: "
            + "; ".join(shown),
            advice=("return the values instead, or store them in buffers of the module, in place",),
        )
    names = _Constants(reconstruction.namespace)
    lines = [first_line, *[f"    {line}" for line in prelude]]
    for statement in reconstruction.statements:
        lines.append(f"    {names.text(statement)}")
    lines.append(f"    return {names.text(reconstruction.result)}")
    return "\n".join(lines) + "\n"


def _shown(text: str, variables: Mapping[str, str], namespace: Mapping[str, Any]) -> str:
    """A statement in which variables are replaced by their values, and constants by their names."""

    def shown(match: re.Match[str]) -> str:
        name = match[0]
        if name in variables:
            return re.sub(r"\b[cv]\d+\b", shown, variables[name])
        value = namespace.get(name)
        return name if value is None else getattr(value, "__qualname__", None) or type(value).__qualname__

    return re.sub(r"\b[cv]\d+\b", shown, text)


class _Constants(ast.NodeTransformer):
    """Replaces the constants of a reconstruction by their names."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self.namespace = namespace

    def text(self, source: str) -> str:
        """A statement or an expression without constants."""
        return ast.unparse(self.visit(ast.parse(source)))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.namespace or _VARIABLE.fullmatch(node.id):
            return node
        return ast.parse(_name_of(self.namespace[node.id]), mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr not in ("append", "__new__", "__setitem__"):
            raise UnsupportedError(
                f"the result of the program needs a call that no file can have: {ast.unparse(node)}",
                advice=("return tensors, numbers, and tuples, lists or dicts of these",),
            )
        return self.generic_visit(node)


def _name_of(value: Any) -> str:
    """Python for a constant. Raises UnsupportedError if no file can have it."""
    for name, known in _FUNCTIONS.items():
        if value is known or (callable(known) and type(value) is type(known) and value == known):
            return name
    if isinstance(value, type):
        name = class_path(value)
        try:
            if class_named(name, {}) is value:
                return name
        except LookupError:
            pass
        if "<locals>" not in name and all(part.isidentifier() for part in name.split(".")):
            return name  # `thunder.load` takes it, or says that it is to be given
    text = None if isinstance(value, type | Symbol) else literal_of(value)
    if text is None:
        what = getattr(value, "__qualname__", None) or f"an object of type {type(value).__qualname__}"
        raise UnsupportedError(
            f"the result of the program, or an object in it, needs {what}, which no file can have",
            advice=("return tensors, numbers, text, and tuples, lists, dicts or data classes of these",),
        )
    return text
