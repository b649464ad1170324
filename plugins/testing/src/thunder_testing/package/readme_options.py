"""The tables of options in a README, between two comments each, generated from the options' models."""

from __future__ import annotations

import difflib
import inspect
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from thunder_core.errors import suggestion
from thunder_core.plugins.options import ExecutorOptions, TransformOptions
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.package.project import Project

UPDATE: Final = "UPDATE_DOCUMENTS"
"""The environment variable with which the tables are updated."""

_START: Final = "<!-- options {} -->"
_END: Final = "<!-- end of options -->"
_TABLE: Final = re.compile(
    r"(?P<start><!-- options (?P<names>[^>\n]*) -->\n)(?:(?!<!--).)*(?P<end><!-- end of options -->)", re.DOTALL
)
_LONGEST: Final = 12
"""Largest number of lines of a difference in messages."""


def check_options(project: Project, models: Mapping[str, Any]) -> None:
    """Check that the README documents the options of each model; executors and transforms are identified by name.

    A table for several has their common options, and a table for a single one its remaining options.
    """
    rows = {name: option_rows(model) for name, model in models.items()}
    rows = {name: own for name, own in rows.items() if own}
    if not rows:
        raise NotApplicable("the plugins of this project have no options of their own")
    if project.readme is None:
        raise Breach(
            "options", f"{project.folder} has no README in Markdown, to tell of the options of {', '.join(rows)}"
        )
    text = project.readme.read_text(encoding="utf-8")
    tables = _tables([tuple(match["names"].split()) for match in _TABLE.finditer(text)], rows)
    expected = _TABLE.sub(
        lambda match: f"{match['start']}\n{options_table(tables[tuple(match['names'].split())])}\n\n{match['end']}",
        text,
    )
    if text == expected:
        return
    if os.environ.get(UPDATE):
        project.readme.write_text(expected, encoding="utf-8")
    else:
        changes = difflib.unified_diff(
            text.splitlines(), expected.splitlines(), "README.md", "options", n=0, lineterm=""
        )
        shown = "".join(f"\n    {line}" for line in list(changes)[:_LONGEST])
        raise Breach(
            "options",
            f"the tables are not those of the models: run {UPDATE}=1 pytest {project.start} -k readme-options, and "
            f"look at the difference{shown}",
        )


def _tables(
    marks: Sequence[tuple[str, ...]], rows: Mapping[str, Mapping[str, str]]
) -> dict[tuple[str, ...], list[str]]:
    """The rows of each table. Raises Breach for a comment without options, and for options that are in no table."""
    for name in (name for names in marks for name in names):
        if name not in rows:
            mark = _START.format(name)
            raise Breach("options", f"{mark}: nothing called so has options of its own{suggestion(name, rows)}")
    left = {name: dict(own) for name, own in rows.items()}
    tables = {}
    for names in sorted(marks, key=len, reverse=True):  # common options are not repeated
        first = left[names[0]] if names else {}
        common = {option: row for option, row in first.items() if all(left[name].get(option) == row for name in names)}
        if not common:
            raise Breach("options", f"{_START.format(' '.join(names))}: there are none for a table here")
        for name in names:
            left[name] = {option: row for option, row in left[name].items() if option not in common}
        tables[names] = list(common.values())
    for name, missing in left.items():
        if missing:
            raise Breach(
                "options",
                f"no table has {', '.join(missing)} of {name}; write these two lines where it shall be, then run the "
                f"test with {UPDATE}=1\n    {_START.format(name)}\n    {_END}",
            )
    return tables


_HEAD: Final = "| option | values | default | meaning |\n|---|---|---|---|\n"
_WORDS: Final = {
    "array": "list",
    "boolean": "`true`, `false`",
    "integer": "integer",
    "null": "`null`",
    "number": "number",
    "object": "mapping",
    "string": "string",
}
_PLURALS: Final = {"number": "numbers", "string": "strings", "integer": "integers"}
_BOUNDS: Final = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}


def specific_options(model: type[ExecutorOptions] | type[TransformOptions]) -> dict[str, FieldInfo]:
    """The options that are not common to all executors, or to all transforms, by their names in configurations."""
    base = ExecutorOptions if issubclass(model, ExecutorOptions) else TransformOptions
    return {field.alias or name: field for name, field in model.model_fields.items() if name not in base.model_fields}


def option_rows(model: type[ExecutorOptions] | type[TransformOptions]) -> dict[str, str]:
    """The rows of `specific_options`: name, values, default and meaning. Values are written as in JSON and YAML."""
    try:
        schema = model.model_json_schema()
    except PydanticUserError:  # types of a plugin's own may have no counterpart in JSON
        schema = {}
    known, definitions = schema.get("properties", {}), schema.get("$defs", {})
    rows = {}
    for name, field in specific_options(model).items():
        values = (
            _values(known[name], definitions) if name in known else f"`{inspect.formatannotation(field.annotation)}`"
        )
        meaning = " ".join((field.description or "").split())
        cells = [cell.replace("|", r"\|") for cell in (f"`{name}`", values, _default(field), meaning)]
        rows[name] = f"| {' | '.join(cells)} |"
    return rows


def options_table(rows: Iterable[str]) -> str:
    """A table of such rows, without a trailing newline."""
    return _HEAD + "\n".join(rows)


def _values(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """A description of the values that a JSON schema allows."""
    if "$ref" in schema:
        return _values(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            parts = dict.fromkeys(_values(part, definitions) for part in schema[several])
            return (", or " if any("," in part for part in parts) else " or ").join(parts)
    choices = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if choices:
        return ", ".join(map(_code, choices))
    if schema.get("items"):
        inner = _values(schema["items"], definitions)
        return f"list of {_PLURALS.get(inner, inner)}"
    if schema.get("additionalProperties"):
        return f"mapping of names to {_values(schema['additionalProperties'], definitions)}"
    bounds = [f"{word} {schema[key]}" for key, word in _BOUNDS.items() if key in schema]
    return ", ".join([_WORDS.get(schema.get("type", ""), "anything"), *bounds])


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    return _code(to_jsonable_python(field.get_default(call_default_factory=True), fallback=repr))


def _code(value: Any) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"
