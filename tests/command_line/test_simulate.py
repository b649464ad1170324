"""``thunder simulate``: its output, and its errors for invalid input."""

from __future__ import annotations

import json

import pytest

PROGRAM = """
import torch
from torch.nn.parallel import DistributedDataParallel


def make(mesh):
    linear = torch.nn.Linear(64, 32, bias=False)
    model = DistributedDataParallel(linear, process_group=mesh.get_group("dp"), init_sync=False)
    return model, torch.ones(4, 64)


plain = torch.nn.Linear(4, 2)
parts = [(torch.nn.LayerNorm(4), torch.nn.Linear(4, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)) for _ in range(6)]
deep = torch.nn.Sequential(*[torch.nn.Sequential(*part) for part in parts])
inputs = torch.ones(3000, 4)
"""


@pytest.fixture(autouse=True)
def file(tmp_path):
    (tmp_path / "many.py").write_text(PROGRAM)


def test_collectives_memory_and_time_are_shown(command):
    ended = command("simulate", "many.py:make", "--world-size", "8", "--mesh", "dp=4,tp=2", "--executors", "")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0].startswith("many.py:make: rank 0 of 8 (dp=4, tp=2), compiled in ")
    assert [line.split() for line in lines[2:4]] == [
        ["PHASE", "COLLECTIVE", "GROUP", "RANKS", "COUNT", "SENT"],
        ["backward", "all_reduce", "dp", "4", "1", "12.0", "KiB"],
    ]
    assert "sent by the rank in a step: 12.0 KiB" in lines
    assert "(parameters 8.0 KiB, buffers 0 bytes, optimizer 16.0 KiB, gradients and activations " in ended.out
    assert "time on h100: " in ended.out


def test_json(command):
    data = json.loads(command("simulate", "many.py:make", "--world-size", "4", "--mesh", "dp=4", "--json").out)
    assert data["collectives"] == [
        {"phase": "backward", "kind": "all_reduce", "group": "dp", "ranks": 4, "count": 1, "bytes": 2 * 8192 * 3 // 4}
    ]
    assert data["bytes"] == 2 * 8192 * 3 // 4
    memory = data["memory"]
    assert memory["peak"] == sum(memory[name] for name in ("parameters", "buffers", "optimizer", "programs"))


@pytest.mark.slow
def test_the_curve_is_a_table(command):
    arguments = ("simulate", "many.py:deep", "--world-size", "2", "--curve")
    ended = command(*arguments)
    assert ended.code == 0, ended.err
    rows = [line.split() for line in ended.out.split("\n\n")[-1].splitlines()]
    assert rows[0] == ["PEAK", "TIME", "ADDED", "SAVED", "RECOMPUTED"]
    curve = json.loads(command(*arguments, "--json").out)["curve"]
    assert len(curve) == len(rows) - 1 > 1
    assert set(curve[0]) == {"peak", "seconds", "added", "saved", "recomputed"}
    assert curve[0]["peak"] > curve[-1]["peak"]


def test_a_module_that_does_not_communicate(command):
    ended = command("simulate", "many.py:plain", "--world-size", "2")
    assert ended.code == 0, ended.err
    assert "no collectives" in ended.out


def test_hardware_of_a_file(command, tmp_path):
    (tmp_path / "own.yaml").write_text(
        "name: own\nflops: {default: 1.0e12}\nmemory_bandwidth: 1.0e12\nmemory: 1.0e10\n"
        "inside: {latency: 0, bandwidth: 1.0e10}\noutside: {latency: 0, bandwidth: 1.0e9}\n"
    )
    ended = command("simulate", "many.py:plain", "--world-size", "2", "--hardware", "own.yaml")
    assert ended.code == 0, ended.err
    assert "time on own: " in ended.out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--world-size", "0"], "greater than or equal to 1"),
        (["--world-size", "8", "--mesh", "dp:8"], "is not a mesh; write dp=128,tp=8"),
        (["--world-size", "8", "--hardware", "none"], "is neither a file nor one of h100, h200"),
        (["--world-size", "8", "--hardware", "bad.yaml"], "memory_bandwidth: Field required"),
        (["--world-size", "8", "--optimizer", "lion"], "is not one of adamw, sgd, none"),
        (["--world-size", "8", "--curve", "--inference"], "a call without gradients has nothing to recompute"),
    ],
)
def test_input_that_is_not_accepted(command, tmp_path, arguments, problem):
    (tmp_path / "bad.yaml").write_text("name: bad\n")
    ended = command("simulate", "many.py:make", *arguments)
    assert ended.code == 2
    assert problem in " ".join(ended.err.split()), ended.err


def test_a_mesh_of_another_size_is_an_error(command):
    ended = command("simulate", "many.py:make", "--world-size", "8", "--mesh", "dp=4")
    assert (ended.code, ended.err) == (1, "the mesh dp=4 has 4 ranks, but the world size is 8\n")
