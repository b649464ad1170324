"""Options as tables in Markdown, for the README of a plugin: made from the models that check configurations."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from thunder_core.plugins.options import ExecutorOptions, TransformOptions

_HEAD: Final = "| option | values | default | meaning |\n|---|---|---|---|\n"
_WORDS: Final = {
    "array": "list",
    "boolean": "`true`, `false`",
    "integer": "whole number",
    "null": "`null`",
    "number": "number",
    "object": "mapping",
    "string": "text",
}
_PLURALS: Final = {"number": "numbers", "text": "texts", "whole number": "whole numbers"}
_BOUNDS: Final = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}


def own_options(model: type[ExecutorOptions] | type[TransformOptions]) -> dict[str, FieldInfo]:
    """The options that not every executor, or every transform, has, by the names that configurations call them."""
    base = ExecutorOptions if issubclass(model, ExecutorOptions) else TransformOptions
    return {field.alias or name: field for name, field in model.model_fields.items() if name not in base.model_fields}


def option_rows(model: type[ExecutorOptions] | type[TransformOptions]) -> dict[str, str]:
    """The rows of `own_options`: name, values, default and meaning. Values are written as in JSON, and so in YAML."""
    try:
        schema = model.model_json_schema()
    except PydanticUserError:  # types of a plugin's own may have no counterpart in JSON
        schema = {}
    known, definitions = schema.get("properties", {}), schema.get("$defs", {})
    rows = {}
    for name, field in own_options(model).items():
        values = (
            _values(known[name], definitions) if name in known else f"`{inspect.formatannotation(field.annotation)}`"
        )
        meaning = " ".join((field.description or "").split())
        cells = [cell.replace("|", r"\|") for cell in (f"`{name}`", values, _default(field), meaning)]
        rows[name] = f"| {' | '.join(cells)} |"
    return rows


def options_table(rows: Iterable[str]) -> str:
    """A table of such rows, without a line break at its end."""
    return _HEAD + "\n".join(rows)


def _values(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """What a JSON schema allows, in words."""
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
