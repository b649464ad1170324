"""One source of a configuration: a file, a preset, a mapping, or the arguments of `thunder.jit`."""

from __future__ import annotations

import importlib.resources
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from thunder.config.declared_sizes import DECLARE_IN_PYTHON
from thunder.config.entry import LISTS
from thunder.config.model import ThunderConfig, advice_on, parse
from thunder.config.problems import Problem, Trail, describe, place_of, sentences
from thunder.config.yaml_text import read_text
from thunder_core.errors import ConfigError, PluginError, suggestion
from thunder_core.plugins.distributions import CORE_PLUGIN
from thunder_core.plugins.importing import FAILURES, failure
from thunder_core.plugins.lookup import find
from thunder_core.plugins.specs import Preset

_LISTS: Final = ("requires", *LISTS)
"""The options whose items are validated one by one."""


@dataclass(frozen=True)
class Document:
    """The content of one source.

    Attributes:
        config: the valid options. Only these are set (``model_fields_set``).
        indices: for each list in ``config``, the positions of its items in the source, which may have invalid items.
        file: the path as the user wrote it; None for options from Python.
        lines: the line numbers of the values in the file, from 1.
        folder: the folder to which paths in the source are relative.
        identity: equal for documents of the same file; empty for options from Python.
        problems: the problems of the invalid options.
    """

    config: ThunderConfig
    indices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    file: str | None = None
    lines: Mapping[Trail, int] = field(default_factory=dict)
    folder: Path | Traversable = Path()
    identity: str = ""
    problems: tuple[Problem, ...] = ()

    def trail(self, name: str, position: int | None = None) -> Trail:
        """The trail in the source of an option, or of the item at ``position`` of its list in ``config``."""
        return (name,) if position is None else (name, self.indices[name][position])

    def problem(self, trail: Trail, text: str, advice: tuple[str, ...] = ()) -> Problem:
        """A problem of the value at this trail."""
        return Problem(self.file, self.line(trail), place_of(trail), text, advice)

    def line(self, trail: Trail) -> int | None:
        """The line of the value at this trail, or of the innermost value around it; None for options from Python."""
        while trail and trail not in self.lines:
            trail = trail[:-1]
        return self.lines.get(trail)

    def with_problems(self, problems: Iterable[Problem]) -> Document:
        """The document with its problems replaced by these."""
        return replace(self, problems=tuple(problems))


def document(
    values: Mapping[str, Any],
    file: str | None = None,
    lines: Mapping[Trail, int] | None = None,
    folder: Path | Traversable = Path(),
    identity: str = "",
    problems: Iterable[Problem] = (),
) -> Document:
    """The document with these values, which are plain data.

    Args:
        problems: problems of the source, which precede those of the values in `Document.problems`.
        values, file, lines, folder, identity: as in `Document`.
    """
    blank = Document(parse({}), {}, file, lines or {}, folder, identity)
    values, problems = dict(values), list(problems)
    problems += _remove_unparsable(values, blank)
    indices = {name: tuple(range(len(values[name]))) for name in _LISTS if isinstance(values.get(name), list | tuple)}
    try:
        config = parse(values)
    except ValidationError as error:
        invalid = list(sentences(error, ThunderConfig, values))
        problems += [blank.problem(trail, text, advice_on(text)) for trail, text in invalid]
        trails = {trail[: 2 if trail[0] in _LISTS else 1] for trail, _ in invalid}
        config, indices = _without(trails, values, indices)
    return replace(blank, config=config, indices=indices, problems=tuple(problems))


def _remove_unparsable(values: dict[Any, Any], blank: Document) -> list[Problem]:
    """Remove the options for which messages of pydantic would not be clear, and return their problems."""
    problems: list[Problem] = []
    for name in [name for name, value in values.items() if value is None and name in ThunderConfig.model_fields]:
        del values[name]
        problems.append(blank.problem((name,), "has no value; leave the line out for the default"))
    for name in [name for name in values if not isinstance(name, str)]:
        del values[name]
        problems.append(blank.problem((), f"the name of an option must be text, not {name!r}"))
    for name in LISTS if blank.file is None else ():
        value = values.get(name)
        if isinstance(value, str | Mapping):
            del values[name]
            text = f"must be a list, not {describe(value)}; write {name}=[{value!r}]"
            problems.append(blank.problem((name,), text))
    if blank.file is not None and isinstance(values.get("dynamic"), Mapping):
        del values["dynamic"]
        text = 'must be true, false or "automatic" in a file'
        problems.append(blank.problem(("dynamic",), text, (DECLARE_IN_PYTHON,)))
    return problems


def document_of_config(config: ThunderConfig) -> Document:
    """The document for a `ThunderConfig`."""
    return Document(config, {name: tuple(range(len(getattr(config, name) or ()))) for name in _LISTS})


