"""YAML and JSON as plain data with line numbers.

Of YAML, this reads what configurations need, by the rules of version 1.2: only ``true`` and ``false`` are truth values
(``on`` and ``no`` are text), numbers have no colons or underscores, and there are neither dates, tags nor aliases.
JSON is read by its own rules.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

import yaml  # type: ignore[import-untyped]

from thunder_core.config.problems import Problem, Trail, written

_DEPTH: Final = 32
"""How far mappings and lists may be nested; more is a mistake or an attack."""

RESOLVERS: Final = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+0123456789."),
    ),
)
"""What plain text is, if not text: its kind, a pattern for all of it, and the characters that it begins with."""

_TRANSLATIONS: Final = {
    r"found character '\t' that cannot start any token": "a tab cannot indent; use spaces",
    "mapping values are not allowed here": (
        "a `: ` is not expected here; indent this line like its neighbours, or put text that has a `: ` in quotes"
    ),
    "could not find expected ':'": "expected `name: value`; there is no `: ` here",
}


class _Reader(yaml.SafeLoader):
    """Composes nodes, and notes what is not accepted."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - declared so by PyYAML

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text)
        self.file = file
        self.depth = 0
        self.lines: dict[Trail, int] = {}
        self.problems: list[Problem] = []

    def compose_node(self, parent: Any, index: Any) -> Any:
        """A node; what is refused becomes nothing."""
        event: Any = self.peek_event()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            self.get_event()
            self.note(line, (), f"the alias *{event.anchor} is not accepted; write the value again")
            return yaml.ScalarNode("tag:yaml.org,2002:null", "", event.start_mark, event.end_mark)
        if event.anchor is not None:
            self.note(line, (), f"the anchor &{event.anchor} is not accepted; write the value where it is needed")
            event.anchor = None
        if event.tag is not None:
            self.note(line, (), f"the tag {event.tag} is not accepted; values are plain data")
            event.tag = None
        self.depth += 1
        if self.depth > _DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested more than {_DEPTH} deep", problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def note(self, line: int, trail: Trail, text: str) -> None:
        """Remember a problem."""
        self.problems.append(Problem(self.file, line, written(trail), text))

    def plain(self, node: Any, trail: Trail) -> Any:
        """The data of a node."""
        self.lines.setdefault(trail, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, trail)
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(item, (*trail, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, trail)

    def _mapping(self, node: Any, trail: Trail) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self.note(line, trail, "a name must be text, not a list or a mapping")
                continue
            inner = (*trail, key.value)
            if key.value in values:
                self.note(line, inner, f"is there twice; line {self.lines[inner]} has it already")
                continue
            self.lines[inner] = line
            values[key.value] = self.plain(value, inner)
        return values

    def _scalar(self, node: Any, trail: Trail) -> Any:
        kind, text = node.tag.rpartition(":")[2], node.value
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind == "float":
            return float(re.sub(r"\.(inf|nan)", r"\1", text, flags=re.IGNORECASE))
        if kind != "int":
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # JSON writes characters as pairs
        if len(text) > 400:
            self.note(node.start_mark.line + 1, trail, f"a number of {len(text)} digits is not accepted")
            return None
        return int(text, 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10)


def add_resolvers(user: type[yaml.SafeLoader] | type[yaml.SafeDumper]) -> None:
    """Let a reader or a writer know what `RESOLVERS` say."""
    for kind, pattern, first in RESOLVERS:
        user.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{pattern})\Z"), first)


add_resolvers(_Reader)


def read_text(text: str, file: str, *, as_json: bool = False) -> tuple[Any, dict[Trail, int], list[Problem]]:
    """The data in a text, the lines of what it consists of, and what is not accepted.

    None for the data where the text is empty, or cannot be read at all.
    """
    if as_json:
        problem = _json_problem(text, file)
        if problem is not None:
            return None, {}, [problem]
        text = text.replace("\t", " ")  # in JSON they stand between values only; PyYAML does not take them there
    try:
        reader = _Reader(text, file)
        node = reader.get_single_node()
    except yaml.YAMLError as error:
        return None, {}, [_yaml_problem(error, text, file)]
    value = None if node is None else reader.plain(node, ())
    return value, reader.lines, reader.problems


def _yaml_problem(error: yaml.YAMLError, text: str, file: str) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, int(error.position)) + 1
        return Problem(file, line, "", f"the character {chr(int(error.character))!r} is not accepted")
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Problem(file, 1, "", f"cannot be read: {error}")
    line = error.problem_mark.line + 1
    problem = str(error.problem)
    sentence = _TRANSLATIONS.get(problem) or f"cannot be read: {problem}"
    if error.context_mark is not None and error.context_mark.line + 1 != line:
        sentence += f" ({error.context}, which begins in line {error.context_mark.line + 1})"
    return Problem(file, line, "", sentence)


def _json_problem(text: str, file: str) -> Problem | None:
    try:
        json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        return Problem(file, error.lineno, "", f"is not JSON: {error.msg}")
    except RecursionError:
        return Problem(file, 1, "", f"nested more than {_DEPTH} deep")
    except ValueError as error:
        return Problem(file, 1, "", f"is not JSON: {error}")
    return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number there")
