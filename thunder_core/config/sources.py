"""Where configurations come from: files, presets, and mappings given in Python; and what these extend."""

from __future__ import annotations

import difflib
import importlib.resources
import os
from collections.abc import Mapping
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from thunder_core.config.document import Document, document, document_of_config
from thunder_core.config.lookup import find
from thunder_core.config.model import ThunderConfig
from thunder_core.config.problems import Problem, Trail
from thunder_core.config.sentences import describe
from thunder_core.config.yaml_reader import read_text
from thunder_core.errors import ConfigError, PluginError
from thunder_core.plugins.importing import FAILURES, failure
from thunder_core.plugins.specs import Preset

SUFFIXES: Final = (".yaml", ".yml", ".json")
_LIMIT: Final = 1 << 20
"""The size of the largest file that is read, in bytes."""


def document_of(config: Any, folder: Path | Traversable = Path()) -> Document:
    """The configuration that is meant: a path, the name of a preset, or a mapping.

    Text is the name of a preset unless it has a path separator or ends with ``.yaml``, ``.yml`` or ``.json``. Paths are
    relative to ``folder``. What is wrong with its content is among the problems of the document.

    Raises:
        ConfigError: it is nothing of this, or there is no such preset.
    """
    if isinstance(config, Mapping):
        return document(config)
    if isinstance(config, os.PathLike):
        return _from_file(os.fsdecode(config), folder)
    if not isinstance(config, str):
        raise ConfigError(f"a configuration is a path, the name of a preset, or a mapping, not {describe(config)}")
    if config.endswith(SUFFIXES) or "/" in config or os.sep in config:
        return _from_file(config, folder)
    return _from_preset(config, folder)


def documents_of(config: Any) -> list[Document]:
    """The documents that a configuration consists of, what it extends first.

    Raises:
        ConfigError: it is no configuration, or there is no such preset. Other problems are in the documents.
    """
    documents = [document_of_config(config) if isinstance(config, ThunderConfig) else document_of(config)]
    while documents[0].config.extends is not None:
        base = _base(documents)
        if isinstance(base, Problem):
            documents[0] = documents[0].with_problems([*documents[0].problems, base])
            break
        documents.insert(0, base)
    return documents


@cache
def default_documents() -> tuple[Document, ...]:
    """What all configurations extend in the end."""
    return tuple(documents_of("default"))


def _base(documents: list[Document]) -> Document | Problem:
    """What the first of these documents, each of which extends the one before it, extends."""
    first = documents[0]
    try:
        base = document_of(first.config.extends, first.folder)
    except ConfigError as error:
        return first.problem(("extends",), error.problem, error.advice)
    unread = [problem for problem in base.problems if problem.line is None]
    if unread:
        return first.problem(("extends",), f"{unread[0].file}: {unread[0].text}")
    known = [document.identity for document in reversed(documents)]
    if base.identity in known:
        files = [document.file or "" for document in reversed(documents)]
        circle = [*files[known.index(base.identity) :], base.file or ""]
        return first.problem(("extends",), f"is a circle: {' → '.join(circle)}")
    return base


def _from_preset(name: str, folder: Path | Traversable) -> Document:
    try:
        offered = find(Preset, name)
    except PluginError as error:
        advice = ("a file is given by its path, which ends with .yaml, .yml or .json",)
        if isinstance(folder, Path) and os.path.isfile(os.path.join(folder, name)):
            raise ConfigError(
                f"there is no preset {name!r}; a file without the ending .yaml, .yml or .json is given with a folder: "
                f"'./{name}'"
            ) from error
        raise ConfigError(error.problem, advice=error.advice + advice) from error
    package, file = offered.spec.package, offered.spec.file
    try:
        resources = importlib.resources.files(package)
    except FAILURES as error:
        why = f"{package} cannot be imported: {failure(error, package)}"
        raise ConfigError(
            f"the preset {name!r} of the {offered.plugin.title} cannot be read: {why}",
            advice=(f"pip install --force-reinstall {offered.plugin.distribution}",),
        ) from error
    return _read(resources / file, f"{package}/{file}", resources)


def _from_file(path: str, folder: Path | Traversable) -> Document:
    file = folder / os.path.expanduser(path)
    return _read(file, os.fspath(file), file.parent) if isinstance(file, Path) else _read(file, path, folder)


def _read(file: Path | Traversable, name: str, folder: Path | Traversable) -> Document:
    try:
        with file.open("rb") as stream:
            content = stream.read(_LIMIT + 1)
    except (OSError, ValueError) as error:  # ValueError: a character that no path has
        return document({}, name, problems=[Problem(name, None, "", _why_not(file, error))])
    identity = os.path.realpath(file) if isinstance(file, Path) else name
    value, lines, problems = _parsed(content, name)
    return document(value, name, lines, folder, identity, problems)


def _parsed(content: bytes, name: str) -> tuple[dict[str, Any], dict[Trail, int], list[Problem]]:
    if len(content) > _LIMIT:
        return {}, {}, [Problem(name, None, "", f"is larger than {_LIMIT >> 20} MiB")]
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = f"{content[error.start]:#04x}"
        return {}, {}, [Problem(name, line, "", f"is not UTF-8: the byte {byte} does not belong there")]
    value, lines, problems = read_text(text, name, as_json=name.endswith(".json"))
    if value is None:
        return {}, lines, problems
    if not isinstance(value, dict):
        problem = Problem(name, lines[()], "", f"must be a mapping, `option: value`, not {describe(value)}")
        return {}, lines, [*problems, problem]
    return value, lines, problems


def _why_not(file: Path | Traversable, error: Exception) -> str:
    if isinstance(error, FileNotFoundError) and isinstance(file, Path):
        siblings = [sibling.name for sibling in file.parent.glob("*") if sibling.suffix in SUFFIXES]
        near = difflib.get_close_matches(file.name, siblings, 1, cutoff=0.8)  # all of them have the same ending
        return f"there is no such file; did you mean {near[0]!r}?" if near else "there is no such file"
    if isinstance(error, IsADirectoryError):
        return "is a directory; give the path of a file in it"
    return f"cannot be read: {error.strerror if isinstance(error, OSError) else error}"
