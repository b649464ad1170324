"""Argument layouts: the signature of a spelling as data, and how its arguments reach their canonical places.

A layout is written like a Python signature without annotations: ``"input, dim=None, *, dtype=None"``. A starred name
(``"input, *shape"``) collects integers given one by one or as one sequence, and stands for one tuple.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from numbers import Integral
from typing import Any, Final


class _Required:
    """Stands where a parameter has no default."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()

# Spellings of NumPy that PyTorch's argument parser accepts.
NUMPY_NAMES: Final = {"axis": "dim", "keepdims": "keepdim", "x": "input", "x1": "input", "a": "input", "x2": "other"}


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Parameters of one spelling.

    Attributes:
        positional: names of the parameters that may be given by position, in order.
        defaults: their defaults, `REQUIRED` where there is none.
        variadic: the last positional parameter collects the remaining ones into a tuple.
        keywords: keyword-only parameters and their defaults.
        not_none: parameters for which None does not fit; written ``dim!``.
        aliases: other keywords for a parameter; written ``dim0/axis0``.
    """

    positional: tuple[str, ...]
    defaults: tuple[Any, ...]
    variadic: bool
    keywords: dict[str, Any]
    not_none: frozenset[str]
    aliases: dict[str, str]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.positional) | frozenset(self.keywords)

    def default(self, name: str) -> Any:
        """The default of a parameter; `REQUIRED` when it has none."""
        if name in self.keywords:
            return self.keywords[name]
        return self.defaults[self.positional.index(name)]

    def match(self, count: int, keywords: tuple[str, ...]) -> dict[str, int] | None:
        """For a call with ``count`` positional arguments and these keywords the number of each parameter's argument.

        Positional arguments are numbered first. None when they do not fit.
        """
        if count > len(self.positional):
            return None
        found = {name: number for number, name in enumerate(self.positional[:count])}
        for number, keyword in enumerate(keywords, start=count):
            known = keyword in self.keywords or keyword in self.positional or keyword == "out"
            name = keyword if known else self.aliases.get(keyword)
            if name is None or name in found:
                return None
            found[name] = number
        return found

    def collect(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Positional arguments with the variadic ones as one tuple."""
        count = len(self.positional)
        if not self.variadic or len(args) < count:
            return args
        return (*args[: count - 1], as_one_tuple(args[count - 1 :]))


def as_one_tuple(values: tuple[Any, ...]) -> Any:
    """``(2, 3)`` from ``(2, 3)`` as well as from ``((2, 3),)``; a lone value that is no integer stays itself."""
    if len(values) != 1:
        return values
    only = values[0]
    if isinstance(only, tuple | list):
        return tuple(only)
    return values if isinstance(only, Integral) else only  # NumPy's integers are no `int`


def same_value(value: Any, default: Any) -> bool:
    """Whether an argument is its parameter's default. Types must agree (``1.0`` is not ``1``); tensors never are."""
    return value is default or (type(value) is type(default) and type(value) in _PLAIN and bool(value == default))


_PLAIN: Final = frozenset({int, float, bool, str, tuple})


@cache
def parse_layout(text: str) -> Layout:
    """Read a layout from its signature text."""
    positional: list[str] = []
    defaults: list[Any] = []
    keywords: dict[str, Any] = {}
    not_none: set[str] = set()
    aliases: dict[str, str] = {}
    variadic = keyword_only = False
    for item in _split(text):
        names, _, default_text = item.partition("=")
        name, *others = names.removesuffix("!").split("/")
        aliases.update(dict.fromkeys(others, name))
        if names.endswith("!"):
            not_none.add(name)
        default = ast.literal_eval(default_text) if default_text else REQUIRED
        if name.startswith("*"):
            keyword_only, variadic = True, len(name) > 1
            if variadic:
                positional.append(name[1:])
                defaults.append(default)
        elif keyword_only:
            keywords[name] = default
        else:
            positional.append(name)
            defaults.append(default)
    aliases.update({other: name for other, name in NUMPY_NAMES.items() if name in positional})
    return Layout(tuple(positional), tuple(defaults), variadic, keywords, frozenset(not_none), aliases)


def _split(text: str) -> list[str]:
    """Split at the commas that are not inside brackets."""
    items, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and depth == 0:
            items.append(text[start:position].strip())
            start = position + 1
    items.append(text[start:].strip())
    return [item for item in items if item]
