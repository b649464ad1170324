"""The JSON schema of configurations, with the options of the installed plugins, for editors and reviews."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic.errors import PydanticUserError
from pydantic.json_schema import models_json_schema

from thunder.config.entry import EXTENDED, LISTS
from thunder.config.model import ThunderConfig
from thunder_core.plugins.host import host
from thunder_core.plugins.specs import FrontEndSpec, InterceptionsSpec, Preset
from thunder_core.plugins.states import Offered

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_OPTIONAL: Final = {
    "type": "object",
    "properties": {"optional": {"const": True}},
    "required": ["optional"],
    "description": "Not installed here.",
}
"""The options of a name that no installed plugin has."""


_EXTENDED: Final = {
    "const": EXTENDED.name,
    "description": "The entries of the configuration that this one extends, except those that are named here.",
}
"""The item of a list that represents others."""


def schema() -> dict[str, Any]:
    """The schema, in the dialect of 2020-12. Loads all plugins that can be loaded.

    Raises:
        PluginError: a plugin has a defect, and the environment has ``THUNDER_STRICT=1``.
    """
    plugins = host()
    plugins.load_all()
    offered: dict[str, tuple[Offered[Any], ...]] = {
        name: plugins.offered(entries.spec) for name, entries in LISTS.items()
    }
    models = dict.fromkeys([ThunderConfig, *(item.spec.options for items in offered.values() for item in items)])
    references, definitions = models_json_schema(
        [(model, "validation") for model in models if _has_schema(model)], ref_template="#/$defs/{model}"
    )
    defs = definitions["$defs"]
    top = defs.pop(references[ThunderConfig, "validation"]["$ref"].rpartition("/")[2])
    options = {model: references.get((model, "validation"), {"type": "object"}) for model in models}
    top["description"] = "How Thunder compiles programs."
    properties = top["properties"]
    properties |= {name: _list(properties[name], items, options) for name, items in offered.items()}
    properties["front_end"] |= {"enum": [name for offered in plugins.offered(FrontEndSpec) for name in _names(offered)]}
    properties["extends"] = {
        key: value for key, value in properties["extends"].items() if key not in ("anyOf", "default")
    }
    properties["extends"] |= {
        "type": "string",
        "minLength": 1,
        "examples": [item.spec.name for item in plugins.offered(Preset)],
    }
    return {"$schema": DIALECT, **top, "$defs": defs}


def _list(
    field: Mapping[str, Any],
    offered: Iterable[Offered[Any]],
    options: Mapping[Any, Mapping[str, Any]],
) -> dict[str, Any]:
    """The schema of a list of entries, each a name or ``{name: options}``."""
    names: list[dict[str, Any]] = []
    entries: dict[str, Any] = {}
    for item in offered:
        for name in _names(item):
            names.append({"const": name, "description": item.spec.summary})
            entries[name] = {"anyOf": [options[item.spec.options], {"type": "null"}], "description": item.spec.summary}
    with_options = {
        "type": "object",
        "properties": entries,
        "additionalProperties": _OPTIONAL,
        "minProperties": 1,
        "maxProperties": 1,
    }
    return {
        "type": "array",
        "description": field["description"],
        "title": field["title"],
        "items": {"anyOf": [*names, _EXTENDED, with_options]},
    }


def _has_schema(model: type[BaseModel]) -> bool:
    """Whether the options have a JSON schema: types that a plugin defines may have none."""
    try:
        model.model_json_schema()
    except PydanticUserError:
        return False
    return True


def _names(offered: Offered[Any]) -> list[str]:
    """Its names in configurations."""
    if isinstance(offered.spec, InterceptionsSpec):  # a table is selected by the plugin's name
        return [offered.plugin.name]
    item = offered.spec.name
    return list(dict.fromkeys([item, f"{offered.plugin.name}.{item}"]))
