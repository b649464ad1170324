"""One source of a configuration: a file, a preset, a mapping, or what `thunder.jit` is given directly."""

from __future__ import annotations

import difflib
import importlib.resources
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from thunder_core.config.entry import find
from thunder_core.config.model import ThunderConfig, advice_on, parse
from thunder_core.config.problems import Problem, Trail, written
from thunder_core.config.sentences import describe, sentences
from thunder_core.config.yaml_reader import read_text
from thunder_core.errors import ConfigError, PluginError
from thunder_core.plugins.importing import FAILURES, failure
from thunder_core.plugins.specs import Preset

DECLARE_IN_PYTHON: Final = (
    'declare sizes where the program is compiled: thunder.jit(f, dynamic={"x": {0: Dim("batch")}})'
)
"""What to do with declarations of sizes, which are objects of Python."""
LISTS: Final = ("requires", "executors", "transforms")
"""The options whose items are judged one by one."""


@dataclass(frozen=True)
class Document:
    """What one source says.

    Attributes:
        config: the part of it that is valid; the fields that were set are those that the document has.
        indices: of the items of each list in ``config``, where they stand in the document.
        file: as the user named it; None for what was given in Python.
        lines: of what stands in the file; the first is 1.
        folder: what the paths in it are relative to.
        identity: the same for all documents that were read from the same file.
        problems: what is wrong with the rest of it.
    """

    config: ThunderConfig
    indices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    file: str | None = None
    lines: Mapping[Trail, int] = field(default_factory=dict)
    folder: Path | Traversable = Path()
    identity: str = ""
    problems: tuple[Problem, ...] = ()

    def trail(self, name: str, position: int | None = None) -> Trail:
        """Where an option, or the item at this position of its list in ``config``, stands in the document."""
        return (name,) if position is None else (name, self.indices[name][position])

    def problem(self, trail: Trail, text: str, advice: tuple[str, ...] = ()) -> Problem:
        """A problem at a place of this document."""
        return Problem(self.file, self.line(trail), written(trail), text, advice)

    def line(self, trail: Trail) -> int | None:
        """Where that, or what it would belong to, stands in the file."""
        while trail and trail not in self.lines:
            trail = trail[:-1]
        return self.lines.get(trail)

    def with_problems(self, problems: Iterable[Problem]) -> Document:
        """The document with these problems in place of those that it has."""
        return replace(self, problems=tuple(problems))


def document(
    values: Mapping[str, Any],
    file: str | None = None,
    lines: Mapping[Trail, int] | None = None,
    folder: Path | Traversable = Path(),
    identity: str = "",
    problems: Iterable[Problem] = (),
) -> Document:
    """The document that has these values, plain data. What is not valid among them is a problem, after ``problems``."""
    blank = Document(parse({}), {}, file, lines or {}, folder, identity)
    values, found = dict(values), list(problems)
    for name in [name for name, value in values.items() if value is None and name in ThunderConfig.model_fields]:
        del values[name]
        found.append(blank.problem((name,), "has no value; leave the line out for the default"))
    for name in [name for name in values if not isinstance(name, str)]:
        del values[name]
        found.append(blank.problem((), f"the name of an option must be text, not {name!r}"))
    if file is not None and isinstance(values.get("dynamic"), Mapping):
        del values["dynamic"]
        found.append(blank.problem(("dynamic",), 'must be true, false or "automatic" in a file', (DECLARE_IN_PYTHON,)))
    kept = {name: tuple(range(len(values[name]))) for name in LISTS if isinstance(values.get(name), list | tuple)}
    try:
        config = parse(values)
    except ValidationError as error:
        wrong = list(sentences(error, ThunderConfig, values))
        found += [blank.problem(trail, text, advice_on(text)) for trail, text in wrong]
        config, kept = _without({trail[: 2 if trail[0] in LISTS else 1] for trail, _ in wrong}, values, kept)
    return replace(blank, config=config, indices=kept, problems=tuple(found))


def document_of_config(config: ThunderConfig) -> Document:
    """A configuration that is a Python object."""
    return Document(config, {name: tuple(range(len(getattr(config, name) or ()))) for name in LISTS})


def _without(
    wrong: set[Trail], values: Mapping[str, Any], kept: Mapping[str, tuple[int, ...]]
) -> tuple[ThunderConfig, dict[str, tuple[int, ...]]]:
    """The configuration without the options and items that are wrong, and the indices of the items that are left."""
    values = {name: value for name, value in values.items() if (name,) not in wrong}
    indices = dict(kept)
    for name in kept.keys() & values.keys():
        indices[name] = tuple(index for index in kept[name] if (name, index) not in wrong)
        values[name] = [values[name][index] for index in indices[name]]
    return parse(values), indices


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
