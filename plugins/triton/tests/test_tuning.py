"""The choice of block sizes: timed once, kept on disk, and left to the table where times must not decide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from triton.runtime.errors import OutOfResources

from thunder_core.errors import CacheWarning
from thunder_core.executors.artifacts import artifact_cache
from thunder_plugin_triton import tuning
from thunder_plugin_triton.row_tiles import accumulating, blocks, single_pass
from thunder_plugin_triton.tuning import Configuration, Tunable, fixed_choice, rows_bucket

CPU = torch.device("cpu")
CANDIDATES = [{"BLOCK": 64, "num_warps": 1}, {"BLOCK": 128, "num_warps": 2}, {"BLOCK": 256, "num_warps": 4}]


class Stopwatch:
    """Takes the place of times: 128 is the fastest."""

    def __init__(self) -> None:
        self.timed: list[Configuration] = []

    def __call__(self, launch: Callable[[Configuration], object], candidate: Configuration) -> float:
        launch(candidate)
        self.timed.append(candidate)
        return abs(candidate["BLOCK"] - 128)


@pytest.fixture
def stopwatch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stopwatch:
    found = Stopwatch()
    monkeypatch.setattr(tuning, "_milliseconds", found)
    monkeypatch.setattr(tuning, "INTERPRETED", False)
    monkeypatch.setattr(tuning, "_is_current", lambda device: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path / "cache"))
    return found


def launched(tunable: Tunable, *key: int) -> int:
    """The block of the launch that counts."""
    blocks: list[int] = []
    tunable.run(CPU, key, lambda chosen: blocks.append(chosen["BLOCK"]))
    return blocks[-1]


def tunable(name: str = "kernel") -> Tunable:
    return Tunable(name, lambda *key: CANDIDATES)


def test_the_fastest_is_taken_and_timed_once(stopwatch: Stopwatch) -> None:
    kernel = tunable()
    assert [launched(kernel, 5), launched(kernel, 5)] == [128, 128]
    assert stopwatch.timed == CANDIDATES
    launched(kernel, 6)
    assert len(stopwatch.timed) == 6


def test_choices_are_kept_for_other_processes(stopwatch: Stopwatch) -> None:
    launched(tunable(), 5)
    assert launched(tunable(), 5) == 128  # another object knows nothing, like another process
    assert len(stopwatch.timed) == 3
    launched(tunable("another"), 5)
    assert len(stopwatch.timed) == 6


def test_what_is_damaged_or_foreign_on_disk_is_timed_again(stopwatch: Stopwatch) -> None:
    launched(tunable(), 5)
    store = artifact_cache()
    ((path, _),) = store.files()
    path.write_bytes(b"nonsense")
    assert launched(tunable(), 5) == 128
    assert len(stopwatch.timed) == 6
    store.folder.chmod(0o777)
    with pytest.warns(CacheWarning, match="others can write"):
        assert launched(tunable(), 5) == 128
    assert len(stopwatch.timed) == 9


def test_nothing_is_kept_without_a_folder(stopwatch: Stopwatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_CACHE_DIR", "")
    assert [launched(tunable(), 5), launched(tunable(), 5)] == [128, 128]
    assert len(stopwatch.timed) == 6


def test_no_times_while_a_stream_is_captured(stopwatch: Stopwatch, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tunable()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert launched(kernel, 5) == 64
    assert not stopwatch.timed
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert launched(kernel, 5) == 128


def test_no_times_where_the_choice_is_fixed(stopwatch: Stopwatch) -> None:
    kernel = tunable()
    assert launched(kernel, 5) == 128
    with fixed_choice():
        assert launched(kernel, 5) == 64
    torch.use_deterministic_algorithms(True)
    try:
        assert launched(kernel, 5) == 64
    finally:
        torch.use_deterministic_algorithms(False)
    assert launched(kernel, 5) == 128


def test_what_does_not_fit_is_never_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(candidate: Configuration) -> float:
        if candidate["BLOCK"] > 64:
            raise OutOfResources(2, 1, "shared memory")
        return 5.0

    monkeypatch.setattr(tuning, "do_bench", lambda function, **options: function())
    monkeypatch.setenv("THUNDER_CACHE_DIR", "")
    assert tuning.fastest("kernel", CPU, CANDIDATES[::-1], launch) == CANDIDATES[0]


def test_buckets_of_rows() -> None:
    assert [rows_bucket(rows) for rows in (0, 1, 256, 257, 2048, 16384, 16385)] == [
        256, 256, 256, 2048, 2048, 16384, 131072
    ]  # fmt: skip


@pytest.mark.parametrize("width", [1, 2, 100, 2048, 4096, 5000, 8192, 32768])
@pytest.mark.parametrize("candidates", [single_pass, accumulating, blocks])
def test_candidates_are_few_and_cover_the_row(candidates: Callable[..., list[Configuration]], width: int) -> None:
    found = candidates(width, 256)
    assert 1 <= len(found) <= 8
    for each in found:
        assert found.count(each) == 1
        assert each["num_warps"] in (1, 2, 4, 8, 16, 32)
        assert candidates is blocks or each["BLOCK"] in range(width, 2 * width)
