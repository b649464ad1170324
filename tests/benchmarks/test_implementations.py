"""What ``--impl`` takes."""

import pytest
import torch

import thunder
from benchmarks import implementations
from benchmarks.implementations import UnknownImplementation, check, compile_with


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
    check(name, "cpu")
    compile_with(name, abs)
    assert {key: value for key, value in jitted.items() if not key.startswith("recompile")} == expected


def test_a_configuration_file_is_used(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("executors: []\n")
    name = check(f"thunder:{path}", "cpu")
    compiled = compile_with(name, torch.nn.Linear(2, 2))
    assert compiled(torch.ones(1, 2)).shape == (1, 2)


def test_a_configuration_file_that_is_missing_is_told():
    with pytest.raises(UnknownImplementation, match=r"no file nowhere\.yaml"):
        check("thunder:nowhere.yaml", "cpu")


@pytest.mark.parametrize(
    ("name", "near"), [("eagr", "eager"), ("compile-reduce", "compile-reduce-overhead"), ("thunder[a", "thunder")]
)
def test_an_unknown_implementation_is_told_its_neighbour(name, near):
    with pytest.raises(UnknownImplementation, match=f"did you mean '{near}'"):
        check(name, "cpu")


@pytest.mark.parametrize("name", ["torchao-float8", "lightning-thunder"])
def test_a_package_that_is_missing_is_told(name, monkeypatch):
    monkeypatch.setattr(implementations, "_installed", lambda package: False)
    with pytest.raises(UnknownImplementation, match="not installed"):
        check(name, "cpu")


def test_compile_needs_a_compiler_on_a_cpu(monkeypatch):
    monkeypatch.setattr(implementations.shutil, "which", lambda name: None)
    with pytest.raises(UnknownImplementation, match=r"no C\+\+ compiler"):
        check("compile", "cpu")
    assert check("compile", "cuda") == "compile"
