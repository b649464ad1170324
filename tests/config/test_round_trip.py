"""What is written as YAML reads back as the same configuration."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thunder.config import ThunderConfig, read_config, resolve_config, to_yaml
from thunder_core.errors import ConfigError
from thunder_core.executors import OperatorExecutor

NAMES = st.text(min_size=1).filter(lambda name: name.strip().strip(".…"))
NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ENTRIES = st.lists(
    NAMES | st.dictionaries(NAMES, st.none() | st.dictionaries(st.text(), PLAIN, max_size=4), min_size=1, max_size=1),
    max_size=4,
    unique_by=lambda entry: entry if isinstance(entry, str) else next(iter(entry)),
)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "extends": st.text(min_size=1),
        "requires": st.lists(st.sampled_from(["torch", "torch>=2", "a-b[c,d]~=1.0; python_version > '3'"]), max_size=2),
        "executors": ENTRIES,
        "transforms": ENTRIES,
        "tensor_classes": ENTRIES,
        "interceptions": ENTRIES,
        "front_end": NAMES,
        "cache": st.sampled_from(["constant values", "same input", "no caching"]),
        "sharp_edges": st.sampled_from(["allow", "warn", "error"]),
        "recompute": st.sampled_from(["none", "cheap", "aggressive"])
        | st.fixed_dictionaries({"budget": st.floats(0, allow_infinity=False) | st.integers(0)}),
        "memory": st.integers(1) | st.sampled_from(["22 GiB", "1.5MB", "3 B"]),
        "recompile_warning": st.integers(1),
        "recompile_limit": st.integers(1),
        "outcome_limit": st.integers(1),
        "tune": st.booleans() | st.integers(1, 10**6) | st.floats(1e-3, 1e6),
    },
)


def reread(text: str, name: str = "c.yaml") -> ThunderConfig:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text(text, encoding="utf-8", newline="")
        return read_config(path)


@given(CONFIGS)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@pytest.mark.slow
def test_every_valid_configuration_reads_back(values: dict[str, Any]) -> None:
    config = ThunderConfig(**values)
    assert reread(to_yaml(config)) == config
    assert hash(reread(to_yaml(config))) == hash(config)
    data = config.model_dump(mode="json", exclude_none=True)
    assert reread(json.dumps(data), "c.json") == config
    assert ThunderConfig(**data) == config


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "optional": st.booleans(),
        "include": st.lists(st.text(), max_size=2),
        "on_decline": st.sampled_from(["next", "warn", "error"]),
        "cache": st.booleans(),
        "level": st.sampled_from(["low", "high"]),
        "size": st.integers(1, 32).map(lambda half: 2 * half),
        "share": NUMBERS,
        "names": st.lists(st.text(), max_size=2),
        "tiles": st.fixed_dictionaries({}, optional={"rows": st.integers(), "columns": st.integers()}),
        "limit": st.integers() | st.just("auto"),
    },
)


@given(OPTIONS, st.booleans())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_complete_configurations_resolve_to_themselves(options: dict[str, Any], enabled: bool) -> None:
    transforms = [{"constant_folding": {"enabled": enabled}}, "quantize"]
    complete = resolve_config(executors=["fast", {"nvfuser": options}], transforms=transforms)
    assert reread(to_yaml(complete)) == complete
    assert resolve_config(reread(to_yaml(complete))) == complete


def test_a_complete_configuration_has_everything() -> None:
    assert to_yaml(resolve_config(executors=[])) == (
        "requires: []\n"
        "executors: []\n"
        "transforms:\n"
        "  - simplify.constant_folding:\n"
        "      enabled: true\n"
        "      limit: 1048576\n"
        "      optional: true\n"
        "  - simplify.common_subexpression:\n"
        "      enabled: true\n"
        "      optional: true\n"
        "  - composites.constant_masks:\n"
        "      enabled: true\n"
        "      limit: 268435456\n"
        "      optional: true\n"
        "  - composites.recognize_composites:\n"
        "      enabled: true\n"
        "      optional: true\n"
        "  - layouts.attention_layout:\n"
        "      enabled: true\n"
        "      optional: true\n"
        "  - layouts.copy_pinned_views:\n"
        "      enabled: true\n"
        "      optional: true\n"
        "  - layouts.separate_bias:\n"
        "      enabled: true\n"
        "      optional: true\n"
        "  - layouts.convolution_layout:\n"
        "      enabled: true\n"
        "      optional: true\n"
        "  - layouts.direct_views:\n"
        "      enabled: true\n"
        "      optional: true\n"
        "  - matmul.pad_matmuls:\n"
        "      enabled: true\n"
        "      optional: true\n"
        "  - matmul.widen_products:\n"
        "      enabled: true\n"
        "      optional: true\n"
        "  - training.inline_backward:\n"
        "      enabled: true\n"
        "      optional: true\n"
        "  - distributed.overlap_gradients:\n"
        "      enabled: true\n"
        "      optional: true\n"
        "  - distributed.merge_collectives:\n"
        "      enabled: true\n"
        "      optional: true\n"
        "  - distributed.schedule_collectives:\n"
        "      ahead: null\n"
        "      enabled: true\n"
        "      hardware: h100\n"
        "      optional: true\n"
        "  - distributed.agreement:\n"
        "      enabled: true\n"
        "      optional: true\n"
        "  - cudagraphs:\n"
        "      copy_below: 1048576\n"
        "      enabled: true\n"
        "      max_captures: 16\n"
        "      max_graphs: 64\n"
        "      memory: 0.5\n"
        "      optional: true\n"
        "      patience: 8\n"
        "      phases:\n"
        "        - inference\n"
        "        - forward\n"
        "        - backward\n"
        "      trust: []\n"
        "      variants: 4\n"
        "      warmup: 2\n"
        "      when: auto\n"
        "tensor_classes:\n"
        "  - subclasses.wrappers:\n"
        "      optional: true\n"
        "interceptions:\n"
        "  - torchscript:\n"
        "      optional: true\n"
        "  - distributed:\n"
        "      optional: true\n"
        "front_end: run\n"
        "cache: constant values\n"
        "dynamic: automatic\n"
        "compile: ahead\n"
        "sharp_edges: warn\n"
        "recompute: cheap\n"
        "allow_recompiles: true\n"
        "recompile_warning: 8\n"
        "recompile_limit: 64\n"
        "outcome_limit: 16\n"
        "tune: false\n"
    )


@pytest.mark.parametrize(
    "text", ["on", "1:30", "1_000", "010", "1e5", "2024-01-01", "~", "true", "*a*", "a: b", "=", "<<"]
)
def test_text_stays_text_for_other_readers_too(text: str) -> None:
    config = ThunderConfig(executors=[{"x": {"option": text}}])
    assert yaml.safe_load(to_yaml(config))["executors"] == [{"x": {"option": text}}]
    assert reread(to_yaml(config)) == config


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("no", "no"), ("Yes", "Yes"), ("true", True), ("False", False), ("null", None), ("~", None),
        ("", None), ("10", 10), ("-1", -1), ("010", 10), ("0x1f", 31), ("0o17", 15), ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"), ("1e3", 1000.0), (".5", 0.5), ("1.", 1.0), ("-.inf", float("-inf")),
        ("'8'", "8"), ('"\\u00e9"', "é"), ("<<", "<<"), ("=", "="), ("é", "é"), ("😀", "😀"), ("a#b", "a#b"),
    ],
)  # fmt: skip
@pytest.mark.battery
def test_plain_values_are_read_by_the_rules_of_version_1_2(text: str, value: Any) -> None:
    config = reread(f"executors:\n- x:\n    on: {text}\n")
    (entry,) = config.executors
    assert entry.options == {"on": value}
    assert type(entry.options["on"]) is type(value)


def test_entries_without_options_are_names() -> None:
    forms = [
        "executors: [x]",
        "executors:\n- x:\n",
        "executors:\n- x: {}",
        "executors: [{x: null}]",
        "executors: [x: ]",
    ]
    assert len({reread(form) for form in forms}) == 1


def test_options_are_compared_with_their_types() -> None:
    forms = [{"a": 1}, {"a": 1.0}, {"a": True}, {"a": "1"}, {"a": [1]}]
    assert len({ThunderConfig(executors=[{"x": options}]) for options in forms}) == len(forms)
    one, other = ({"x": {"a": 1, "b": (2, 3)}}, {"x": {"b": [2, 3], "a": 1}})
    assert ThunderConfig(executors=[one]) == ThunderConfig(executors=[other])


def test_what_was_made_in_python_cannot_be_written() -> None:
    with pytest.raises(ConfigError, match=r"executors\[1\]: 'own' is a Python object; a file has names only"):
        to_yaml(ThunderConfig(executors=["fast", OperatorExecutor("own", ())]))
    config = ThunderConfig(executors=[OperatorExecutor("own", ())])
    assert config.model_dump()["executors"] == ["own"]
    assert "OperatorExecutor(name='own'" in repr(config)
