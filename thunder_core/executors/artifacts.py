"""Store compiled artifacts of executors on disk, for use by other processes.

Each artifact is a file named by the hash of its key; it starts with the hash of its content. Files are written
atomically, by renaming, so that any number of processes can share a folder. A file whose content does not match its
hash is deleted, and one that another user may have written is deleted unread: artifacts may be code. If the folder
exceeds its limit, the least recently used files are deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import torch

from thunder_core._version import __version__
from thunder_core.errors import CacheWarning
from thunder_core.private_folder import UnsafeFile, opened_folder, opened_subfolder, read_file, remove, write_file
from thunder_core.tracing.frames import warn_user

_DEFAULT_LIMIT: Final = 2 << 30
_KEPT: Final = 0.8  # share of the limit that is left after old files were deleted
_MAGIC: Final = b"thunder artifact 1\n"
_SUFFIX: Final = ".artifact"
_HASH: Final = 32


@dataclass(frozen=True, slots=True)
class ArtifactCache:
    """A folder of artifacts. If it cannot be read or written, lookups return None and nothing is stored.

    The folder, and those above it, must be such that no other user can change artifacts
    (`thunder_core.private_folder.opened_folder`).

    Attributes:
        folder: created by the first write.
        limit: in bytes.
    """

    folder: Path
    limit: int = _DEFAULT_LIMIT

    def get(self, key: str) -> bytes | None:
        """The artifact stored under ``key``; None if there is none, or if it cannot be read.

        Warns once if other users can write to the folder, and if the operating system reports an error other than a
        missing file or a missing permission.

        Raises:
            DamagedArtifact: its file is damaged, or may be another user's; `discard` deletes it.
        """
        subfolder, name = _names(key)
        shown = self.folder / subfolder
        try:
            with opened_folder(self.folder) as folder:
                try:
                    with opened_subfolder(folder, subfolder, shown) as inner:
                        content = read_file(inner, name, shown / name, self.limit)
                        with contextlib.suppress(OSError):  # read-only: it then counts as less recently used
                            os.utime(name, dir_fd=inner, follow_symlinks=False)
                except UnsafeFile as error:
                    raise DamagedArtifact(str(error)) from error
                except NotADirectoryError as error:
                    raise DamagedArtifact(f"{shown} is not a folder") from error
        except UnsafeFile as error:
            _warn(f"Thunder does not use the cache on disk at {self.folder}: {error}")
            return None
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None
        except OSError as error:
            _warn(f"Thunder cannot read the cache on disk at {self.folder}: {error.strerror or error}")
            return None
        start = len(_MAGIC) + _HASH
        data = content[start:]
        if content[: len(_MAGIC)] != _MAGIC or content[len(_MAGIC) : start] != hashlib.sha256(data).digest():
            raise DamagedArtifact(f"{shown / name} is damaged")
        return data

    def put(self, key: str, data: bytes) -> str | None:
        """Store ``data`` under ``key``, replacing an earlier artifact. Returns the reason of a failure, or None."""
        subfolder, name = _names(key)
        content = _MAGIC + hashlib.sha256(data).digest() + data
        try:
            with opened_folder(self.folder, create=True) as folder:
                try:
                    self._write(folder, subfolder, name, content)
                except (UnsafeFile, NotADirectoryError):
                    remove(folder, subfolder)
                    self._write(folder, subfolder, name, content)
            return None
        except UnsafeFile as error:
            return str(error)
        except OSError as error:
            return f"{self.folder} cannot be written: {error.strerror}"

    def _write(self, folder: int, subfolder: str, name: str, content: bytes) -> None:
        with opened_subfolder(folder, subfolder, self.folder / subfolder, create=True) as inner:
            try:
                write_file(inner, name, content)
            except IsADirectoryError:
                remove(inner, name)
                write_file(inner, name, content)

    def discard(self, key: str) -> None:
        """Delete the artifact stored under ``key``; with its subfolder if others can write there.

        Warns once if that is not possible.
        """
        subfolder, name = _names(key)
        shown = self.folder / subfolder
        with contextlib.suppress(OSError, UnsafeFile), opened_folder(self.folder) as folder:
            try:
                with opened_subfolder(folder, subfolder, shown) as inner:
                    gone = remove(inner, name)
            except (UnsafeFile, NotADirectoryError):
                gone = remove(folder, subfolder)
            if not gone:
                _warn(f"Thunder ignores a file in the cache on disk that it cannot delete: {shown / name}")

    def unsuitable(self) -> str | None:
        """The reason why artifacts must not be read from this folder; None if it is safe or does not exist yet."""
        try:
            with opened_folder(self.folder):
                return None
        except UnsafeFile as error:
            return str(error)
        except OSError:
            return None

    def files(self) -> list[tuple[Path, os.stat_result]]:
        """All artifacts, the most recently used last."""
        files = []
        with contextlib.suppress(OSError, UnsafeFile), opened_folder(self.folder) as folder:
            for subfolder, inner in self._subfolders(folder):
                for name in os.listdir(inner):
                    if name.endswith(_SUFFIX):
                        with contextlib.suppress(OSError):  # deleted by another process
                            state = os.stat(name, dir_fd=inner, follow_symlinks=False)
                            files.append((self.folder / subfolder / name, state))
        return sorted(files, key=lambda item: item[1].st_mtime_ns)

    def prune(self, limit: int | None = None) -> int:
        """Delete the least recently used files beyond ``limit`` bytes in total. Returns the number of deleted files."""
        limit = self.limit if limit is None else limit
        files = self.files()
        total = sum(state.st_size for _, state in files)
        if total <= limit:
            return 0
        deleted = set()
        for path, state in files:
            if total <= limit * _KEPT:
                break
            deleted.add(path)
            total -= state.st_size
        count = 0
        with contextlib.suppress(OSError, UnsafeFile), opened_folder(self.folder) as folder:
            for subfolder, inner in self._subfolders(folder):
                names = [path.name for path in deleted if path.parent.name == subfolder]
                count += sum([remove(inner, name) for name in names])
        return count

    def _subfolders(self, folder: int) -> Iterator[tuple[str, int]]:
        """Names and descriptors of the subfolders, without those that others can write to."""
        for name in os.listdir(folder):
            with (
                contextlib.suppress(OSError, UnsafeFile),
                opened_subfolder(folder, name, self.folder / name) as inner,
            ):
                yield name, inner

    def _path(self, key: str) -> Path:
        return self.folder.joinpath(*_names(key))


def _names(key: str) -> tuple[str, str]:
    """The names of the subfolder and of the file."""
    name = hashlib.sha256(key.encode()).hexdigest()
    return name[:2], name + _SUFFIX


_warned: Final[set[str]] = set()


def _warn(text: str) -> None:
    """Warn once per process."""
    if text not in _warned:
        _warned.add(text)
        warn_user(text, CacheWarning)


class DamagedArtifact(Exception):
    """A file that does not hold what was written to it, or that another user may have written."""


def artifact_cache() -> ArtifactCache | None:
    """The folder of this user, determined by environment variables.

    ``THUNDER_CACHE_DIR`` names it; empty, nothing is stored. Otherwise it is ``thunder`` in ``XDG_CACHE_HOME``, or in
    ``~/.cache``; where there is no home either, nothing is stored. A relative path is refused when it is opened.
    """
    named = os.environ.get("THUNDER_CACHE_DIR")
    if named is not None and not named.strip():
        return None
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        if named is not None:
            return ArtifactCache(Path(named).expanduser())
        return ArtifactCache((Path(base) if base else Path.home() / ".cache") / "thunder")
    except RuntimeError:  # no home directory
        return None


@cache
def software() -> str:
    """Versions of Python and PyTorch, and a hash of this package's code; part of all keys."""
    python = ".".join(map(str, sys.version_info))
    build = torch.version.git_version
    thunder = f"thunder-core {__version__} {source_hash('thunder_core')}"
    return f"{sys.implementation.cache_tag} {python}; torch {torch.__version__} {build}; {thunder}"


