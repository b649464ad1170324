"""Read YAML and JSON as plain data with line numbers, and write YAML.

The reader accepts a subset of YAML 1.2: only ``true`` and ``false`` are booleans (``on`` and ``no`` are text), numbers
have no colons or underscores, and there are no dates, tags or aliases. JSON is read by the rules of JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

import yaml  # type: ignore[import-untyped]

from thunder.config.problems import Problem, Trail, place_of

_DEPTH: Final = 32
"""The largest depth of nested mappings and lists."""

_VALUES: Final = 5000
"""The largest number of names, values, lists and mappings. Composing them takes less than a second."""

_TAG: Final = "tag:yaml.org,2002:"

_RESOLVERS: Final = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+0123456789."),
    ),
)
"""The types of unquoted values other than text, each with a pattern and the characters that it begins with."""

_TRANSLATIONS: Final = {
    r"found character '\t' that cannot start any token": "a tab cannot indent; use spaces",
    "mapping values are not allowed here": (
        "a `: ` is not expected here; indent this line like its neighbours, or put text that has a `: ` in quotes"
    ),
    "but found another document": "a second document begins here, and a configuration is one",
    "could not find expected ':'": "expected `name: value`; there is no `: ` here",
}


class _Reader(yaml.SafeLoader):
    """Composes nodes, and collects problems."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - declared so by PyYAML

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text)
        self.file = file
        self.depth = 0
        self.values = 0
        self.lines: dict[Trail, int] = {}
        self.problems: list[Problem] = []

    def compose_node(self, parent: Any, index: Any) -> Any:
        """A node. Aliases, anchors and tags are problems, and are read as text."""
        event: Any = self.peek_event()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            self.get_event()
            text = f"*{event.anchor}"
            self.add_problem(
                line, (), f"{text} is an alias, which is not accepted; put text that begins with `*` in quotes"
            )
            return yaml.ScalarNode(f"{_TAG}str", text, event.start_mark, event.end_mark)
        if event.anchor is not None:
            self.add_problem(
                line,
                (),
                f"&{event.anchor} is an anchor, which is not accepted; put text that begins with `&` in quotes",
            )
            event.anchor = None
        if event.tag is not None:
            tag = event.tag.replace(_TAG, "!!")
            self.add_problem(line, (), f"the tag {tag} is not accepted; put text that begins with `!` in quotes")
            event.tag = None
        self.depth += 1
        if self.depth > _DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested more than {_DEPTH} deep", problem_mark=event.start_mark)
        self.values += 1
        if self.values > _VALUES:
            raise yaml.MarkedYAMLError(problem=f"more than {_VALUES} values", problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def add_problem(self, line: int, trail: Trail, text: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(self.file, line, place_of(trail), text))

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
                self.add_problem(line, trail, "a name must be text, not a list or a mapping")
                continue
            name = _whole(key.value)
            inner = (*trail, name)
            if name in values:
                self.add_problem(line, inner, f"is set twice, first in line {self.lines[inner]}")
                continue
            self.lines[inner] = line
            values[name] = self.plain(value, inner)
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
            return _whole(text)
        if len(text) > 400:
            self.add_problem(node.start_mark.line + 1, trail, f"a number of {len(text)} digits is not accepted")
            return text
        return int(text, 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10)


class _JsonReader(_Reader):
    """Reads JSON, whose names may have any length, and whose colons may be on the next line."""

    def stale_possible_simple_keys(self) -> None:
        """Discards no key: PyYAML discards long keys and keys whose colon is on another line."""


def _whole(text: str) -> str:
    """The text with surrogate pairs, which JSON has, joined to characters."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_text(text: str, file: str, *, as_json: bool = False) -> tuple[Any, dict[Trail, int], list[Problem]]:
    """Parse a text.

    Returns:
        The data, None if the text is empty or cannot be parsed; the line of each value; and the problems.
    """
    if as_json:
        problem = _json_problem(text, file)
        if problem is not None:
            return None, {}, [problem]
        text = text.replace("\t", " ")  # in JSON they are allowed only between values, where PyYAML rejects them
    try:
        reader = (_JsonReader if as_json else _Reader)(text, file)
        node = reader.get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        return None, {}, [Problem(file, line, "", f"the character {chr(int(error.character))!r} is not accepted")]
    except yaml.MarkedYAMLError as error:
        return None, {}, [_yaml_problem(error, file)]
    value = None if node is None else reader.plain(node, ())
    return value, reader.lines, reader.problems


def _yaml_problem(error: yaml.MarkedYAMLError, file: str) -> Problem:
    """The problem of a syntax error; PyYAML gives each of them a mark and a text."""
    line = error.problem_mark.line + 1
    problem = str(error.problem)
    if problem in _TRANSLATIONS:
        return Problem(file, line, "", _TRANSLATIONS[problem])
    if problem.startswith("expected <block end>"):
        return Problem(file, line, "", "indent this line like the entries that it belongs to")
    sentence = f"cannot be read: {problem}"
    quoted = re.fullmatch(r"found character '(.)' that cannot start any token", problem)
    if quoted is not None or error.context == "while scanning an alias":
        sentence = f"text that begins with `{'*' if quoted is None else quoted[1]}` must be in quotes"
    elif error.context_mark is not None and error.context_mark.line + 1 != line:
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
    raise ValueError(f"{name} is not a number in JSON")


class _Writer(yaml.SafeDumper):
    """Quotes text that this reader, or one of YAML 1.1, would read as another type."""

    yaml_implicit_resolvers: dict[str, Any] = {  # noqa: RUF012 - declared so by PyYAML
        first: list(resolvers) for first, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indents lists below their name."""
        super().increase_indent(flow, indentless=False)

    def text(self, value: str) -> Any:
        """Quotes text with Unicode line breaks, which PyYAML does not read as it writes them."""
        style = '"' if any(character in value for character in "\x85\u2028\u2029") else None
        return self.represent_scalar(f"{_TAG}str", value, style=style)


_Writer.add_representer(str, _Writer.text)
for _kind, _pattern, _first in _RESOLVERS:
    for _user in (_Reader, _Writer):
        _user.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(rf"(?:{_pattern})\Z"), _first)


def write_text(values: dict[str, Any]) -> str:
    """Plain data as YAML."""
    text: str = yaml.dump(values, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=120)
    return text
