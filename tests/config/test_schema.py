"""The JSON schema knows what the installed plugins offer."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from thunder.command_line.json_schema import schema
from thunder.config import ThunderConfig, check_config, resolve_config, to_yaml
from thunder_core.errors import PluginError

OPTIONAL = {"optional": True}
VALID: list[Any] = [
    {},
    {"executors": ["nvfuser", "kernels.fast", {"slow": None}, {"kernels.picky": {"on_decline": "warn"}}]},
    {"executors": [{"nvfuser": {"size": 8, "tiles": {"rows": 3}, "limit": "auto", "exclude": ["*"]}}]},
    {"executors": [{"nowhere": OPTIONAL}], "transforms": [{"quantize": {"bits": 4}}, "constant_folding"]},
    {"tensor_classes": ["wrappers", {"nowhere": OPTIONAL}]},
    {"tensor_classes": []},
    {"executors": ["fast", "..."], "transforms": ["...", {"quantize": {"bits": 4}}], "allow_recompiles": "eager"},
    {"memory": "22 GiB"},
    {"memory": 500},
    {"recompute": {"budget": 0.5}, "cache": "same input", "recompile_limit": 3, "extends": "fused", "requires": ["x"]},
]
INVALID: list[Any] = [
    [],
    {"cach": "same input"},
    {"cache": "same inputs"},
    {"executors": "nvfuser"},
    {"executors": ["nowhere"]},
    {"executors": [{"...": {}}]},
    {"allow_recompiles": "never"},
    {"executors": [{"nvfuser": {"cach": True}}]},
    {"executors": [{"nvfuser": {"size": "8"}}]},
    {"executors": [{"nvfuser": {}, "slow": {}}]},
    {"executors": [{"nowhere": {}}]},
    {"executors": [{}]},
    {"executors": [3]},
    {"transforms": ["slow"]},
    {"front_end": "absent"},
    {"tensor_classes": ["fast"]},
    {"tensor_classes": "wrappers"},
    {"recompile_limit": 0},
    {"recompute": {"budgt": 1}},
    {"memory": "22 gigs"},
    {"memory": 0},
]


def test_it_is_of_the_dialect_it_says_and_plain_data() -> None:
    found = schema()
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert (found["title"], found["type"], found["additionalProperties"]) == ("Thunder", "object", False)
    assert set(found["properties"]) == set(ThunderConfig.model_fields)
    assert json.loads(json.dumps(found)) == found
    assert all("description" in option for option in found["properties"].values())
    assert not [reference for reference in _references(found) if reference.rpartition("/")[2] not in found["$defs"]]


def _references(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        return {schema["$ref"]} if "$ref" in schema else set().union(*map(_references, schema.values()), ())
    return set().union(*map(_references, schema), ()) if isinstance(schema, list) else set()


def test_it_has_the_options_of_each_plugin_with_their_descriptions() -> None:
    found = schema()
    items = found["properties"]["executors"]["items"]["anyOf"]
    names = [item["const"] for item in items if "const" in item]
    assert {"nvfuser", "nvfuser.nvfuser", "fast", "kernels.fast", "reference"} <= set(names)
    assert "vendor" not in names
    entries = items[-1]["properties"]
    options = found["$defs"][entries["nvfuser"]["anyOf"][0]["$ref"].rpartition("/")[2]]
    assert options["properties"]["cache"] == {
        "default": True, "description": "Keep compiled regions on disk.", "title": "Cache", "type": "boolean"
    }  # fmt: skip
    assert options["properties"]["level"]["enum"] == ["low", "high"]
    assert options["additionalProperties"] is False
    transforms = found["properties"]["transforms"]["items"]["anyOf"][-1]["properties"]
    assert {"quantize", "kernels.quantize", "constant_folding", "simplify.constant_folding"} <= set(transforms)
    assert found["properties"]["front_end"]["enum"] == [
        "run",
        "core.run",
        "dynamo",
        "dynamo.dynamo",
        "export",
        "export.export",
        "numpy",
        "numpy.numpy",
    ]
    assert {"default", "fused"} <= set(found["properties"]["extends"]["examples"])


def test_options_that_json_cannot_describe_do_no_harm(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from thunder.command_line import json_schema

    monkeypatch.setattr(json_schema, "_has_schema", lambda model: model.__name__ != "Options")
    entries = schema()["properties"]["executors"]["items"]["anyOf"][-1]["properties"]
    assert entries["nvfuser"]["anyOf"][0] == {"type": "object"}


def test_what_has_no_schema_is_noticed() -> None:
    from collections.abc import Callable

    from pydantic import BaseModel

    from thunder.command_line.json_schema import _has_schema

    class Undescribed(BaseModel):
        callback: Callable[[], None]

    assert not _has_schema(Undescribed)
    assert _has_schema(ThunderConfig)


def test_a_broken_plugin_is_an_error_only_where_the_environment_is_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_STRICT", "1")
    with pytest.raises(PluginError, match="broken"):
        schema()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("jsonschema") is None, reason="jsonschema is not installed")
def test_it_accepts_what_configurations_may_be_and_nothing_else() -> None:
    import jsonschema
    import yaml

    validator = jsonschema.Draft202012Validator(schema())
    jsonschema.Draft202012Validator.check_schema(schema())
    for data in [*VALID, yaml.safe_load(to_yaml(resolve_config(VALID[2])))]:
        assert [error.message for error in validator.iter_errors(data)] == []
    for data in INVALID:
        assert list(validator.iter_errors(data)), data


@pytest.mark.parametrize("data", VALID[:4], ids=range(4))
def test_what_it_accepts_has_no_problems(data: Any) -> None:
    assert check_config(data) == []


@pytest.mark.parametrize("data", INVALID[1:], ids=range(len(INVALID) - 1))
def test_what_it_refuses_has_problems(data: Any) -> None:
    assert check_config(data)
