"""Configurations from files, presets, mappings and environment variables, and those that extend others."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

import thunder
from thunder.config import ThunderConfig, check_config, read_config, resolve_config, settings_of
from thunder_core.errors import ConfigError
from thunder_core.plugins import ExecutorSpec, FrontEndSpec, Preset
from thunder_core.plugins.host import host
from thunder_core.plugins.lookup import find
from thunder_core.plugins.states import PluginState


def write(name: str, text: str | bytes) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def problems(config: Any) -> list[str]:
    return [str(problem) for problem in check_config(config)]


def names(config: ThunderConfig) -> list[str]:
    return [entry.name for entry in config.executors or ()]


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "---\n", "{}", "\ufeff"])
def test_an_empty_file_means_the_defaults(text: str) -> None:
    assert resolve_config(write("c.yaml", text)) == resolve_config()


def test_all_forms_of_a_configuration_mean_the_same() -> None:
    write("c.yaml", "cache: same input\nexecutors: [{nvfuser: {size: 8}}]\n")
    write("c.json", '{"cache": "same input",\n\t"executors": [{"nvfuser": {"size": 8}}]}')
    write("folder/c.yml", "extends: ../c.yaml")
    data = {"cache": "same input", "executors": [{"nvfuser": {"size": 8}}]}
    forms: list[Any] = ["c.yaml", Path("c.yaml"), "./c.yaml", Path("c.yaml").absolute(), "c.json", "folder/c.yml"]
    forms += [data, ThunderConfig(**data), resolve_config(data)]
    assert len({resolve_config(form) for form in forms}) == 1
    assert settings_of("c.yaml") == settings_of(**data)
    assert hash(settings_of("c.yaml")) == hash(settings_of(**data))


def test_a_path_without_suffix_is_told_by_its_separator() -> None:
    write("fused", "cache: no caching")
    assert resolve_config("./fused").cache == "no caching"
    assert resolve_config(Path("fused")).cache == "no caching"
    assert resolve_config("fused").cache == "constant values"  # the preset of the plugin


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("absent.yaml", None, "absent.yaml: file not found"),
        ("folder.yaml", "folder", "folder.yaml: is a directory; give the path of a file in it"),
        ("a\0b.yaml", None, "a\0b.yaml: cannot be read: embedded null byte"),
        ("c.yaml", b"cache: same input\n#\xff\n", "c.yaml:2: is not UTF-8: unexpected byte 0xff"),
        ("c.yaml", "cache: x".encode("utf-16"), "c.yaml:1: is not UTF-8: unexpected byte 0xff"),
        ("c.yaml", b"#" * (1 << 20) + b"\n", "c.yaml: is larger than 1 MiB"),
        ("c.json", b"{'a': 1}", "c.json:1: is not JSON: Expecting property name enclosed in double quotes"),
        ("c.json", b'{\n"recompute": NaN}', "c.json:1: is not JSON: NaN is not a number in JSON"),
        ("c.json", b"", "c.json:1: is not JSON: Expecting value"),
        ("c.json", b"[" * 100_000, "c.json:1: nested more than 32 deep"),
        ("c.yaml", b"executors:\n" + b"- name\n" * 100_000, "c.yaml:4999: cannot be read: more than 5000 values"),
        ("c.yaml", b"a: 1\n" * 100_000, "c.yaml:2500: cannot be read: more than 5000 values"),
        ("c.json", b"[" + b"1," * 6_000 + b"1]", "c.json:1: cannot be read: more than 5000 values"),
        ("c.yaml", b"executors: [" + b"name," * 1001 + b"]", "c.yaml:1: executors: has 1001 items; at most 1000 are "
         "accepted"),
        ("c.yaml", b"requires: [" + b"name," * 1001 + b"]", "c.yaml:1: requires: has 1001 items; at most 1000 are "
         "accepted"),
        ("c.json", b'{"cache": "same input",\n"cache": 1}', "c.json:2: cache: is set twice, first in line 1"),
        ("c.json", b'{\n\t"cache": "\\ud83d\\ude00"}', "c.json:2: cache: '\U0001f600' is not accepted; it is one of "
         "'constant values', 'same input', 'no caching'"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_files_that_are_no_configuration(name: str, content: Any, told: str) -> None:
    if content == "folder":
        Path(name).mkdir()
    elif content is not None:
        write(name, content)
    assert problems(name) == [told]
    with pytest.raises(ConfigError) as caught:
        thunder.jit(torch_identity, config=name)
    assert str(caught.value) == told
    with pytest.raises(ConfigError):
        read_config(Path(name))


def torch_identity(x: Any) -> Any:
    return x


def test_a_near_file_is_suggested() -> None:
    write("executors.yaml", "")
    assert problems("executor.yaml") == ["executor.yaml: file not found; did you mean 'executors.yaml'?"]


def test_a_file_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def refused(self: Path, *arguments: Any, **more: Any) -> Any:
        if self.name == "c.yaml":
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(self, *arguments, **more)

    write("c.yaml", "")
    monkeypatch.setattr(Path, "open", refused)
    assert problems("c.yaml") == ["c.yaml: cannot be read: Permission denied"]


@pytest.mark.parametrize("config", [3, b"c.yaml", ["c.yaml"], object])
def test_what_is_no_configuration_at_all(config: Any) -> None:
    with pytest.raises(ConfigError, match="a configuration is a path, the name of a preset, or a mapping, not"):
        resolve_config(config)


def test_unknown_preset() -> None:
    with pytest.raises(ConfigError, match="no preset 'defalt'; did you mean 'default'") as caught:
        settings_of("defalt")
    assert "a file is given by its path" in str(caught.value)
    assert problems("defalt") == ["there is no preset 'defalt'; did you mean 'default'?"]


# --- extends


def test_a_file_overrides_what_it_extends() -> None:
    write("base/base.yaml", "cache: same input\nrecompile_limit: 5\nexecutors: [slow, fast]\n")
    write("base/middle.yaml", "extends: base.yaml\nrecompile_limit: 6\n")
    write("c.yaml", "extends: base/middle.yaml\nexecutors: [fast]\n")
    config = resolve_config("c.yaml")
    assert (config.cache, config.recompile_limit, names(config)) == ("same input", 6, ["fast"])
    assert config.extends is None
    assert read_config("c.yaml").extends == "base/middle.yaml"


def test_presets_of_plugins() -> None:
    config = resolve_config("fused_more")  # extends a file beside it
    assert names(config) == ["nvfuser", "fast"]
    assert (config.cache, config.recompute) == ("same input", "aggressive")
    assert resolve_config("nvfuser.fused_more") == config
    assert resolve_config({"extends": "fused_more"}) == config


def test_presets_that_are_not_where_their_plugin_says() -> None:
    assert problems("lost") == ["nvfuser_presets/lost.yaml: file not found"]
    assert problems({"extends": "lost"}) == ["extends: nvfuser_presets/lost.yaml: file not found"]
    (told,) = problems({"extends": "nowhere"})
    assert told.startswith(
        "extends: the preset 'nowhere' of the plugin 'nvfuser' (thunder-plugin-nvfuser 0.3) cannot be read: "
        "nvfuser_absent cannot be imported: ModuleNotFoundError"
    )
    with pytest.raises(ConfigError, match="pip install --force-reinstall thunder-plugin-nvfuser"):
        resolve_config("nowhere")


def test_the_preset_reference_runs_as_little_as_possible() -> None:
    settings = settings_of("reference")
    names = [transform.name for transform in settings.transforms]
    assert (settings.executors, names, settings.recompute) == ((), ["agreement"], "none")  # which changes no program


def test_transforms_are_merged_by_name_and_option() -> None:
    write("base.yaml", "transforms:\n- quantize: {bits: 4}\n- constant_folding: {limit: 10}\n")
    write("c.yaml", "extends: base.yaml\ntransforms:\n- first\n- quantize: {scheme: log}\n")
    assert resolve_config("c.yaml").model_dump()["transforms"] == [
        {"constant_folding": {"enabled": True, "limit": 10, "optional": False}},
        {"simplify.common_subexpression": {"enabled": True, "optional": True}},
        *resolve_config().model_dump()["transforms"][2:],
        {"quantize": {"bits": 4, "enabled": True, "optional": False, "scheme": "log"}},
        {"first": {"enabled": True, "optional": False}},
    ]


@pytest.mark.parametrize(("below", "above"), [("kernels.quantize", "quantize"), ("quantize", "kernels.quantize")])
def test_a_transform_is_the_same_with_the_name_of_its_plugin_and_without(below: str, above: str) -> None:
    write("base.yaml", f"transforms:\n- {below}: {{bits: 4, scheme: log}}\n- first\n")
    write("c.yaml", f"extends: base.yaml\ntransforms:\n- {above}: {{bits: 3}}\n")
    assert resolve_config("c.yaml").model_dump()["transforms"][-2:] == [
        {above: {"bits": 3, "enabled": True, "optional": False, "scheme": "log"}},
        {"first": {"enabled": True, "optional": False}},
    ]
    write("c.yaml", f"extends: base.yaml\ntransforms:\n- {above}: {{bits: 3}}\n- {below}: {{bits: 2}}\n")
    twice = f"{below!r} is listed twice, first as {above!r}"
    assert problems("c.yaml") == [f"c.yaml:4: transforms[1]: {twice}"]
    write("d.yaml", f"extends: c.yaml\ntransforms:\n- {below}: {{bits: 1}}\n")
    assert problems("d.yaml") == [f"d.yaml:3: transforms[0]: {twice}"]


def test_options_below_are_told_of_their_file_whatever_the_transform_is_called_there() -> None:
    write("base.yaml", "transforms:\n- kernels.quantize:\n    bits: many\n")
    write("c.yaml", "extends: base.yaml\ntransforms: [quantize: {scheme: log}]\n")
    assert problems("c.yaml") == [
        "base.yaml:3: transforms[0].kernels.quantize.bits: must be an integer, not the text 'many'"
    ]


def test_a_transform_of_another_plugin_takes_the_place_of_one_of_the_same_name() -> None:
    write("base.yaml", "transforms: [nowhere.quantize: {depth: 4}]\n")
    write("c.yaml", "extends: base.yaml\ntransforms: [kernels.quantize: {bits: 3}]\n")
    assert resolve_config("c.yaml").transforms[-1].options == {
        "bits": 3,
        "enabled": True,
        "optional": False,
        "scheme": "linear",
    }


def test_who_names_a_transform_says_whether_it_is_optional() -> None:
    write("base.yaml", "transforms: [nowhere.quantize: {optional: true}]\n")
    assert [name for name, _ in settings_of("base.yaml").left_out] == ["nowhere.quantize"]
    write("c.yaml", "extends: base.yaml\ntransforms: [nowhere.quantize: {bits: 3}]\n")
    (told,) = problems("c.yaml")
    assert told.startswith("c.yaml:2: transforms[0]: there is no plugin 'nowhere'")
    off = settings_of("base.yaml", transforms=[{"nowhere.quantize": {"optional": True, "enabled": False}}])
    assert off.left_out == ()


def test_a_problem_is_told_of_the_file_that_has_it() -> None:
    write("base.yaml", "transforms:\n\n- quantize:\n    bits: many\n    scheme: 3\n")
    write("c.yaml", "extends: base.yaml\ntransforms:\n- quantize: {scheme: log}\ncach: x\n")
    assert problems("c.yaml") == [
        "c.yaml:4: cach: unknown option; did you mean 'cache'?",
        "base.yaml:4: transforms[0].quantize.bits: must be an integer, not the text 'many'",
    ]


def test_executors_that_are_overridden_need_not_be_there() -> None:
    write("base.yaml", "executors: [vendor, nowhere]\n")
    write("c.yaml", "extends: base.yaml\nexecutors: [fast]\n")
    assert problems("c.yaml") == []


def test_requirements_add_up() -> None:
    write("base.yaml", "requires: [torch]\n")
    write("c.yaml", "extends: base.yaml\nrequires: [torch>=2, torch]\n")
    assert resolve_config("c.yaml").requires == ("torch", "torch>=2")


def test_a_circle() -> None:
    write("a.yaml", "extends: b.yaml")
    write("b.yaml", "extends: folder/c.yaml")
    write("folder/c.yaml", "extends: ../b.yaml")
    assert problems("a.yaml") == [
        "folder/c.yaml:1: extends: is circular: b.yaml → folder/c.yaml → folder/../b.yaml",
    ]


# --- precedence


def test_arguments_override_the_configuration_and_it_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    write("environment.yaml", "recompile_limit: 1\nrecompile_warning: 1\n")
    write("c.yaml", "recompile_limit: 2\nexecutors: [fast]\n")
    monkeypatch.setenv("THUNDER_CONFIG", "environment.yaml")
    assert (resolve_config().recompile_limit, resolve_config().recompile_warning) == (1, 1)
    config = resolve_config("c.yaml")
    assert (config.recompile_limit, config.recompile_warning, names(config)) == (2, 8, ["fast"])
    config = resolve_config("c.yaml", recompile_limit=3, executors=["slow"], transforms=["quantize"])
    assert (config.recompile_limit, names(config), config.transforms[-1].name) == (3, ["slow"], "quantize")
    assert names(resolve_config("c.yaml", executors=[])) == []
    assert resolve_config(recompile_limit=7).recompile_warning == 1
    monkeypatch.setenv("THUNDER_CONFIG", "fused")
    assert names(resolve_config()) == ["nvfuser", "fast"]
    monkeypatch.setenv("THUNDER_CONFIG", "")
    assert resolve_config() == resolve_config("default")


@pytest.mark.parametrize("name", ["absent.yaml", "absent", "wrong.yaml"])
def test_the_environment_is_named_if_what_it_asks_for_is_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write("wrong.yaml", "cach: x")
    monkeypatch.setenv("THUNDER_CONFIG", name)
    with pytest.raises(ConfigError, match=f"the environment variable THUNDER_CONFIG names '{name}'"):
        thunder.jit(torch_identity)


# --- the cheap way


def test_nothing_is_imported_but_the_plugins_that_the_default_names() -> None:
    assert thunder.jit(torch_identity)(3) == 3
    settings_of("reference", executors=["reference"], cache="same input")
    assert [record.name for record in host().records if record.state is PluginState.LOADED] == [
        "core",
        "composites",
        "cudagraphs",
        "distributed",
        "layouts",
        "matmul",
        "simplify",
        "subclasses",
        "torchscript",
        "training",
    ]


def test_nothing_is_discovered_for_what_the_core_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any) -> Any:
        raise AssertionError("installed distributions were looked for")

    monkeypatch.setattr("importlib.metadata.distributions", never)
    for kind, name in [(ExecutorSpec, "reference"), (FrontEndSpec, "run"), (Preset, "cuda")]:
        assert find(kind, name).plugin.name == "core"
    with pytest.raises(AssertionError, match="were looked for"):
        find(ExecutorSpec, "fast")


def test_json_is_read_by_its_own_rules() -> None:
    config = write("c.json", json.dumps({"recompute": {"budget": 1e-3}, "recompile_limit": 10}))
    assert settings_of(config).recompute == 0.001
    name = "ö" * 1000  # escaped it is longer than YAML allows
    write(
        "c.json",
        '{"executors"\n:\n[{"x":{"' + name.encode("unicode_escape").decode().replace("\\x", "\\u00") + '":1}}]}',
    )
    assert read_config("c.json").executors[0].options == {name: 1}
