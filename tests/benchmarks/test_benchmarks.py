"""The benchmarks' own machinery. Figures are not tested here: they depend on the machine."""

import types

import pytest

from benchmarks import compile_time, dispatch, dynamo, memory, overhead
from benchmarks.process import ChildFailed, in_fresh_process
from benchmarks.timing import interleaved_medians


@pytest.mark.slow
def test_medians_are_seconds_of_one_call(monkeypatch):
    now = [0.0]

    def call(seconds):
        now[0] += seconds

    monkeypatch.setattr("benchmarks.timing.time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    calls = {"a": lambda: call(0.001), "b": lambda: call(0.00001)}
    assert interleaved_medians(calls, rounds=3, block=0.002) == pytest.approx({"a": 0.001, "b": 0.00001})


@pytest.mark.slow
def test_a_failing_process_is_reported():
    with pytest.raises(ChildFailed, match="no_such_case"):
        in_fresh_process(overhead.seconds_per_call, threads=1, case="no_such_case", names=["eager"])


@pytest.mark.slow
def test_overhead_runs():
    assert set(overhead.seconds_per_call("small_arithmetic", ["eager", "thunder"])) == {"eager", "thunder"}


@pytest.mark.slow
def test_calls_under_dynamo_run():
    seconds = dynamo.seconds_per_call("small_arithmetic")
    assert set(seconds) == {"eager", dynamo.WITHOUT_PROGRAM, dynamo.WITH_THUNDER, "thunder[]"}


@pytest.mark.parametrize("case", ["residual_network", "small_llama_decode"])
@pytest.mark.slow
def test_peak_memory_runs(case):
    peaks = memory.peak_bytes(case, ["eager", "thunder"])
    assert peaks["eager"] > 0
    assert peaks["thunder"] > 0


@pytest.mark.slow
def test_acquisition_runs():
    result = compile_time.acquisition(layers=1)
    assert 0 < result["acquisition"] <= result["first call"]


@pytest.mark.parametrize("key", dispatch.KEYS)
@pytest.mark.battery
def test_dispatch_runs(key, monkeypatch):
    monkeypatch.setattr(dispatch, "ENTRIES", 3)
    assert set(dispatch.seconds_by_entry(key, "thunder")) == {"only", "oldest", "newest", "in turn"}
