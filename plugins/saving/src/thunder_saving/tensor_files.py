"""Tensors in safetensors files: one file, or several with an index. They are read when they are used."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from thunder_core.errors import OptionError

_FILE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_MOST_MAPPED: Final = 1 << 26
"""After this many bytes a file is opened anew, which unmaps the pages that were read: 64 MiB."""


class TensorFiles(Mapping[str, torch.Tensor]):
    """The tensors of one or several files by name. A value is mapped from its file, and read where it is used.

    Args:
        path: a file, an index, or a folder with either.

    Raises:
        OptionError: there is no such file, it is not a safetensors file, or the index does not fit its files.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._files = _files_of(Path(path))
        self._opened: dict[Path, Any] = {}
        self._read = 0
        self._places: dict[str, Path] = {}
        for file, names in self._files.items():
            found = self._open(file).keys()
            if absent := sorted(set(names) - set(found)):
                raise OptionError(f"{file} lacks tensors that the index of {path} places there: {', '.join(absent)}")
            if twice := sorted(set(found) & self._places.keys()):
                raise OptionError(f"several files of {path} have the tensors {', '.join(twice)}")
            self._places |= dict.fromkeys(found, file)

    def _open(self, file: Path) -> Any:
        from safetensors import SafetensorError, safe_open

        if file not in self._opened:
            try:
                self._opened[file] = safe_open(file, "pt", device="cpu")
            except (SafetensorError, OSError) as error:
                raise OptionError(
                    f"{file} cannot be read as a safetensors file: {error}",
                    advice=(
                        "pass a safetensors file, its folder or its index",
                        "or the state dict of another format: torch.load(path, mmap=True, weights_only=True)",
                    ),
                ) from error
        return self._opened[file]

    def __getitem__(self, name: str) -> torch.Tensor:
        value: torch.Tensor = self._open(self._places[name]).get_tensor(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def read_into(self, name: str, tensor: torch.Tensor) -> None:
        """Copy a tensor of a file into ``tensor``, in parts of at most 64 MiB."""
        rows = tensor.shape[0] if tensor.ndim else 1
        row_bytes = max(self[name].nbytes // max(rows, 1), 1)
        step = max(_MOST_MAPPED // row_bytes, 1)
        for start in range(0, rows, step):
            file = self._open(self._places[name])
            if tensor.ndim:
                tensor[start : start + step].copy_(file.get_slice(name)[start : start + step])
            else:
                tensor.copy_(file.get_tensor(name))
            self._read += row_bytes * min(step, rows - start)
            del file
            if self._read >= _MOST_MAPPED:
                self._opened.clear()
                self._read = 0


def _files_of(path: Path) -> dict[Path, list[str]]:
    """The files, with the names of the tensors that an index expects in each."""
    if path.is_dir():
        names = [name for name in (_FILE, _INDEX) if (path / name).is_file()]
        names = names or sorted(each.name for each in path.glob("*.safetensors"))
        if not names or (len(names) > 1 and _FILE not in names):
            raise OptionError(
                f"the folder {path} has neither {_FILE} nor {_INDEX}, and not one safetensors file",
                advice=("pass the path of a safetensors file or of an index",),
            )
        path = path / names[0]
    if not path.is_file():
        raise OptionError(f"there is no file {path}", advice=("pass a safetensors file, its folder or its index",))
    return _files_of_index(path) if path.suffix == ".json" else {path: []}


def _files_of_index(path: Path) -> dict[Path, list[str]]:
    try:
        places = json.loads(path.read_text())["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise OptionError(f"{path} is not an index of safetensors files: {type(error).__name__}: {error}") from error
    files: dict[Path, list[str]] = {}
    for name, file in places.items() if isinstance(places, dict) else [("weight_map", places)]:
        if not isinstance(file, str) or os.path.basename(file) != file:
            raise OptionError(f"{path} places {name} in {file!r}, and not in a file of its folder")
        files.setdefault(path.parent / file, []).append(name)
    return files
