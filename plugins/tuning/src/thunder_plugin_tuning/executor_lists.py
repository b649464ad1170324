"""Lists of executors, and the changes of them that are tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from thunder.config.entry import Entry

Executors = tuple[Entry, ...]

_DEFAULTS: Final[Mapping[str, Any]] = {"include": [], "exclude": [], "on_decline": "next"}


@dataclass(frozen=True)
class Change:
    """A change of a list of executors.

    Attributes:
        kind: "first": the executor is offered all operations, before the others. "without": it is left out.
            "takes": it is offered an operation. "leaves": it is not offered an operation.
        executor: its name in configurations.
        operation: the name of the operation; empty for the first two kinds.
    """

    kind: Literal["first", "without", "takes", "leaves"]
    executor: str
    operation: str = ""

    def applied(self, executors: Executors) -> Executors | None:
        """The changed list; None if it is the same."""
        changed = _CHANGES[self.kind](executors, self.executor, self.operation)
        return None if changed == executors else changed

    def __str__(self) -> str:
        if self.kind == "first":
            return f"{self.executor} first"
        if self.kind == "without":
            return f"without {self.executor}"
        return f"{self.operation} {'by' if self.kind == 'takes' else 'not by'} {self.executor}"


def slim(entry: Entry) -> Entry:
    """The entry without ``optional``, and without those options of all executors that have their default."""
    options = {name: value for name, value in entry.options.items() if _DEFAULTS.get(name, ...) != value}
    options.pop("optional", None)
    return entry.with_options(options)


def _first(executors: Executors, name: str, operation: str) -> Executors:
    own = next((entry for entry in executors if entry.item == _item(name)), Entry(name))
    options = {key: value for key, value in own.options.items() if key not in ("include", "exclude")}
    return (own.with_options(options), *_without(executors, name, operation))


def _without(executors: Executors, name: str, operation: str) -> Executors:
    return tuple([entry for entry in executors if entry.item != _item(name)])


def _takes(executors: Executors, name: str, operation: str) -> Executors:
    if all(entry.item != _item(name) for entry in executors):
        return (Entry(name).with_options({"include": [operation]}), *executors)

    def change(options: dict[str, Any]) -> None:
        excluded = [pattern for pattern in options.get("exclude", []) if pattern != operation]
        options.pop("exclude", None)
        options |= {"exclude": excluded} if excluded else {}
        if options.get("include"):
            options["include"] = list(dict.fromkeys([*options["include"], operation]))

    return _changed(executors, name, change)


def _leaves(executors: Executors, name: str, operation: str) -> Executors:
    if any(entry.item == _item(name) and entry.options.get("include") == [operation] for entry in executors):
        return _without(executors, name, operation)

    def change(options: dict[str, Any]) -> None:
        included = options.get("include", [])
        if operation in included:
            options["include"] = [pattern for pattern in included if pattern != operation]
        else:
            options["exclude"] = list(dict.fromkeys([*options.get("exclude", []), operation]))

    return _changed(executors, name, change)


def _changed(executors: Executors, name: str, change: Callable[[dict[str, Any]], None]) -> Executors:
    found = []
    for entry in executors:
        options = entry.options
        if entry.item == _item(name):
            change(options)
        found.append(entry.with_options(options) if options != entry.options else entry)
    return tuple(found)


def _item(name: str) -> str:
    return name.rpartition(".")[2]


_CHANGES: Final = {"first": _first, "without": _without, "takes": _takes, "leaves": _leaves}
