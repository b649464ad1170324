"""Problems of configurations: where they are, and messages for the validation errors of pydantic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

from thunder_core.errors import ConfigError, suggestion

Trail = tuple[str | int, ...]
"""The path to a value of a configuration: names of options, and indices of lists."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a configuration.

    Attributes:
        file: the path as the user wrote it; None for options given in Python.
        line: the line number, from 1; None for options given in Python and for a file that could not be read.
        place: a path such as ``executors[1].nvfuser.cach``; empty for the whole configuration.
        text: the message, one sentence.
        advice: how to solve it, unless the message says so.
    """

    file: str | None
    line: int | None
    place: str
    text: str
    advice: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = "" if self.file is None else f"{self.file}: " if self.line is None else f"{self.file}:{self.line}: "
        if not self.place:
            return where + self.text
        argument = self.file is None and self.place.isidentifier() and self.text.startswith(("'", '"'))
        return f"{where}{self.place}{'=' if argument else ': '}{self.text}"


def place_of(trail: Trail) -> str:
    """The trail as a `Problem.place`."""
    text = ""
    for step in trail:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """The problems without duplicates, those of one file by line."""
    unique = list(dict.fromkeys(problems))
    files = list(dict.fromkeys(problem.file for problem in unique))
    return sorted(unique, key=lambda problem: (files.index(problem.file), problem.line or 0))


def refuse(problems: Iterable[Problem]) -> None:
    """Raise one ConfigError with all of these problems; return if there are none."""
    ordered = in_order(problems)
    if ordered:
        advice = dict.fromkeys(item for problem in ordered for item in problem.advice)
        raise ConfigError("\n".join(map(str, ordered)), advice=tuple(advice))


_EXPECTED: Final = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping, `name: value`",
    "model_type": "a mapping, `name: value`",
    "model_attributes_type": "a mapping, `name: value`",
}
_BOUNDS: Final = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
_BOOLEANS: Final = ("yes", "no", "on", "off", "y", "n")


def sentences(error: ValidationError, model: type[BaseModel], data: Any) -> Iterator[tuple[Trail, str]]:
    """The places in ``data`` that ``model`` rejects, each once, with a message."""
    messages: dict[Trail, list[str]] = {}
    for item in error.errors(include_url=False):
        trail = _trail(item["loc"], data, missing=item["type"] == "missing")
        messages.setdefault(trail, []).append(_sentence(item, model, trail))
    for trail, texts in messages.items():
        yield trail, "; or ".join(dict.fromkeys(texts))


def _trail(location: Trail, data: Any, missing: bool) -> Trail:
    """The location in ``data``, without pydantic's own steps, such as the alternatives of a union."""
    trail: list[str | int] = []
    for position, step in enumerate(location):
        if isinstance(data, Mapping) and step in data:
            data = data[str(step)]
        elif isinstance(data, list | tuple) and isinstance(step, int) and step < len(data):
            data = data[step]
        elif not (missing and position == len(location) - 1):
            continue
        trail.append(step)
    return tuple(trail)


def _sentence(item: Any, model: type[BaseModel], trail: Trail) -> str:
    kind, value, context = item["type"], item["input"], item.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown option{suggestion(str(trail[-1]), _names(model, trail[:-1]))}"
    if kind == "missing":
        return "is missing"
    if kind in ("literal_error", "enum"):
        return _one_of(value, re.findall(r"'([^']*)'", context["expected"]) or [context["expected"]])
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}, not {describe(value)}{_hint(kind, value)}"
    if kind in _BOUNDS:
        bound = {name: f"{limit:g}" if isinstance(limit, float) else limit for name, limit in context.items()}
        return f"must be {_BOUNDS[kind].format(**bound)}, not {value}"
    if kind in ("too_short", "too_long"):
        length = f"at least {context['min_length']}" if kind == "too_short" else f"at most {context['max_length']}"
        return f"must have {length}, not {context['actual_length']}"
    if kind == "value_error":
        return str(context["error"])
    message: str = item["msg"]
    return message if kind == "config" else f"{message[:1].lower()}{message[1:]}, not {describe(value)}"


def _one_of(value: Any, allowed: list[str]) -> str:
    hint = suggestion(value, allowed) if isinstance(value, str) else ""
    named = repr(value) if isinstance(value, str) else describe(value)
    choice = f"; only {allowed[0]!r} is" if len(allowed) == 1 else f"; it is one of {', '.join(map(repr, allowed))}"
    return f"{named} is not accepted{hint or choice}"


def describe(value: Any) -> str:
    """A value as messages name it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 40 else f"the text {value[:40]!r}..."
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else f"{value!r}"


def _hint(kind: str, value: Any) -> str:
    if kind == "string_type" and isinstance(value, int | float):
        return "; put it in quotes"
    if kind in ("int_type", "float_type") and isinstance(value, str) and re.fullmatch(r"[-+]?[\d.]+", value):
        return "; leave out the quotes"
    if kind == "bool_type" and isinstance(value, str) and value.lower() in _BOOLEANS:
        return "; write it as true or false"
    return ""


def _names(model: type[BaseModel], trail: Trail) -> list[str]:
    """The names of the options at a place of ``model``; empty if the place has no options."""
    models = [model]
    for step in trail:
        fields = [field for one in models for name, field in one.model_fields.items() if step in (name, field.alias)]
        models = [inner for field in fields for inner in _models(field.annotation)]
    return [field.alias or name for one in models for name, field in one.model_fields.items()]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]
