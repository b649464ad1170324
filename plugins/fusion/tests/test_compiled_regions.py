"""Compiled regions on disk: what is found again, what is not, and what happens to a folder that is unusable."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from saving_executor import Saving

import thunder
from thunder.report.regions_report import RegionReport
from thunder_core.executors.artifacts import ArtifactCache
from thunder_fusion import compiled_regions
from thunder_testing.forked import ForkedProgram, start_forked
from thunder_testing.pointwise import Pointwise

FOLDER = Path(__file__).resolve().parent


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(path))
    return path


def run(executor: Pointwise, scale: Any = 2, function: Any = None) -> RegionReport:
    """Compile as a process does that has compiled nothing yet."""
    compiled_regions._cache.clear()
    program = thunder.jit(function or (lambda x: x.exp() * scale), executors=[executor])
    x = torch.randn(3)
    torch.testing.assert_close(program(x), (function or (lambda x: x.exp() * scale))(x))
    report = thunder.explain(program).entries[0].regions
    assert report is not None
    return report


def counts(report: RegionReport) -> tuple[int, int]:
    return report.compiled, report.read


def test_read_again(folder: Path) -> None:
    assert counts(run(Saving())) == (1, 0)
    assert counts(run(Saving())) == (0, 1)
    assert counts(run(Saving(), 3)) == (1, 0)
    assert len(ArtifactCache(folder).files()) == 2
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_is_in_the_key(folder: Path) -> None:
    run(Saving())
    assert counts(run(Saving(version="2"))) == (1, 0)
    assert counts(run(Saving("other"))) == (1, 0)
    assert counts(run(Saving(), 2.0)) == (1, 0)
    assert counts(run(Saving(), function=lambda x: x.double().exp() * 2)) == (1, 0)
    previous = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if previous == "highest" else "highest")
    try:
        assert counts(run(Saving())) == (1, 0)
    finally:
        torch.set_float32_matmul_precision(previous)
    assert counts(run(Saving())) == (0, 1)


@pytest.mark.parametrize("where", ["software", "hardware"])
def test_other_versions_and_machines(folder: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    from thunder_fusion import artifacts

    run(Saving())
    monkeypatch.setattr(artifacts, where, lambda *device: "another")
    assert counts(run(Saving())) == (1, 0)


def test_executors_without_artifacts_keep_nothing(folder: Path) -> None:
    assert counts(run(Pointwise())) == (1, 0)
    assert counts(run(Pointwise())) == (1, 0)
    assert not folder.exists()


def test_refusals_are_not_kept(folder: Path) -> None:
    for _ in range(2):
        executor = Saving(refuses=("torch.exp",))
        assert counts(run(executor)) == (1, 0)
        assert len(executor.regions) == 1
    contents = [path.read_bytes() for path, _ in ArtifactCache(folder).files()]
    assert not any(content.endswith(b"saved") for content in contents)  # only what exp is in core ATen


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "of another executor"])
def test_damaged_files_are_made_again(folder: Path, damage: str) -> None:
    run(Saving())
    ((path, _),) = ArtifactCache(folder).files()
    content = path.read_bytes()
    if damage == "of another executor":
        import hashlib

        data = b"something else"
        start = len(content) - len(b"saved") - 32
        path.write_bytes(content[:start] + hashlib.sha256(data).digest() + data)
    else:
        path.write_bytes({"cut": content[:-1], "changed": content[:-1] + b"?", "empty": b""}[damage])
    report = run(Saving())
    assert counts(report) == (1, 0)
    (note,) = report.notes
    assert note.startswith("an artifact on disk was recompiled: ")
    assert path.read_bytes() == content
    assert counts(run(Saving())) == (0, 1)


def test_what_cannot_be_saved_is_noted(folder: Path) -> None:
    report = run(Saving(unsavable="no bytes"))
    assert report.notes == ("saving cannot save a region: ValueError: no bytes",)
    assert counts(run(Saving())) == (1, 0)


def test_folders_that_cannot_be_written(folder: Path) -> None:
    folder.write_text("a file")
    report = run(Saving())
    assert counts(report) == (1, 0)
    (note,) = report.notes
    assert note.startswith(f"compiled regions are not cached on disk, because {folder} cannot be written")


def test_folders_of_others_are_not_read(folder: Path) -> None:
    run(Saving())
    folder.chmod(0o777)
    report = run(Saving())
    assert counts(report) == (1, 0)
    assert report.notes == (f"compiled regions are not read from disk, because others can write to {folder}",)


def test_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_CACHE_DIR", "")
    assert [counts(run(Saving())) for _ in range(2)] == [(1, 0), (1, 0)]


def test_functions_of_users_have_no_key(folder: Path) -> None:
    """Their code can change under their name."""
    from thunder_core.ir.symbol import Tag

    tags = frozenset({Tag.ELEMENTWISE, Tag.OPAQUE})
    assert [counts(run(Saving(tags=tags), function=_own)) for _ in range(2)] == [(1, 0), (1, 0)]


def _own(x: torch.Tensor) -> torch.Tensor:
    from recorded_operations import twice

    return twice(x) + 1


def process(folder: Path, layers: int) -> ForkedProgram:
    environment = {**os.environ, "THUNDER_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    return start_forked(FOLDER / "saving_executor.py", str(layers), environment=environment, directory=FOLDER)


def results(*programs: ForkedProgram) -> list[dict[str, Any]]:
    ended = [one.wait() for one in programs]
    assert [one.returncode for one in ended] == [0] * len(ended), [one.stderr for one in ended]
    return [json.loads(one.stdout) for one in ended]


@pytest.mark.slow
def test_between_processes(folder: Path) -> None:
    """Two at the same time compile what the other has not, and one after them reads it: its layers are like theirs."""
    first, second = results(process(folder, 2), process(folder, 2))
    count = first["compiled"] + first["read"]
    for one in (first, second):
        assert (one["compiled"], one["notes"]) == (one["fused"], [])
        assert one["compiled"] + one["read"] == count > 0
    (after,) = results(process(folder, 4))
    assert after == {"compiled": 0, "read": count, "fused": 0, "notes": []}
