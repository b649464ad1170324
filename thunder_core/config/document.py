"""One source of a configuration: a file, a preset, a mapping, or what `thunder.jit` is given directly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from thunder_core.config.model import ThunderConfig, advice_on, parse
from thunder_core.config.problems import Problem, Trail, written
from thunder_core.config.sentences import sentences

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
