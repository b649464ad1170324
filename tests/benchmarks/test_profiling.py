"""Where the time of a step goes: classes of kernels, rows, and the command with a tiny model."""

import json
from types import SimpleNamespace

import litgpt  # noqa: F401  # as a whole, before the benchmarks would take two files of it
import pytest
import torch

from benchmarks import __main__ as command_line
from benchmarks.comparison import Run
from benchmarks.process import ChildFailed
from benchmarks.profiling import measurement, processes, recording
from benchmarks.profiling.classes import class_of
from benchmarks.profiling.rows import rows_of
from benchmarks.workload import Workload
from tests.benchmarks.here import Here

TINY = ["--model", "nanogpt", "--layers", "1", "--embedding", "32", "--heads", "2", "--vocabulary", "256"]
QUICK = ["--batch", "1", "--sequence", "8", "--steps", "2", "--device", "cpu", "--impl", "eager", "thunder[]"]
ON_A_GPU = Workload("nanogpt", "training", "bf16-true", "cuda", 1, 8, 2, "adamw")


def _event(key, device, microseconds, count, annotation=False):
    times = {"self_device_time_total": microseconds, "self_cpu_time_total": 10 * microseconds}
    kind = SimpleNamespace(name=device)
    return SimpleNamespace(key=key, device_type=kind, count=count, is_user_annotation=annotation, **times)


def test_a_range_of_the_profiler_is_no_kernel():
    events = [
        _event("aten::mm", "CPU", 5, 4),
        _event("nvjet_a", "CUDA", 200, 4),
        _event("Optimizer.step#AdamW.step", "CUDA", 900, 2, annotation=True),
        _event("Optimizer.step#AdamW.step", "CPU", 1, 2, annotation=True),
        _event("triton_poi_fused_0", "CUDA", 600, 2),
    ]
    found = recording.kernels_of(events, 2, "cuda")
    assert [(kernel.name, kernel.seconds, kernel.launches) for kernel in found] == [
        ("triton_poi_fused_0", pytest.approx(3e-4), 1),
        ("nvjet_a", pytest.approx(1e-4), 2),
    ]
    assert [kernel.kind for kernel in recording.kernels_of(events, 2, "cpu")] == ["matmuls", "optimizer"]
    line = " ".join(recording.as_text(found).splitlines()[0].split())
    assert line == "0.300 ms 1.0 x 300.0 us Inductor fusions triton_poi_fused_0"


def test_recorded_time_is_that_of_one_step():
    matrix = torch.ones(64, 64)
    kernels, seconds = recording.record(lambda: [matrix @ matrix for _ in range(6)], 3, "cpu")
    product = next(kernel for kernel in kernels if kernel.name == "aten::mm")
    assert product.launches == 2
    assert product.seconds <= sum(kernel.seconds for kernel in kernels) <= seconds


def _run(name, kernels, **result):
    made = [recording.Kernel(kernel, class_of(kernel, "cuda"), seconds, 2).as_json() for kernel, seconds in kernels]
    fixed = {"losses": [3.0, 2.0, 1.0], "steps": [0.02, 0.03, 0.04], "host": [0.01], "queued": 0.025}
    fixed |= {"memory": {"allocated": 2**21, "reserved": 2**22}, "kernels": made, "rest": 0.005}
    return Run(ON_A_GPU, name, result=fixed | result)


