"""``thunder cache``: what is on disk, and how it is deleted."""

import json

import pytest

from thunder_core.executors.artifacts import ArtifactCache


@pytest.fixture
def folder(tmp_path, monkeypatch):
    path = tmp_path / "kept"
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(path))
    return path


def found(command, *arguments):
    ended = command("cache", "--json", *arguments)
    assert (ended.code, ended.err) == (0, "")
    return json.loads(ended.out)


def test_what_is_there_and_how_it_is_deleted(command, folder):
    nothing = {"folder": str(folder), "files": 0, "bytes": 0, "deleted": 0, "problem": None}
    assert found(command) == nothing
    assert found(command, "--clear") == nothing
    for key in ("one", "two"):
        ArtifactCache(folder).put(key, bytes(1000))
    (folder / "mine.txt").write_text("not of this cache")
    shown = found(command)
    assert (shown["files"], shown["bytes"] > 2000) == (2, True)
    text = command("cache").out
    assert text.split("\n")[:3] == [f"folder  {folder}", "files  2", "size  0.0 MiB"]
    assert found(command, "--clear") == {**nothing, "deleted": 2}
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["mine.txt"]


def test_folders_that_others_can_write_to(command, folder):
    ArtifactCache(folder).put("key", b"")
    folder.chmod(0o777)
    assert found(command)["problem"] == f"others can write to {folder}"
    assert f"problem  others can write to {folder}\n" in command("cache").out


def test_nothing_is_kept(command, monkeypatch):
    monkeypatch.setenv("THUNDER_CACHE_DIR", "")
    assert found(command, "--clear") == {
        "folder": None,
        "files": 0,
        "bytes": 0,
        "deleted": 0,
        "problem": "caching on disk is disabled",
    }
    assert command("cache").out.startswith("folder  none\n")
