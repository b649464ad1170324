"""The file of saved programs: a zip archive of text and tensors, whose members are verified before anything is used.

- ``manifest.json``: the format, the versions of PyTorch and of the packages, the modules and the table of the state;
  for each program its guards, inputs, results and assumptions.
- ``state.safetensors``: parameters, buffers, and other tensors that the programs use.
- ``programs/0/forward.py``: the executable program, as `thunder_core.ir.printer` prints it; likewise ``epilogue.py``,
  ``backward.py``, ``backward_1.py``, ... A backward is for some of the gradients of the results.
- ``programs/0/run.py``: the function that calls these and creates the result.
- ``hashes.txt``: the SHA-256 of each other member.

No member is a pickle, and none is compressed. `read_archive` checks names, sizes and hashes of all members;
`thunder_saving.verified_source` then checks the syntax and all names of the programs. Hashes detect damage. They do not
say who wrote a file: docs/security.md says what a file from others can do.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from thunder_core.errors import SavedProgramError

FORMAT: Final = "thunder programs 1"
_MANIFEST, _HASHES, STATE = "manifest.json", "hashes.txt", "state.safetensors"
_MEMBER: Final = re.compile(r"programs/\d{1,6}/\w{1,40}\.py")
_LARGEST_TEXT: Final = 1 << 30
_DATE: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Archive:
    """The verified content of a file.

    Attributes:
        name: the path, for messages.
        manifest: the content of ``manifest.json``.
        texts: the programs by the names of their members.
        state: the content of ``state.safetensors``.
    """

    name: str
    manifest: dict[str, Any]
    texts: dict[str, str]
    state: bytes


def write_archive(
    path: str | Path, manifest: Mapping[str, Any], texts: Mapping[str, str], state: Mapping[str, torch.Tensor]
) -> None:
    """Write a file; one that exists is replaced at the end, and stays as it is if this fails."""
    from safetensors.torch import save_file

    folder = os.path.dirname(os.path.abspath(path))
    with tempfile.TemporaryDirectory(dir=folder, prefix=".thunder-") as temporary:
        tensors, archive = os.path.join(temporary, STATE), os.path.join(temporary, "archive")
        save_file(dict(state), tensors)
        members = {_MANIFEST: json.dumps(manifest, indent=1) + "\n", **texts}
        hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in members.items()}
        hashes[STATE] = _hash_of_file(tensors)
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
            for name, text in members.items():
                file.writestr(zipfile.ZipInfo(name, _DATE), text)
            file.write(tensors, STATE)
            lines = [f"{digest}  {name}\n" for name, digest in hashes.items()]
            file.writestr(zipfile.ZipInfo(_HASHES, _DATE), "".join(lines))
        with open(archive, "rb+") as written:
            os.fsync(written.fileno())
        os.replace(archive, path)


def _hash_of_file(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_archive(path: str | Path, *, state: bool = True) -> Archive:
    """The content of a file, after all of it was verified.

    Args:
        state: whether to read the tensors. If not, they are not verified, either.

    Raises:
        SavedProgramError: the file is damaged, truncated, or was not written by `write_archive`.
        OSError: the file cannot be opened.
    """
    name = str(path)
    with open(path, "rb") as opened:
        try:
            with zipfile.ZipFile(opened) as file:
                return _verified(name, file, state)
        except SavedProgramError:
            raise
        except Exception as error:  # whatever the parsers of the archive raise about its bytes
            raise SavedProgramError(
                f"{name} is damaged, or is no file that thunder.save wrote: {type(error).__name__}: {error}",
                advice=("save the programs again, or copy the file again",),
            ) from error


def _verified(name: str, file: zipfile.ZipFile, state: bool) -> Archive:
    infos = file.infolist()
    names = [info.filename for info in infos]
    if _HASHES not in names or _MANIFEST not in names:
        raise SavedProgramError(
            f"{name} is no file that thunder.save wrote: it has no {_MANIFEST} or no {_HASHES}",
            advice=(
                "read a checkpoint of torch.save with torch.load, and a trace of thunder.save_trace with load_trace",
            ),
        )
    if len(set(names)) < len(names):
        raise _damaged(name, "it has two members of one name")
    for info in infos:
        if info.filename not in (_MANIFEST, _HASHES, STATE) and not _MEMBER.fullmatch(info.filename):
            raise _damaged(name, f"it has the member {info.filename!r}, which such files do not have")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 0x1:
            raise _damaged(name, f"the member {info.filename} is compressed or encrypted")
        if info.filename != STATE and info.file_size > _LARGEST_TEXT:
            raise _damaged(name, f"the member {info.filename} has {info.file_size} bytes")
    lines = [line.split("  ", 1) for line in file.read(_HASHES).decode().splitlines()]
    hashes = {member: digest for digest, member in lines}
    if hashes.keys() != set(names) - {_HASHES}:
        raise _damaged(name, f"{_HASHES} lists other members than it has")
    contents = {}
    for member in hashes:
        if member == STATE and not state:
            continue
        content = file.read(member)
        if hashlib.sha256(content).hexdigest() != hashes[member]:
            raise _damaged(name, f"the member {member} does not have its hash")
        contents[member] = content
    manifest = json.loads(contents.pop(_MANIFEST))
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else manifest
        raise SavedProgramError(
            f"{name} has the format {found!r}, and this version of thunder-saving reads {FORMAT!r}",
            advice=("save the programs again with this version",),
        )
    stored = contents.pop(STATE, b"")
    return Archive(name, manifest, {member: content.decode() for member, content in contents.items()}, stored)


def _damaged(name: str, how: str) -> SavedProgramError:
    return SavedProgramError(f"{name} is damaged or was changed: {how}", advice=("save the programs again",))


# ---------------------------------------------------------------- the environment


def environment(distributions: Mapping[str, str]) -> dict[str, Any]:
    """What a file needs: the versions of PyTorch and of Thunder's packages.

    Args:
        distributions: the versions of the plugins whose functions the programs call, by name.
    """
    from thunder_core._version import __version__ as core
    from thunder_saving._version import __version__ as saving

    return {"torch": str(torch.__version__), "thunder-core": core, "thunder-saving": saving, **distributions}


def check_environment(archive: Archive) -> None:
    """Compare what a file needs with what is here.

    Raises:
        SavedProgramError: a version differs or a package is missing; the message has both sides.
    """
    import importlib.metadata

    needed: dict[str, str] = archive.manifest["environment"]
    here = environment({})
    problems = []
    for package, version in needed.items():
        found = here.get(package)
        if package not in here:
            try:
                found = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                found = None
        if found != version:
            problems.append(f"it needs {package} {version}, and here is {found or 'none'}")
    if problems:
        raise SavedProgramError(
            f"{archive.name} cannot be used here: {'; '.join(problems)}",
            advice=("install these versions, or save the programs again in this environment",),
        )