def test_rows_of_a_gpu_have_classes_sum_idle_time_and_the_longest_kernels():
    runs = [
        _run("compile", [("nvjet_a", 0.01), ("triton_poi_fused_0", 0.004), ("void at::native::x", 0.001)], first=1.5),
        _run("thunder", [("triton_poi_fused_0", 0.006), ("nvjet_a", 0.005)], first=0.5),
        Run(
            Workload("nanogpt", "training", "bf16-true", "cuda", 1, 8, 2, "adamw"),
            "eager",
            failure="Traceback\nValueError: no",
        ),
    ]
    rows = rows_of(runs, {"lightning-thunder": "not available"}, kernels=1)
    found = {row.what: row.values for row in rows}
    assert {row.group.partition(",")[0] for row in rows} == {
        "training nanogpt", "kernels of a step by class", "longest kernels of a step"}  # fmt: skip
    assert found["training step"] == {"compile": 30, "thunder": 30}
    assert found["training step without synchronization"] == {"compile": 25, "thunder": 25}
    assert found["host time to enqueue it"] == {"compile": 10, "thunder": 10}
    assert found["first training step, empty caches"] == {"compile": 1.5, "thunder": 0.5}
    assert found["loss of step 2"] == {"compile": 2, "thunder": 2}
    assert found["matmuls"] == {"compile": 10, "thunder": 5}
    assert found["other kernels"] == {"compile": 1}
    assert found["sum"] == pytest.approx({"compile": 15, "thunder": 11})
    assert found["idle: the step minus its kernels"] == {"compile": 5, "thunder": 5}
    assert found["launches"] == {"compile": 6, "thunder": 4}
    assert [row.what for row in rows[-2:]] == [
        "matmuls: nvjet_a", "Inductor fusions: triton_poi_fused_0"]  # fmt: skip
    assert rows[-1].values == {"compile": 4, "thunder": 6}, "also where it is not the longest"
    assert all(row.skipped == {"lightning-thunder": "not available", "eager": "ValueError: no"} for row in rows)
    assert not any(row.group.startswith("longest") for row in rows_of(runs, {}, kernels=0))
    together = [_run("compile", [("nvjet_a", 0.01)], first=None)]
    assert not any(row.what.startswith("first") for row in rows_of(together, {}, kernels=1))


class Failing(Here):
    """One whose call fails with eager."""

    def result(self):
        if self._call.keywords["implementation"] == "eager":
            raise ChildFailed("Traceback\nValueError: too large")
        return super().result()


def _profile(tmp_path, *options):
    result = tmp_path / "result.json"
    code = command_line.main(["profile", *TINY, *QUICK, "--json", str(result), *map(str, options)])
    return code, json.loads(result.read_text())


def _told(content):
    return {row["what"]: set(row["values"]) for row in content["rows"]}


@pytest.mark.slow
def test_profile(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(processes, "FreshProcess", Here)
    code, content = _profile(tmp_path, "--folder", tmp_path / "all" / "kernels", "--kernels", 2)
    assert code == 0
    both = {"eager", "thunder[]"}
    told = _told(content)
    wanted = ("training step", "first training step, empty caches", "peak memory", "loss of step 3", "matmuls")
    assert all(told[what] == both for what in (*wanted, "optimizer", "sum", "launches"))
    assert told["compiled programs"] == {"thunder[]"}
    losses = [run["result"]["losses"] for run in content["runs"]]
    assert losses[1] == pytest.approx(losses[0])
    assert {"date", "versions", "commit", "processor", "device"} <= set(content)
    files = {path.name: path.read_text() for path in (tmp_path / "all" / "kernels").iterdir()}
    assert set(files) == {"01-eager.txt", "02-thunder.txt", "02-thunder-explain.txt"}
    assert len(files["01-eager.txt"].splitlines()) == 2 + len(content["runs"][0]["result"]["kernels"])
    assert "matmuls" in files["02-thunder.txt"]
    assert "calls from the cache" in files["02-thunder-explain.txt"]
    capsys.readouterr()
    assert command_line.main(["show", str(tmp_path / "result.json")]) == 0
    assert "operators of a step by class" in capsys.readouterr().out


@pytest.mark.slow
def test_what_fails_is_told_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(processes, "FreshProcess", Failing)
    code, content = _profile(tmp_path)
    assert code == 1
    assert _told(content)["training step"] == {"thunder[]"}
    assert content["rows"][0]["skipped"] == {"eager": "ValueError: too large"}
    assert "eager skipped: ValueError: too large" in capsys.readouterr().out


@pytest.mark.slow
def test_profile_together(tmp_path, monkeypatch):
    """Each gives way once, when it has compiled; `test_profiled_processes` shows it with processes."""
    given = []
    monkeypatch.setattr(processes, "FreshProcess", Here)
    monkeypatch.setattr(measurement, "yield_turn", lambda: given.append(None))
    code, content = _profile(tmp_path, "--together")
    assert code == 0
    assert len(given) == 2
    told = _told(content)
    assert told["training step"] == told["sum"] == {"eager", "thunder[]"}
    assert not any(what.startswith("first") for what in told)
