"""Where configurations come from: files, presets, and mappings given in Python."""

from __future__ import annotations

import importlib.resources
import os
from collections.abc import Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from thunder_core.config.document import Document
from thunder_core.config.lookup import find
from thunder_core.config.problems import Problem
from thunder_core.config.sentences import describe
from thunder_core.config.yaml_reader import read_text
from thunder_core.errors import ConfigError, PluginError
from thunder_core.plugins.nearest import suggestion
from thunder_core.plugins.specs import Preset

SUFFIXES: Final = (".yaml", ".yml", ".json")
_LIMIT: Final = 1 << 20
"""The size of the largest file that is read, in bytes."""


def document_of(config: Any, folder: Path | Traversable = Path()) -> Document:
    """The configuration that is meant: a path, the name of a preset, or a mapping.

    Text is the name of a preset unless it has a path separator or ends with ``.yaml``, ``.yml`` or ``.json``. Paths are
    relative to ``folder``. What is wrong with a file is among the problems of the document.

    Raises:
        ConfigError: it is nothing of this, or there is no such preset.
    """
    if isinstance(config, Mapping):
        return Document(config)
    if isinstance(config, os.PathLike):
        return _from_file(os.fsdecode(config), folder)
    if not isinstance(config, str):
        raise ConfigError(f"a configuration is a path, the name of a preset, or a mapping, not {describe(config)}")
    if config.endswith(SUFFIXES) or "/" in config or os.sep in config:
        return _from_file(config, folder)
    return _from_preset(config)


def _from_preset(name: str) -> Document:
    try:
        spec = find(Preset, name).spec
    except PluginError as error:
        advice = ("a file is given by its path, which ends with .yaml, .yml or .json",)
        raise ConfigError(error.problem, advice=error.advice + advice) from error
    folder = importlib.resources.files(spec.package)
    return _read(folder / spec.file, f"{spec.package}/{spec.file}", folder, f"preset {spec.package}/{spec.file}")


def _from_file(path: str, folder: Path | Traversable) -> Document:
    file = folder / os.path.expanduser(path)
    if not isinstance(file, Path):
        return _read(file, path, folder, f"preset {path}")
    return _read(file, os.fspath(file), file.parent, os.path.realpath(file))


def _read(file: Path | Traversable, name: str, folder: Path | Traversable, identity: str) -> Document:
    try:
        with file.open("rb") as stream:
            content = stream.read(_LIMIT + 1)
    except (OSError, ValueError) as error:  # ValueError: a character that no path has
        return _unread(name, _why_not(file, error), folder, identity)
    if len(content) > _LIMIT:
        return _unread(name, f"is larger than {_LIMIT >> 20} MiB", folder, identity)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = Problem(name, line, "", f"is not UTF-8: the byte {content[error.start]:#04x} does not belong there")
        return Document({}, name, {}, folder, identity, (problem,))
    value, lines, problems = read_text(text, name, as_json=name.endswith(".json"))
    if value is not None and not isinstance(value, dict):
        problems = [
            *problems,
            Problem(name, lines[()], "", f"must be a mapping, `option: value`, not {describe(value)}"),
        ]
        value = None
    return Document(value or {}, name, lines, folder, identity, tuple(problems))


def _unread(name: str, why: str, folder: Path | Traversable, identity: str) -> Document:
    return Document({}, name, {}, folder, identity, (Problem(name, None, "", why),))


def _why_not(file: Path | Traversable, error: Exception) -> str:
    if isinstance(error, FileNotFoundError) and isinstance(file, Path):
        siblings = [sibling.name for sibling in file.parent.glob("*") if sibling.suffix in SUFFIXES]
        return f"there is no such file{suggestion(file.name, siblings)}"
    if isinstance(error, IsADirectoryError):
        return "is a directory; give the path of a file in it"
    return f"cannot be read: {error.strerror if isinstance(error, OSError) else error}"
