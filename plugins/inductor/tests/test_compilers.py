"""Without a compiler, or with one that fails, programs still run, and the reason is reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from thunder_plugin_inductor import compilers, pytorch_internals, vector_instructions
from thunder_testing.forked import run_forked

PROGRAM = """
import torch
import thunder

program = thunder.jit(lambda x: (x.exp() * 2).sin(), executors=["inductor"])
x = torch.randn(3)
torch.testing.assert_close(program(x), (x.exp() * 2).sin())
decision = thunder.explain(program).decisions[0]
print(decision.executor, *decision.declined[0], sep="|")
"""

VECTORS = """
import torch
from torch._inductor.cpu_vec_isa import valid_vec_isa_list
from thunder_plugin_inductor.vector_instructions import find_vector_instructions

without_trial = find_vector_instructions() if {first} else False
print(without_trial, [(str(isa), isa.build_arch_flags()) for isa in valid_vec_isa_list()])
"""


UNKNOWN = {
    "without a compiler": "",
    "with other instructions in PyTorch": "torch.backends.cpu.get_cpu_capability = lambda: 'DEFAULT'",
}
FIND = """
import torch
from thunder_plugin_inductor.vector_instructions import find_vector_instructions

{change}
print(find_vector_instructions())
"""


def run(text: str, folder: Path, **environment: str) -> str:
    """What a process without Inductor's caches prints last; it imports Inductor after the variables are set."""
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "XDG_CACHE_HOME": str(folder)}
    child = run_forked(text, environment=os.environ | caches | environment, preloaded=["torch"])
    assert child.returncode == 0, child.stderr
    return child.stdout.splitlines()[-1]


@pytest.mark.one_version
@pytest.mark.slow
def test_without_a_compiler(tmp_path: Path) -> None:
    said = run(PROGRAM, tmp_path, CXX=str(tmp_path / "nothing"))
    assert said == "reference|inductor|there is no C++ compiler; install g++ or clang++, or set CXX to one"


@pytest.mark.one_version
@pytest.mark.slow
def test_with_a_compiler_that_fails(tmp_path: Path) -> None:
    """A real refusal: the region goes to the reference executor, with the compiler's words."""
    broken = tmp_path / "g++"
    broken.write_text('#!/bin/sh\ncase "$*" in *--version*) echo "g++ 13.0";; *) echo "disk full" >&2; exit 1;; esac\n')
    broken.chmod(0o755)
    executor, name, reason = run(PROGRAM, tmp_path, CXX=str(broken)).split("|")
    assert (executor, name) == ("reference", "inductor")
    assert reason.startswith("Inductor rejects its region: ")
    assert "disk full" in reason


@pytest.mark.parametrize("case", UNKNOWN)
@pytest.mark.slow
def test_vector_instructions_that_only_trials_find(case: str, tmp_path: Path) -> None:
    compiler = {"CXX": str(tmp_path / "nothing")} if case == "without a compiler" else {}
    assert run(FIND.format(change=UNKNOWN[case]), tmp_path, **compiler) == "False"


def test_nothing_is_asked_of_a_compiler_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch would raise."""
    monkeypatch.setattr(vector_instructions, "missing_compiler", lambda device: "there is none")
    monkeypatch.setattr(pytorch_internals, "get_cpp_compiler", None)
    monkeypatch.setattr(pytorch_internals, "valid_vec_isa_list", None)
    assert not vector_instructions.find_vector_instructions.__wrapped__()


@pytest.mark.skipif(compilers.missing_compiler("cpu") is not None, reason="needs a C++ compiler")
@pytest.mark.slow
@pytest.mark.battery
def test_vector_instructions_are_those_that_trials_find(tmp_path: Path) -> None:
    """Found without trials or not at all; the trials take most of a minute on a busy machine."""
    ours = run(VECTORS.format(first=True), tmp_path / "ours")
    theirs = run(VECTORS.format(first=False), tmp_path / "theirs")
    assert ours.partition(" ")[2] == theirs.partition(" ")[2]
