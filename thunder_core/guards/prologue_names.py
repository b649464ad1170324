"""Names in a generated prologue: constants, and local variables for what many guards look at."""

from __future__ import annotations

import builtins
import keyword
from typing import Any

import torch

from thunder_core.guards.source import (
    ArgumentSource,
    KeywordSource,
    Source,
)
from thunder_core.guards.steps import (
    BufferSource,
    ItemSource,
    ParameterSource,
    StepSource,
    SubmoduleSource,
)
from thunder_core.ir.location import one_line

_DICTIONARY_PREFIXES = {"__dict__": "d", "_parameters": "p", "_buffers": "b", "_modules": "s"}
_RESERVED = frozenset({"args", "kwargs", "prologue", "key", *dir(builtins)})


class PrologueNames:
    """Gives out names; statements that bind them are appended to ``lines``.

    Attributes:
        namespace: the constants by name.
        lines: the statements so far.
    """

    def __init__(self, indentation: str) -> None:
        self.namespace: dict[str, Any] = {}
        self.lines: list[str] = []
        self._indentation = indentation
        self._constants: dict[Any, str] = {}
        self._variables: dict[int, str] = {}
        self._by_value: dict[Source, str] = {}
        self._dictionaries: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set(_RESERVED)
        self._numbers: dict[str, int] = {}
        self._count = 0

    def line(self, text: str) -> None:
        """Append a statement."""
        self.lines.append(self._indentation + text)

    def constant(self, value: Any, hint: str) -> str:
        """The global name of ``value``."""
        key = value if isinstance(value, torch.device) else id(value)
        name = self._constants.get(key)
        if name is None:
            name = self._constants[key] = self.fresh(hint)
            self.namespace[name] = value
        return name

    def fresh(self, hint: str) -> str:
        """An unused identifier that resembles ``hint``."""
        base = hint
        if not (hint.isascii() and hint.isidentifier()):  # Python normalizes other letters
            base = "".join(c if c.isascii() and c.isalnum() else "_" for c in hint) or "constant"
        if base[0].isdigit() or keyword.iskeyword(base):
            base = "_" + base
        name, number = base, self._numbers.get(base, 1)
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._numbers[base] = number
        self._taken.add(name)
        return name

    def reserve(self, name: str) -> None:
        """Keep ``name`` for an input of the computation."""
        self._taken.add(name)

    def bound(self, source: Source) -> str | None:
        """The variable that holds the source's object."""
        return self._variables.get(id(source))

    def dictionary(self, base: str, attribute: str) -> str:
        """A variable for one of the dictionaries of the object in variable ``base``."""
        prefix = _DICTIONARY_PREFIXES.get(attribute)
        if prefix is None or not base.isidentifier():
            return f"{base}.{attribute}"
        name = self._dictionaries.get((base, attribute))
        if name is None:
            number = base.lstrip("abcdefghijklmnopqrstuvwxyz")
            name = self._dictionaries[base, attribute] = self.fresh(
                f"{prefix}{number}" if number.isdigit() else f"{prefix}_{base}"
            )
            self.line(f"{name} = {base}.{attribute}")
        return name

    def bind(self, source: Source, name: str | None = None, comment: str = "") -> str:
        """A variable for the source's object, bound now together with the path to it."""
        known = self._variables.get(id(source))
        if known is not None:
            return known
        known = self._by_value.get(source) if not _is_deep(source) else None
        if known is not None:
            self._variables[id(source)] = known
            return known
        if source.parent is not None:
            self.bind(source.parent)
        expression = source.expression(self)
        variable = name or self._variable(source)
        self.line(f"{variable} = {expression}" + (f"  # {one_line(comment)}" if comment else ""))
        self._variables[id(source)] = variable
        if not _is_deep(source):
            self._by_value[source] = variable
        return variable

    def alias(self, source: Source, variable: str) -> None:
        """``variable`` holds the source's object."""
        self._variables[id(source)] = variable

    def _variable(self, source: Source) -> str:
        self._count += 1
        kind = "m" if isinstance(source, SubmoduleSource) else "o"
        if isinstance(source, ParameterSource | BufferSource):
            kind = "t"
        return self.fresh(f"{kind}{self._count}")


def _is_deep(source: Source) -> bool:
    """True for paths that are expensive to compare by value."""
    if isinstance(source, ArgumentSource | KeywordSource):
        return False
    if isinstance(source, ItemSource):
        return True
    return isinstance(source, StepSource)
