"""``thunder config check`` and ``thunder schema``."""

import json

import pytest
import yaml

from thunder.config import resolve_config

pytestmark = pytest.mark.usefixtures("core_only")


def test_sound_file(command, tmp_path):
    (tmp_path / "executors.yaml").write_text("executors: [reference]\nrecompute: none\n")
    ended = command("config", "check", "executors.yaml")
    assert (ended.code, ended.out, ended.err) == (0, "executors.yaml: no problems\n", "")


def test_all_problems_with_their_ops(command, tmp_path):
    (tmp_path / "executors.yaml").write_text("executors:\n  - referense\nrecompute: none\ncach: same input\n")
    ended = command("config", "check", "executors.yaml")
    assert (ended.code, ended.err) == (1, "")
    problems = [line for line in ended.out.splitlines() if not line.startswith(" ")]
    assert problems[0].startswith("executors.yaml:2: executors[0]: ")
    assert "'reference'" in problems[0]
    assert problems[1] == "executors.yaml:4: cach: unknown option; did you mean 'cache'?"
    assert len(problems) == 2


def test_problems_are_told_instead_of_the_resolved_configuration(command, tmp_path):
    (tmp_path / "executors.yaml").write_text("cache: sometimes\n")
    ended = command("config", "check", "executors.yaml", "--resolve")
    assert ended.code == 1
    assert ended.out.startswith("executors.yaml:1: cache: ")


def test_resolved_configuration_is_complete_and_a_configuration(command, tmp_path):
    (tmp_path / "executors.yaml").write_text("recompute: {budget: 0.5}\n")
    ended = command("config", "check", "executors.yaml", "--resolve")
    assert (ended.code, ended.err) == (0, "")
    resolved = yaml.safe_load(ended.out)
    assert resolved["recompute"] == {"budget": 0.5}
    assert resolved["cache"] == "constant values"
    (tmp_path / "resolved.yaml").write_text(ended.out)
    assert resolve_config(tmp_path / "resolved.yaml") == resolve_config(tmp_path / "executors.yaml")


def test_show_prints_what_the_device_selects_and_all_that_is_extended(command, tmp_path):
    (tmp_path / "mine.yaml").write_text("executors: [reference, ...]\nrecompute: none\n")
    ended = command("config", "show", "mine.yaml", "--device", "cpu")
    assert (ended.code, ended.err) == (0, "")
    comments = [line for line in ended.out.splitlines() if line.startswith("# ")]
    assert comments[0] == "# executors of the preset 'cpu', chosen for the device cpu, beside reference: none"
    assert any(line.startswith("# left out: ") for line in comments)  # transforms of plugins that are not installed
    shown = yaml.safe_load(ended.out)
    assert [name for entry in shown["executors"] for name in entry] == ["reference"]
    assert (shown["recompute"], shown["cache"]) == ("none", "constant values")
    (tmp_path / "shown.yaml").write_text(ended.out)
    assert command("config", "check", "shown.yaml").code == 0


def test_show_prints_recipes_and_the_default(command, monkeypatch):
    exact = yaml.safe_load(command("config", "show", "thunder:exact").out)
    assert exact["executors"] == []
    monkeypatch.setenv("THUNDER_CONFIG", "low-memory")
    data = json.loads(command("config", "show", "--device", "cpu", "--json").out)
    assert data["resolved"]["recompute"] == "aggressive"
    assert (data["device"], data["preset"]["preset"], data["resolved"]["executors"]) == ("cpu", "cpu", [])


@pytest.mark.parametrize("config", ["absent.yaml", "thunder:absent"])
def test_show_of_what_does_not_exist(command, config):
    ended = command("config", "show", config)
    assert ended.code in (1, 2)
    assert ended.out == ""
    assert "absent" in ended.err


def test_schema_is_json_about_the_options(command):
    ended = command("schema")
    assert (ended.code, ended.err) == (0, "")
    assert {"executors", "transforms", "cache", "extends"} <= set(json.loads(ended.out)["properties"])
