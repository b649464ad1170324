"""What ``--impl`` takes."""

import pytest
import torch

import thunder
from benchmarks import availability
from benchmarks.availability import not_available, required
from benchmarks.implementations import (
    GROUPS,
    UnknownImplementation,
    check,
    checked,
    compile_with,
    executors_of,
    in_float8,
)


@pytest.fixture
def jitted(monkeypatch):
    """The arguments that ``thunder.jit`` is called with."""
    seen = {}
    monkeypatch.setattr(thunder, "jit", lambda program, **options: seen.update(options) or program)
    return seen


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("thunder", {}),
        ("thunder[]", {"executors": []}),
        ("thunder[a]", {"executors": ["a"]}),
        ("thunder[a, b+c,d]", {"executors": ["a", "b"], "transforms": ["c", "d"]}),
        ("thunder[+c]", {"transforms": ["c"]}),
        ("thunder:plain", {"config": "plain"}),
    ],
)
def test_names_of_thunder_say_its_executors_and_transforms(name, expected, jitted):
    check(name)
    compile_with(name, abs)
    assert {key: value for key, value in jitted.items() if not key.startswith("recompile")} == expected


def test_a_configuration_file_is_used(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("executors: []\n")
    name = check(f"thunder:{path}")
    compiled = compile_with(name, torch.nn.Linear(2, 2))
    assert compiled(torch.ones(1, 2)).shape == (1, 2)


def test_a_configuration_file_that_is_missing_is_told():
    with pytest.raises(UnknownImplementation, match=r"no file nowhere\.yaml"):
        check("thunder:nowhere.yaml")


@pytest.mark.parametrize(
    ("name", "near"), [("eagr", "eager"), ("compile-reduce", "compile-reduce-overhead"), ("thunder[a", "thunder")]
)
def test_an_unknown_implementation_is_told_its_neighbour(name, near):
    with pytest.raises(UnknownImplementation, match=f"did you mean '{near}'"):
        check(name)


@pytest.mark.parametrize("name", ["torchao-float8", "lightning-thunder"])
def test_a_package_that_is_missing_is_told(name, monkeypatch):
    monkeypatch.setattr(availability.importlib.util, "find_spec", lambda package: None)
    monkeypatch.setattr(availability.importlib.metadata, "distributions", lambda name: iter(()))
    monkeypatch.setattr(availability.shutil, "which", lambda name: "/usr/bin/c++")
    assert "not installed" in not_available(check(name))
    with pytest.raises(UnknownImplementation, match="not installed"):
        required([name], "cpu")


def test_a_plugin_that_is_missing_is_told():
    assert not_available("thunder[sdpa]") == ""
    reason = not_available("thunder[sdpa,nowhere]")
    assert "executors[1]" in reason
    assert "'nowhere'" in reason
    assert "\n" not in reason


def test_compile_needs_a_compiler_on_a_cpu(monkeypatch):
    monkeypatch.setattr(availability.shutil, "which", lambda name: None)
    assert "no C++ compiler" in not_available("compile", "cpu")
    assert not_available("compile", "cuda") == ""


def test_executors_of_a_configuration(tmp_path):
    path = tmp_path / "float8.yaml"
    path.write_text("executors:\n  - te: {recipe: block}\n  - sdpa\n")
    (tmp_path / "more.yaml").write_text("extends: float8.yaml\ntransforms: [cudagraphs]\n")
    for name in (f"thunder:{path}", f"thunder:{tmp_path / 'more.yaml'}"):
        assert executors_of(name) == ["te", "sdpa"]
        assert in_float8(name)
    assert not in_float8("thunder:reference")
    assert executors_of("thunder:cuda") == ["sdpa", "triton", "inductor"]


def test_the_lists_of_executors_are_written_out():
    names = checked(["thunder[inductor]", "lists"])
    assert names[0] == "thunder[inductor]"
    assert sorted(names) == sorted(GROUPS["lists"])
    assert [name for name in names if in_float8(name)] == [
        "torchao-float8",
        "thunder[te,cudnn,triton,inductor]",
        "thunder[te,sdpa,inductor+cudagraphs]",
    ]
