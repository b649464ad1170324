"""Folders and files that other users could have changed are not used; those of this user are created private."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from thunder_core.errors import CacheWarning
from thunder_core.executors import artifacts
from thunder_core.executors.artifacts import ArtifactCache, DamagedArtifact, artifact_cache
from thunder_core.private_folder import UnsafeFile, opened_folder

OTHER_USER = 65_000
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def for_each(table: Iterable[str]) -> pytest.MarkDecorator:
    """Parametrize a test by the names of a table; only root can run those about another user."""
    rows = [pytest.param(name, marks=[as_root] if "another user" in name else []) for name in table]
    return pytest.mark.parametrize("name", rows)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactCache:
    monkeypatch.setattr(artifacts, "_warned", set())
    return ArtifactCache(tmp_path / "above" / "cache")


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077, 0o277, 0o777], ids=oct)
def test_created_folders_are_private(cache: ArtifactCache, umask: Callable[[int], int], mask: int) -> None:
    umask(mask)
    assert cache.put("key", b"data") is None
    file = cache._path("key")
    assert [mode(path) for path in (file.parent, file.parents[1], file.parents[2])] == [0o700] * 3
    assert mode(file) & 0o077 == 0
    assert cache.get("key") == b"data" or os.geteuid() != 0


def entry(cache: ArtifactCache) -> Path:
    return cache._path("key")


def foreign(path: Path) -> None:
    os.chown(path, OTHER_USER, OTHER_USER, follow_symlinks=False)


def other_file(cache: ArtifactCache) -> Path:
    """A sealed artifact outside of the cache."""
    other = ArtifactCache(cache.folder.parents[1] / "other")
    other.put("key", b"of another")
    return entry(other)


def replace_by_link(cache: ArtifactCache) -> None:
    other = other_file(cache)
    entry(cache).unlink()
    entry(cache).symlink_to(other)


def replace_by_fifo(cache: ArtifactCache) -> None:
    entry(cache).unlink()
    os.mkfifo(entry(cache), 0o600)


def replace_by_folder(cache: ArtifactCache) -> None:
    entry(cache).unlink()
    (entry(cache) / "inner").mkdir(mode=0o700, parents=True)


def subfolder_as_link(cache: ArtifactCache) -> None:
    other = other_file(cache)
    os.rename(entry(cache).parent, cache.folder / "moved")
    entry(cache).parent.symlink_to(other.parent)


def subfolder_as_file(cache: ArtifactCache) -> None:
    os.rename(entry(cache).parent, cache.folder / "moved")
    entry(cache).parent.write_text("")


# What is wrong, and the reason that is given. The entry is removed, and written again.
ENTRIES: dict[str, tuple[Callable[[ArtifactCache], None], str]] = {
    "others may write the file": (lambda cache: entry(cache).chmod(0o602), "others can write to .*artifact"),
    "a group may write the file": (lambda cache: entry(cache).chmod(0o620), "others can write to .*artifact"),
    "others may write the subfolder": (lambda cache: entry(cache).parent.chmod(0o777), "others can write to "),
    "others may write the sticky subfolder": (lambda cache: entry(cache).parent.chmod(0o1777), "others can write to "),
    "a link": (replace_by_link, "is a symbolic link"),
    "a FIFO": (replace_by_fifo, "is not a regular file"),
    "a folder": (replace_by_folder, "is not a regular file"),
    "a subfolder that is a link": (subfolder_as_link, "is not a folder"),
    "a subfolder that is a file": (subfolder_as_file, "is not a folder"),
    "cut": (lambda cache: os.truncate(entry(cache), 40), "is damaged"),
    "empty": (lambda cache: os.truncate(entry(cache), 0), "is damaged"),
    "huge": (lambda cache: os.truncate(entry(cache), 1 << 32), "has more than .* bytes"),
    "another user's file": (lambda cache: foreign(entry(cache)), "belongs to another user"),
    "another user's subfolder": (lambda cache: foreign(entry(cache).parent), "belongs to another user"),
}


@for_each(ENTRIES)
def test_entries_that_others_may_have_written_are_replaced(cache: ArtifactCache, name: str) -> None:
    change, reason = ENTRIES[name]
    cache.put("key", b"data")
    change(cache)
    with pytest.raises(DamagedArtifact, match=reason):
        cache.get("key")
    cache.discard("key")
    assert not os.path.lexists(entry(cache))
    assert cache.get("key") is None
    assert cache.put("key", b"new") is None
    assert cache.get("key") == b"new"
    assert mode(entry(cache).parent) == 0o700


@for_each(ENTRIES)
def test_entries_are_overwritten_without_being_read(cache: ArtifactCache, name: str) -> None:
    """A subfolder that others can write to is created again; other defects of an entry end with its replacement."""
    change, _ = ENTRIES[name]
    cache.put("key", b"data")
    change(cache)
    assert cache.put("key", b"new") is None
    assert cache.get("key") == b"new"


def link_of_another_user(cache: ArtifactCache) -> None:
    os.rename(cache.folder, cache.folder.parent / "moved")
    cache.folder.symlink_to(cache.folder.parent / "moved")
    foreign(cache.folder)


# What is wrong with the folder or one above it, and the reason that is given.
FOLDERS: dict[str, tuple[Callable[[ArtifactCache], None], str]] = {
    "others may write": (lambda cache: cache.folder.chmod(0o702), "others can write to .*/cache"),
    "a group may write": (lambda cache: cache.folder.chmod(0o770), "others can write to .*/cache"),
    "others may write, sticky": (lambda cache: cache.folder.chmod(0o1777), "others can write to .*/cache"),
    "others may write above": (lambda cache: cache.folder.parent.chmod(0o707), "others can write to .*/above"),
    "another user's": (lambda cache: foreign(cache.folder), "/cache belongs to another user"),
    "another user's above": (lambda cache: foreign(cache.folder.parent), "/above belongs to another user"),
    "another user's link": (link_of_another_user, "/cache belongs to another user"),
}


@for_each(FOLDERS)
def test_folders_that_others_can_change_are_not_used(cache: ArtifactCache, name: str) -> None:
    change, reason = FOLDERS[name]
    cache.put("key", b"data")
    change(cache)
    with pytest.warns(CacheWarning, match=reason) as caught:
        assert (cache.get("key"), cache.get("key")) == (None, None)
    assert len(caught) == 1
    assert str(cache.folder) in str(caught[0].message)
    cache.discard("key")
    assert cache.files() == []
    assert cache.prune(0) == 0
    for answer in (cache.put("key", b"new"), cache.unsuitable()):
        assert answer is not None
        assert answer in str(caught[0].message)


def test_sticky_folders_above_and_own_links_are_used(cache: ArtifactCache) -> None:
    cache.put("key", b"data")
    cache.folder.parent.chmod(0o1777)
    link = cache.folder.parents[1] / "link"
    link.symlink_to("above/cache")
    for folder in (cache.folder, link, cache.folder / ".." / "cache"):
        assert ArtifactCache(folder).get("key") == b"data"
    loop = cache.folder.parents[1] / "loop"
    loop.symlink_to("loop")
    with pytest.raises(UnsafeFile, match="too many symbolic links"), opened_folder(loop):
        pass


@as_root
def test_folders_above_that_a_user_cannot_list_are_passed() -> None:
    """As ``/home`` on machines of many users."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "home"
        home.mkdir(mode=0o700)
        os.chmod(name, 0o711)
        foreign(home)
        cache = ArtifactCache(home / "cache")
        os.seteuid(OTHER_USER)
        try:
            assert cache.put("key", b"data") is None
            assert cache.get("key") == b"data"
        finally:
            os.seteuid(0)
        assert cache.folder.stat().st_uid == OTHER_USER


@pytest.mark.parametrize("named", [".", "..", "cache", "./cache", "~nobody_has_this_name", "HERE"])
def test_relative_paths_and_the_current_directory_are_refused(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(artifacts, "_warned", set())
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path) if named == "HERE" else named)
    cache = artifact_cache()
    if cache is None:
        assert named.startswith("~")
        return
    reason = "is the current directory" if named == "HERE" else "is not an absolute path"
    assert reason in str(cache.put("key", b"data"))
    with pytest.warns(CacheWarning, match=reason):
        assert cache.get("key") is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "HOME"])
def test_relative_homes_are_refused(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("THUNDER_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "here")
    cache = artifact_cache()
    assert cache is not None
    assert "is not an absolute path" in str(cache.put("key", b"data"))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_exchanged_after_it_was_checked(
    cache: ArtifactCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The descriptor that was checked is the one that is used."""
    cache.put("key", b"data")
    other = other_file(cache)
    with opened_folder(cache.folder) as folder:
        os.rename(cache.folder, tmp_path / "moved")
        cache.folder.symlink_to(other.parents[1])
        assert os.listdir(folder) == [entry(cache).parent.name]
        assert os.path.samestat(os.fstat(folder), (tmp_path / "moved").stat())