def _without(
    invalid: set[Trail], values: Mapping[str, Any], indices: Mapping[str, tuple[int, ...]]
) -> tuple[ThunderConfig, dict[str, tuple[int, ...]]]:
    """The configuration without the invalid options and items, and the indices of the remaining items."""
    values = {name: value for name, value in values.items() if (name,) not in invalid}
    valid = dict(indices)
    for name in indices.keys() & values.keys():
        valid[name] = tuple(index for index in indices[name] if (name, index) not in invalid)
        values[name] = [values[name][index] for index in valid[name]]
    return parse(values), valid


SUFFIXES: Final = (".yaml", ".yml", ".json")
_MAX_BYTES: Final = 1 << 20
"""The size of the largest configuration file that is accepted."""


def document_of(config: Any, folder: Path | Traversable = Path()) -> Document:
    """The document of a configuration: a path, the name of a preset, or a mapping.

    A string is the name of a preset unless it has a path separator or ends with ``.yaml``, ``.yml`` or ``.json``:
    ``name``, ``plugin.name`` or ``plugin:name``, where the plugin ``thunder`` is the core. Paths are relative to
    ``folder``. Problems of the content are in `Document.problems`.

    Raises:
        ConfigError: ``config`` has another type, or there is no such preset.
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
    """The document of a configuration, preceded by those that it extends, the most basic first.

    Raises:
        ConfigError: as `document_of`, for ``config`` itself. All other problems are in `Document.problems`.
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
    """The documents of the preset ``default``, which other configurations override."""
    return tuple(documents_of("default"))


def _base(documents: list[Document]) -> Document | Problem:
    """The document that the first of these extends, or the problem of its option ``extends``.

    Args:
        documents: each extends the one before it.
    """
    first = documents[0]
    try:
        base = document_of(first.config.extends, first.folder)
    except ConfigError as error:
        return first.problem(("extends",), error.problem, error.advice)
    unread = [problem for problem in base.problems if problem.line is None]
    if unread:
        return first.problem(("extends",), f"{unread[0].file}: {unread[0].text}")
    extending = documents[::-1]
    for index, document in enumerate(extending):
        if document.identity == base.identity:
            files = [document.file or "" for document in [*extending[index:], base]]
            return first.problem(("extends",), f"is circular: {' → '.join(files)}")
    return base


def _from_preset(name: str, folder: Path | Traversable) -> Document:
    """The document of a preset; ``folder`` is searched for a file of that name, for the error message."""
    owner, colon, item = name.partition(":")
    try:
        offered = find(Preset, f"{CORE_PLUGIN if owner == 'thunder' else owner}.{item}" if colon else name)
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
    """The document of a file; a relative path starts at ``folder``."""
    file = folder / os.path.expanduser(path)
    return _read(file, os.fspath(file), file.parent) if isinstance(file, Path) else _read(file, path, folder)


def _read(file: Path | Traversable, name: str, folder: Path | Traversable) -> Document:
    """The document of a file.

    Args:
        file: the file.
        name: its path for messages.
        folder: as in `Document`.
    """
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: the path has a null character
        return document({}, name, problems=[Problem(name, None, "", _why_unreadable(file, error))])
    identity = os.path.realpath(file) if isinstance(file, Path) else name
    value, lines, problems = _parsed(content, name)
    return document(value, name, lines, folder, identity, problems)


def _parsed(content: bytes, name: str) -> tuple[dict[str, Any], dict[Trail, int], list[Problem]]:
    """The values of a file, the line numbers of the values, and problems of the syntax."""
    if len(content) > _MAX_BYTES:
        return {}, {}, [Problem(name, None, "", f"is larger than {_MAX_BYTES >> 20} MiB")]
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = f"{content[error.start]:#04x}"
        return {}, {}, [Problem(name, line, "", f"is not UTF-8: unexpected byte {byte}")]
    value, lines, problems = read_text(text, name, as_json=name.endswith(".json"))
    if value is None:
        return {}, lines, problems
    if not isinstance(value, dict):
        problem = Problem(name, lines[()], "", f"must be a mapping, `option: value`, not {describe(value)}")
        return {}, lines, [*problems, problem]
    return value, lines, problems


def _why_unreadable(file: Path | Traversable, error: Exception) -> str:
    """The message for a file that cannot be read."""
    if isinstance(error, FileNotFoundError) and isinstance(file, Path):
        siblings = [sibling.name for sibling in file.parent.glob("*") if sibling.suffix in SUFFIXES]
        return f"file not found{suggestion(file.name, siblings, cutoff=0.8)}"  # high, as the suffix is common
    if isinstance(error, IsADirectoryError):
        return "is a directory; give the path of a file in it"
    return f"cannot be read: {error.strerror if isinstance(error, OSError) else error}"
