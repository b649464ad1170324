"""Every problem of a malformed configuration is reported with its line and what to do."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import thunder
from tests.config.malformed import MALFORMED
from thunder.command_line.main import main
from thunder.config import check_config, resolve_config
from thunder_core.errors import ConfigError


def expected(name: str) -> list[str]:
    version = importlib.metadata.version("torch")
    return [f"c.yaml:{line}".replace("{torch}", version) for line in MALFORMED[name][1]]


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.battery
def test_all_problems_are_told(name: str) -> None:
    Path("c.yaml").write_text(MALFORMED[name][0])
    assert [str(problem) for problem in check_config("c.yaml")] == expected(name)


@pytest.mark.battery
@pytest.mark.parametrize("name", MALFORMED)
def test_nothing_is_compiled_and_the_command_refuses_it(name: str) -> None:
    Path("c.yaml").write_text(MALFORMED[name][0])
    with pytest.raises(thunder.OptionError) as caught:
        thunder.jit(lambda x: x, config="c.yaml")
    assert isinstance(caught.value, ConfigError)
    assert str(caught.value).partition("\nWhat to do:")[0].splitlines() == expected(name)
    assert main(["config", "check", "c.yaml"]) == 1


# What is wrong with the form of YAML has no counterpart there.
@pytest.mark.parametrize("name", ["unknown option", "no value", "many options", "twice", "problems of every kind"])
def test_json_gives_the_same_sentences(name: str) -> None:
    Path("c.json").write_text(json.dumps(_plain(MALFORMED[name][0]), indent="\t"))
    told = [str(problem).split(": ", 1)[1] for problem in check_config("c.json")]
    assert sorted(told) == sorted(line.split(": ", 1)[1] for line in expected(name))


@pytest.mark.parametrize("name", ["unknown option", "many options", "twice", "problems of every kind"])
def test_a_mapping_gives_the_same_places_and_sentences_without_ops(name: str) -> None:
    problems = check_config(_plain(MALFORMED[name][0]))
    assert {problem.file for problem in problems} == {problem.line for problem in problems} == {None}
    assert sorted(map(str, problems)) == sorted(line.split(": ", 1)[1] for line in expected(name))
    with pytest.raises(ConfigError, match=r"unknown option|twice"):
        resolve_config(_plain(MALFORMED[name][0]))


def _plain(text: str) -> dict[str, object]:
    """By PyYAML's own rules, which differ in what `yes` is only."""
    data = yaml.safe_load(text.replace("yes", "'yes'"))
    assert isinstance(data, dict)
    return data


def test_advice_says_what_repairs_it() -> None:
    Path("c.yaml").write_text("executors: [vendor]\ncache: symbolic values\n")
    with pytest.raises(ConfigError) as caught:
        thunder.jit(lambda x: x, config="c.yaml")
    assert "  - pip install 'thunder-plugin-vendor[lib]'" in str(caught.value)
    assert "  - use dynamic=True, with which sizes of inputs may vary" in str(caught.value)
    assert [problem.place for problem in check_config("c.yaml")] == ["executors[0]", "cache"]


ODD = st.text(
    st.sampled_from("\n\n  -:{}[]'\"*&!?|>%@`#,\tabx01.~\x85\u2028\\\x00é") | st.characters(codec="utf-8"), max_size=60
)


@given(ODD, st.sampled_from(["c.yaml", "c.json"]))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@pytest.mark.slow
def test_whatever_a_file_holds_problems_are_told(text: str, name: str) -> None:
    Path(name).write_text(text, encoding="utf-8", newline="")
    for problem in check_config(name):
        assert problem.text
        assert problem.line is None or problem.line >= 1
