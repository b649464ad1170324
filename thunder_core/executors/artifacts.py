"""What executors compiled, stored on disk between processes.

A file for each artifact, named by the hash of its key, with the hash of its content in front. Files appear whole, by
renaming, so that any number of processes can share a folder; one that is not as it was written is deleted. When the
folder grows beyond its limit, those that were not used for the longest time go first.
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

DEFAULT_LIMIT: Final = 2 << 30
_KEPT: Final = 0.8  # share of the limit that is left after old files were deleted
_MAGIC: Final = b"thunder artifact 1\n"
_SUFFIX: Final = ".artifact"
_HASH: Final = 32


@dataclass(frozen=True, slots=True)
class ArtifactCache:
    """A folder of artifacts. Operations on a folder that cannot be read or written find and keep nothing.

    Attributes:
        folder: created by the first write.
        limit: in bytes.
    """

    folder: Path
    limit: int = DEFAULT_LIMIT

    def get(self, key: str) -> bytes | None:
        """What was put under ``key``; None if there is nothing, or not what was written."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _HASH
        data = content[start:]
        if content[: len(_MAGIC)] != _MAGIC or content[len(_MAGIC) : start] != hashlib.sha256(data).digest():
            raise DamagedArtifact(f"{path} is damaged")
        with contextlib.suppress(OSError):  # of another user, or read-only: it just counts as older than it is
            os.utime(path)
        return data

    def put(self, key: str, data: bytes) -> str | None:
        """Keep ``data`` under ``key``, replacing what was there. Returns why that is not possible, or None."""
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
        """Delete what was put under ``key``."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def unsuitable(self) -> str | None:
        """Why artifacts must not be read from this folder; None for a folder that is fine, or not there yet."""
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
        """All artifacts, the one that was used last at the end."""
        found = []
        for path in self.folder.glob(f"*/*{_SUFFIX}"):
            with contextlib.suppress(OSError):  # deleted by another process
                found.append((path, path.stat()))
        return sorted(found, key=lambda item: item[1].st_mtime_ns)

    def prune(self, limit: int | None = None) -> int:
        """Delete the oldest files if there are more than ``limit`` bytes of them. Returns how many were deleted."""
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
    """The folder of this user, as the environment says.

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
    """Versions of Python and PyTorch, and the code of this package: everything that is stored comes from all of it."""
    python = ".".join(map(str, sys.version_info))
    build = torch.version.git_version
    thunder = f"thunder-core {__version__} {source_hash('thunder_core')}"
    return f"{sys.implementation.cache_tag} {python}; torch {torch.__version__} {build}; {thunder}"


def hardware(device: torch.device) -> str:
    """The device as compilers see it. For a CPU with the number of threads that compiled loops are divided among."""
    if device.type == "cpu":
        return f"{_processor()}, {torch.get_num_threads()} threads"
    if device.type == "cuda":
        return _gpu(torch.cuda.current_device() if device.index is None else device.index)
    return str(device)


@cache
def _processor() -> str:
    """Instructions differ between processors of one family: kernels are compiled for this one."""
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
    found = torch.cuda.get_device_properties(index)
    runtime = torch.version.cuda or torch.version.hip
    return f"{found.name} {found.major}.{found.minor}, {found.multi_processor_count} processors, {runtime}"


def source_hash(package: str) -> str:
    """Of the Python files in the folder of an imported package: code that changed makes other artifacts."""
    return _source_hash(Path(str(sys.modules[package].__file__)).parent)


@cache
def _source_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
