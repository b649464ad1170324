"""A cache of a bounded number of results."""

from __future__ import annotations

import threading
import time

import pytest

from thunder_core.ir.bounded_cache import BoundedCache


def refuse() -> int:
    raise AssertionError("computed although it is cached")


def test_results_are_computed_once() -> None:
    cache = BoundedCache[int | None](2)
    assert cache.get("a", lambda: None) is None
    assert cache.get("a", refuse) is None


def test_the_least_recently_used_result_leaves() -> None:
    cache = BoundedCache[int](2)
    cache.get("a", lambda: 1)
    cache.get("b", lambda: 2)
    cache.get("a", refuse)
    cache.get("c", lambda: 3)
    assert cache.lookup("abc") == {"a": 1, "c": 3}
    assert cache.results() == [1, 3]
    cache.clear()
    assert cache.results() == []


def test_calls_without_a_key_are_not_cached() -> None:
    cache = BoundedCache[int](2)
    assert [cache.get(None, lambda: 1), cache.get(None, lambda: 2)] == [1, 2]
    assert cache.results() == []


def test_an_exception_is_not_cached() -> None:
    cache = BoundedCache[int](2)
    with pytest.raises(AssertionError):
        cache.get("a", refuse)
    assert cache.get("a", lambda: 1) == 1


def test_threads_get_one_result() -> None:
    cache, results = BoundedCache[object](2), []

    def compute() -> object:
        time.sleep(0.01)
        return object()

    threads = [threading.Thread(target=lambda: results.append(cache.get("a", compute))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, results))) == 1
