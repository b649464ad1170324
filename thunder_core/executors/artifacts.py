"""Store compiled artifacts of executors on disk, for use by other processes.

Each artifact is a file named by the hash of its key; it starts with the hash of its content. Files are written
atomically, by renaming, so that any number of processes can share a folder. A file whose content does not match its
hash is deleted. If the folder exceeds its limit, the least recently used files are deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import torch

from thunder_core._version import __version__

_DEFAULT_LIMIT: Final = 2 << 30
_KEPT: Final = 0.8  # share of the limit that is left after old files were deleted
_MAGIC: Final = b"thunder artifact 1\n"
_SUFFIX: Final = ".artifact"
_HASH: Final = 32


@dataclass(frozen=True, slots=True)
class ArtifactCache:
    """A folder of artifacts. If it cannot be read or written, lookups return None and nothing is stored.

    Attributes:
        folder: created by the first write.
        limit: in bytes.
    """

    folder: Path
    limit: int = _DEFAULT_LIMIT

    def get(self, key: str) -> bytes | None:
        """The artifact stored under ``key``; None if there is none or its file is damaged."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _HASH
        data = content[start:]
        if content[: len(_MAGIC)] != _MAGIC or content[len(_MAGIC) : start] != hashlib.sha256(data).digest():
            raise DamagedArtifact(f"{path} is damaged")
        with contextlib.suppress(OSError):  # of another user, or read-only: it then counts as less recently used
            os.utime(path)
        return data

    def put(self, key: str, data: bytes) -> str | None:
        """Store ``data`` under ``key``, replacing an earlier artifact. Returns the reason of a failure, or None."""
        path = self._path(key)
        try:
            reason = self.unsuitable()
            if reason is not None:
                return reason
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent)
            try:
                with open(handle, "wb") as file:
                    file.write(_MAGIC + hashlib.sha256(data).digest() + data)
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            return f"{self.folder} cannot be written: {error.strerror}"
        return None

    def discard(self, key: str) -> None:
        """Delete the artifact stored under ``key``."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def unsuitable(self) -> str | None:
        """The reason why artifacts must not be read from this folder; None if it is safe or does not exist yet."""
        if not hasattr(os, "getuid"):
            return None
        try:
            state = self.folder.stat()
        except OSError:
            return None
        if state.st_uid not in (os.getuid(), 0):
            return f"{self.folder} belongs to another user"
        return f"others can write to {self.folder}" if state.st_mode & 0o022 else None

    def files(self) -> list[tuple[Path, os.stat_result]]:
        """All artifacts, the most recently used last."""
        files = []
        for path in self.folder.glob(f"*/*{_SUFFIX}"):
            with contextlib.suppress(OSError):  # deleted by another process
                files.append((path, path.stat()))
        return sorted(files, key=lambda item: item[1].st_mtime_ns)

    def prune(self, limit: int | None = None) -> int:
        """Delete the least recently used files beyond ``limit`` bytes in total. Returns the number of deleted files."""
        limit = self.limit if limit is None else limit
        files = self.files()
        total = sum(state.st_size for _, state in files)
        if total <= limit:
            return 0
        deleted = 0
        for path, state in files:
            if total <= limit * _KEPT:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                deleted += 1
            total -= state.st_size
        return deleted

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / name[:2] / (name + _SUFFIX)


class DamagedArtifact(Exception):
    """A file that does not hold what was written to it."""


def artifact_cache() -> ArtifactCache | None:
    """The folder of this user, determined by environment variables.

    ``THUNDER_CACHE_DIR`` names it; empty, nothing is stored. Otherwise it is ``thunder`` in ``XDG_CACHE_HOME``, or in
    ``~/.cache``; where there is no home either, nothing is stored.
    """
    named = os.environ.get("THUNDER_CACHE_DIR")
    if named is not None:
        return ArtifactCache(Path(named).expanduser()) if named.strip() else None
    base = os.environ.get("XDG_CACHE_HOME")
    try:
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
    if device.type == "cuda":
        return _gpu(torch.cuda.current_device() if device.index is None else device.index)
    return str(device)


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
