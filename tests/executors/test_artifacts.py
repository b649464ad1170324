"""Files on disk for what executors compiled: where they are, what is deleted, and that none is read half written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from thunder_core.errors import CacheWarning
from thunder_core.executors import artifacts
from thunder_core.executors.artifacts import ArtifactCache, DamagedArtifact, artifact_cache


def test_the_folder_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("THUNDER_CACHE_DIR", "")
    assert artifact_cache() is None
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    assert artifact_cache() == ArtifactCache(tmp_path)
    monkeypatch.delenv("THUNDER_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert artifact_cache() == ArtifactCache(tmp_path / "thunder")


def test_least_recently_used_files_go_first(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path, limit=1000)
    for number in range(5):
        assert cache.put(str(number), bytes(200)) is None
        os.utime(cache._path(str(number)), (number, number))
    assert cache.get("0") == bytes(200)  # used just now
    assert cache.prune() == 2
    assert [cache.get(str(number)) is not None for number in range(5)] == [True, False, False, True, True]


def test_files_are_never_seen_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ArtifactCache(tmp_path)
    cache.put("key", b"old")

    def fail(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    assert cache.put("key", b"new") == f"{tmp_path} cannot be written: No space left on device"
    assert cache.get("key") == b"old"
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1
    cache._path("key").write_bytes(b"?")
    with pytest.raises(DamagedArtifact):
        cache.get("key")


def test_a_file_that_cannot_be_read_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ArtifactCache(tmp_path)
    assert cache.put("key", b"old") is None

    def fail(*args: Any, **options: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(artifacts, "read_file", fail)
    with pytest.warns(CacheWarning, match=f"cannot read the cache on disk at {tmp_path}: Input/output error"):
        assert cache.get("key") is None
    assert cache.get("key") is None
