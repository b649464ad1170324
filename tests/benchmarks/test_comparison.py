"""Which processes a comparison starts, with which caches, and what becomes of one that fails."""

from dataclasses import replace

import pytest

from benchmarks import comparison
from benchmarks.comparison import Plan, compare, missing, omitted
from benchmarks.process import ChildFailed
from benchmarks.workload import Workload

WORKLOAD = Workload("m", "training", "float32", "cpu", 2, 8, 6)
RESULT = {"losses": [1.0], "first": 1.0, "steps": [0.1], "host": [], "items": 16, "memory": {}}


@pytest.fixture
def turns():
    """Who had a turn, in order."""
    return []


@pytest.fixture
def started(monkeypatch, turns):
    """The processes: implementation, which steps, kernels, folder of the caches."""
    seen = []

    class Process:
        """A `FreshProcess` that gives way ``turns`` times and does nothing."""

        def __init__(self, function, *, threads, caches, limit, workload, implementation, kernels, first_only, turns):
            self.name, self.turns = implementation, turns
            seen.append((implementation, "first" if first_only else "all", kernels, caches))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def run_turn(self):
            turns.append(self.name)
            self.turns -= 1
            return self.turns >= 0

        def result(self):
            if self.name == "broken":
                raise ChildFailed("Traceback\nValueError: broken")
            return RESULT

    monkeypatch.setattr(comparison, "FreshProcess", Process)
    return seen


def _compare(*names, **options):
    return compare(Plan([WORKLOAD], names, **({"noise": 0} | options)), after=len)


def test_each_round_runs_everything_anew(started):
    _compare("eager", "a", rounds=2)
    assert [name for name, *_ in started] == ["eager", "a", "eager", "a"]
    assert len({caches for *_, caches in started}) == 4


def test_both_caches_are_a_short_run_and_one_that_finds_what_it_left(started):
    runs = _compare("eager", "a", rounds=2, cache="both")
    assert [(name, steps) for name, steps, *_ in started] == [("eager", "all"), ("a", "first"), ("a", "all")] * 2
    folders = [caches for name, _, _, caches in started if name == "a"]
    assert folders[0] == folders[1] != folders[2] == folders[3]
    assert [(run.cache, run.timed) for run in runs[1:3]] == [("cold", False), ("warm", True)]
    assert all(run.workload == WORKLOAD for run in runs)


def test_warm_caches_are_filled_once(started):
    _compare("a", rounds=3, cache="warm")
    assert [steps for _, steps, *_ in started] == ["first", "all", "all", "all"]
    assert len({caches for *_, caches in started}) == 1


def test_caches_can_be_filled_side_by_side_before_all_runs(started):
    runs = _compare("eager", "a", "b", rounds=2, cache="warm", side_by_side=2)
    filling, measured = started[:2], started[2:]
    assert sorted((name, steps) for name, steps, *_ in filling) == [("a", "first"), ("b", "first")]
    assert [(name, steps) for name, steps, *_ in measured] == [(name, "all") for name in ("eager", "a", "b")] * 2
    folders = {name: caches for name, _, _, caches in filling}
    assert all(folders.get(name, caches) == caches for name, _, _, caches in measured)
    assert [(run.cache, run.timed) for run in runs[:3]] == [("cold", True), ("warm", True), ("warm", True)]
    plan = Plan([WORKLOAD], ["eager", "a", "b"], rounds=2, cache="warm", noise=0, side_by_side=2)
    assert missing(plan, runs) == []


def test_noise_is_eager_with_other_kernels(started):
    runs = _compare("a", noise=2)
    assert [(name, kernels) for name, _, kernels, _ in started] == [
        ("a", None),
        ("eager", None),
        ("eager", "attention in parts"),
        ("eager", "no oneDNN"),
    ]
    assert [run.reference for run in runs] == [False, True, True, True]


def test_noise_of_models_of_images_is_of_their_convolutions(started):
    compare(Plan([replace(WORKLOAD, sequence=0)], ["eager"], noise=1), after=len)
    assert [kernels for _, _, kernels, _ in started] == [None, "no oneDNN"]


def test_cuda_graphs_are_not_run_with_a_cache_that_grows(started):
    growing = replace(WORKLOAD, task="generation", kv_cache="dynamic")
    names = ["compile", "compile-reduce-overhead"]
    plan = Plan([growing, replace(growing, kv_cache="static")], names, noise=0)
    runs = compare(plan, after=len)
    assert [(run.workload.kv_cache, run.implementation) for run in runs] == [
        ("dynamic", "compile"),
        ("static", "compile"),
        ("static", "compile-reduce-overhead"),
    ]
    assert ["compile-reduce-overhead is not run: CUDA graphs" in line for line in omitted(plan)] == [True]
    assert missing(plan, runs) == []


def test_a_failure_ends_nothing_and_is_kept(started):
    seen = []
    runs = compare(Plan([WORKLOAD], ["broken", "a"], noise=0), after=lambda done: seen.append(len(done)))
    assert [run.failure for run in runs] == ["Traceback\nValueError: broken", ""]
    assert seen == [1, 2]


def test_processes_of_a_round_take_turns_after_their_first_steps(started, turns):
    runs = _compare("a", "b", turns=2, noise=1)
    assert turns == ["a", "b", "a", "b", "a", "b", "eager", "eager"]
    assert [(run.implementation, run.kernels) for run in runs[:2]] == [("a", None), ("b", None)]
    assert all(run.result == RESULT for run in runs)


def test_without_turns_one_process_ends_before_the_next_starts(started, turns):
    _compare("a", "b")
    assert turns == ["a", "b"]
