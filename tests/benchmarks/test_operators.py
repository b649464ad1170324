"""Single operators, at the sizes for a CPU."""

import json

import litgpt  # noqa: F401  # as a whole, before the benchmarks would take two files of it
import pytest
import torch

from benchmarks import __main__ as command_line
from benchmarks import selection
from benchmarks.operators import accuracy, candidate, isolation, limits, measurement, rows
from benchmarks.operators.case import Problem
from benchmarks.operators.catalogue import CASES
from benchmarks.operators.traffic import traffic
from benchmarks.process import ChildFailed


@pytest.fixture
def here(monkeypatch):
    """What would run in other processes runs in this one, and is timed by one call."""

    def call(function, *, threads, caches=None, **arguments):
        return function(**arguments)

    for module in (isolation, selection):
        monkeypatch.setattr(module, "in_fresh_process", call)
    for module in (measurement, limits):
        monkeypatch.setattr(module, "medians", lambda calls, before: {name: 1e-3 for name, call in calls.items()})
    monkeypatch.setitem(limits.LARGE, "cpu", (2**10, 8))


def _run(*arguments):
    return command_line.main(["operators", "--device", "cpu", *map(str, arguments)])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.operator}-{case.what}")
@pytest.mark.battery
def test_a_case_has_equal_results_from_eager_and_the_reference_executor(case):
    for sizes in case.sizes("cpu") or [(32, 64, 128)]:
        problem = case.make(torch.float32, *sizes)
        outputs = accuracy.outputs_of(problem.program(*problem.arguments))
        cotangents = [torch.randn_like(output) for output in outputs]
        exact = accuracy.exact_results(problem, cotangents)
        assert all(tensor.dtype is torch.float64 for part in exact for tensor in part)
        for name in ("eager", "thunder[]"):
            made = candidate.Candidate(name, problem, cotangents)
            for found, right in zip((made.forward(), made.both()), exact, strict=True):
                assert max(accuracy.relative_errors(found, right)) < 32


def test_an_error_is_a_multiple_of_eagers():
    exact = [torch.tensor([3.0, 4.0], dtype=torch.float64)]
    eps = torch.finfo(torch.float32).eps
    (error,) = accuracy.relative_errors([torch.tensor([3.0, 4.0 + 8 * eps])], exact)
    assert error == pytest.approx(8 / 5)
    assert accuracy.multiple([4.0, 1.0], [1.0, 1.0]) == 4
    assert accuracy.multiple([1.0], [0.0]) == 4, "eager was exact by chance"
    with pytest.raises(ValueError, match="shape"):
        accuracy.relative_errors([torch.zeros(3)], exact)


def test_traffic_counts_each_byte_once():
    x, y = torch.randn(8, 4, requires_grad=True), torch.randn(8, 4)
    problem = Problem(torch.mul, (x, y))
    # Forward: x, y and the result. Backward: x (kept), the result's gradient, x's gradient.
    assert traffic(problem, [x * y]) == (3 * 128, 6 * 128)
    assert traffic(Problem(torch.mul, (x, y), saved=()), [x * y]) == (3 * 128, 5 * 128)


@pytest.mark.slow
def test_the_command(here, tmp_path, capsys):
    result = tmp_path / "result.json"
    asked = ["--operator", "swiglu", "attention", "--executor", "sdpa", "nowhere", "--impl", "eager", "thunder[]"]
    assert _run(*asked, "--json", result) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "thunder[nowhere] not available: executors[0]: there is no executor 'nowhere'" in output
    assert "thunder[sdpa] skipped: swiglu, declined: it claims none of these operations" in output
    assert "attention: thunder[sdpa] claims sdpa" in output
    content = json.loads(result.read_text())
    units = {row["unit"] for row in content["rows"]}
    assert units == {"us", "GB/s", "TFLOP/s", "%", "x"}
    times = [row for row in content["rows"] if row["unit"] == "us"]
    assert {tuple(row["values"]) for row in times if row["group"].startswith("swiglu")} == {
        ("limit", "eager", "thunder[]")
    }
    assert all("thunder[sdpa]" in row["values"] for row in times if row["group"].startswith("attention"))
    errors = [row for row in content["rows"] if row["unit"] == "x"]
    assert errors
    assert all(row["reached"] for row in errors)


@pytest.mark.slow
def test_an_executor_that_fails_is_told_and_the_others_are_measured(here, monkeypatch):
    def broken(name, program):
        if name == "thunder[]":
            raise RuntimeError("no kernel image\nfor this device")
        return program

    monkeypatch.setattr(candidate, "compile_with", broken)
    found = measurement.measure("softmax", ["eager", "thunder[]"], "float32", "cpu")
    assert all(result["skipped"] == {"thunder[]": "failed: RuntimeError: no kernel image"} for result in found)
    assert all(set(result["seconds"]) == {"eager"} for result in found)


def test_of_a_process_that_dies_the_rest_is_measured_one_by_one(monkeypatch):
    def call(function, *, threads, implementations, **arguments):
        if "b" in implementations:
            raise ChildFailed("Traceback\nCUDA error: an illegal memory access")
        return [{"case": "x", "seconds": dict.fromkeys(implementations, 1.0)}]

    monkeypatch.setattr(isolation, "in_fresh_process", call)
    found, failed = isolation.measure_isolated("softmax", ["eager", "a", "b", "c"], "bf16", "cuda", 1)
    assert failed == {"b": "softmax: CUDA error: an illegal memory access"}
    assert [set(result["seconds"]) for result in found] == [{"eager", "a", "c"}]


def test_goals_of_a_gpu():
    result = {"skipped": {}, "claimed": {}, "declined": {}}
    result |= {"case": "x", "pass": "forward", "limit": 9e-6, "bytes": 9, "operations": 0, "float8": False}
    result |= {"bandwidth": 1.0, "eager": [1.0], "errors": {"eager": 1, "thunder[a]": 3}}
    result |= {"seconds": {"eager": 2e-5, "thunder[a]": 1e-5, "thunder[b]": 2e-5}}
    time, rate, share, error = rows.rows_of("x", [result], "bf16", "cuda")
    assert time.values["limit"] == pytest.approx(9)
    assert rate.unit == "GB/s"
    assert not rate.ratios()
    assert share.values["thunder[a]"] == pytest.approx(90)
    assert share.reached, "the best executor counts"
    assert error.reached is False
    assert rows.rows_of("x", [result], "bf16", "cpu")[2].goal == ""


def test_unknown_operators_are_refused_and_known_ones_listed(capsys):
    with pytest.raises(SystemExit):
        _run("--operator", "rms_nrom")
    assert "did you mean 'rms_norm'" in capsys.readouterr().err
    assert _run("--list-operators") == 0
    assert "4096x4096x128256" in capsys.readouterr().out