def hardware(device: torch.device) -> str:
    """The properties of a device on which compiled code depends; for a CPU, with the number of threads."""
    if device.type == "cpu":
        return f"{_processor()}, {torch.get_num_threads()} threads"
    if device.type == "cuda" and torch.cuda.is_available():
        return _gpu(torch.cuda.current_device() if device.index is None else device.index)
    return str(device)  # of a GPU that is not there, for programs that run on fake tensors


@cache
def _processor() -> str:
    """The processor model and its instruction sets, for which kernels are compiled."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = platform.processor()
    lines = [
        line for line in text.split("\n\n")[0].splitlines() if line.startswith(("model name", "flags", "Features"))
    ]
    return f"{platform.machine()} {hashlib.sha256(''.join(lines or [text]).encode()).hexdigest()[:16]}"


@cache
def _gpu(index: int) -> str:
    gpu = torch.cuda.get_device_properties(index)
    runtime = torch.version.cuda or torch.version.hip
    return f"{gpu.name} {gpu.major}.{gpu.minor}, {gpu.multi_processor_count} processors, {runtime}"


def source_hash(package: str) -> str:
    """The hash of the Python files of an imported package, so that keys change with its code."""
    return _source_hash(Path(str(sys.modules[package].__file__)).parent)


@cache
def _source_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
