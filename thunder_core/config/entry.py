"""Entries of the lists of executors and transforms: ``name``, or ``{name: options}``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from thunder_core.config.sentences import describe
from thunder_core.executors.executor import Executor
from thunder_core.passes.transform import Transform
from thunder_core.plugins import builtin
from thunder_core.plugins.distributions import CORE
from thunder_core.plugins.host import host
from thunder_core.plugins.importing import imported
from thunder_core.plugins.registration import KINDS
from thunder_core.plugins.selection import CORE_PLUGIN
from thunder_core.plugins.specs import ExecutorSpec, FrontEndSpec, Preset, TransformSpec
from thunder_core.plugins.states import PluginRecord, PluginState
from thunder_core.plugins.table import Offered

Object = Executor | Transform


@dataclass(frozen=True, slots=True, repr=False)
class Entry:
    """One executor or transform, and its options.

    Attributes:
        name: of an executor or transform, or ``plugin.name``.
        text: its options as JSON with sorted names: equal for equal options only; ``1``, ``1.0`` and ``true`` differ.
        given: the executor or transform itself, where it is a Python object.
    """

    name: str
    text: str = "{}"
    given: Object | None = None

    @property
    def item(self) -> str:
        """The name without its plugin's."""
        return self.name.rpartition(".")[2]

    @property
    def options(self) -> dict[str, Any]:
        """The options, as plain data."""
        options: dict[str, Any] = json.loads(self.text)
        return options

    def with_options(self, options: Mapping[str, Any]) -> Entry:
        """The entry with other options: plain data. Raises TypeError or ValueError for anything else."""
        return Entry(self.name, json.dumps(dict(options), sort_keys=True), self.given)

    def plain(self) -> Any:
        """The entry as a configuration has it; of a Python object only the name."""
        return self.name if self.text == "{}" else {self.name: self.options}

    def __repr__(self) -> str:
        return repr(self.plain() if self.given is None else self.given)


def read_entries(kind: type[Executor] | type[Transform]) -> Callable[[Any], tuple[Entry, ...] | None]:
    """A function that reads a list of entries whose objects are of ``kind``, for pydantic."""

    def read(value: Any) -> tuple[Entry, ...] | None:
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise refusal(_no_list(value))
        return tuple(checked(value, lambda items: _entries(items, kind)))

    return read


def checked(values: Any, results: Callable[[Any], Iterator[Any]]) -> list[Any]:
    """The results for items of a list. For those that are `PydanticCustomError`, one error with their indices."""
    found = list(results(values))
    errors = [
        InitErrorDetails(type=result, loc=(index,), input=value)
        for index, (value, result) in enumerate(zip(values, found, strict=True))
        if isinstance(result, PydanticCustomError)
    ]
    if errors:
        raise ValidationError.from_exception_data("configuration", errors)
    return found


def refusal(text: str) -> PydanticCustomError:
    """An error with this sentence."""
    return PydanticCustomError("config", "{text}", {"text": text})


def _entries(values: Any, kind: type) -> Iterator[Entry | PydanticCustomError]:
    seen: dict[str, int] = {}
    for index, value in enumerate(values):
        try:
            entry = _entry(value, kind)
        except PydanticCustomError as error:
            yield error
            continue
        first = seen.setdefault(entry.name, index)
        yield entry if first == index else refusal(f"{entry.name!r} is there twice; entry [{first}] has it already")


def _entry(value: Any, kind: type) -> Entry:
    if isinstance(value, Entry):
        return value
    if isinstance(value, kind):
        return _given(value)
    if isinstance(value, str) and value.strip():
        return Entry(value)
    if isinstance(value, Mapping) and len(value) == 1:
        [(name, options)] = value.items()
        return _with_options(name, options)
    raise refusal(_no_entry(value, kind))


def _given(value: Any) -> Entry:
    """The entry for an executor or a transform that is a Python object."""
    name = getattr(value, "name", None)
    if not isinstance(name, str):
        raise refusal(f"{type(value).__name__} has no name; its attribute `name` must be text")
    try:
        hash(value)
    except TypeError as error:
        raise refusal(f"{name!r} cannot be compared with others ({error}); give it tuples instead of lists") from error
    return Entry(name, given=value)


def _with_options(name: Any, options: Any) -> Entry:
    if not isinstance(name, str) or not name.strip():
        raise refusal(f"a name must be text, not {describe(name)}")
    if isinstance(options, BaseModel):
        options = options.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if options is None:
        return Entry(name)
    if not isinstance(options, Mapping):
        raise refusal(f"the options of {name!r} must be a mapping, `option: value`, not {describe(options)}")
    try:
        return Entry(name).with_options(options)
    except (TypeError, ValueError) as error:
        raise refusal(
            f"the options of {name!r} must be text, numbers, true, false, lists and mappings ({error})"
        ) from error


def _no_entry(value: Any, kind: type) -> str:
    what = "an executor" if kind is Executor else "a transform"
    if isinstance(value, Mapping) and value:
        first, second = list(value)[:2]
        if value[first] is None:
            return f"{second!r} stands beside {first!r}, not below it; indent options further than the name before them"
        return f"has two names, {first!r} and {second!r}; begin each entry with `- ` on a line of its own"
    if isinstance(value, type) and issubclass(value, kind):
        return f"must be an instance of {value.__name__}, not the class; write {value.__name__}()"
    return f"must be the name of {what}, or {{name: options}}, not {describe(value) if value else 'nothing'}"


def _no_list(value: Any) -> str:
    if isinstance(value, str):
        return (
            f"must be a list, not {describe(value)}; write [{value}], or put `- ` before each name on a line of its own"
        )
    if isinstance(value, Mapping):
        return "must be a list, not a mapping; put `- ` before each name"
    return f"must be a list, not {describe(value)}"


Spec = TypeVar("Spec", ExecutorSpec, TransformSpec, FrontEndSpec, Preset)
# The version is not looked up: that takes longer than all else that `thunder.jit` does.
_CORE: Final = PluginRecord(CORE_PLUGIN, CORE, "", PluginState.LOADED)


def find(kind: type[Spec], name: str) -> Offered[Spec]:
    """The specification that ``name`` or ``plugin.name`` refers to. For those of the core, plugins are not discovered.

    Raises:
        PluginError: there is no such thing, or its plugin cannot be used.
    """
    for offered in of_core(kind):
        if name in (offered.spec.name, f"{CORE_PLUGIN}.{offered.spec.name}"):
            return offered
    return host().find(kind, name)


def of_core(kind: type[Spec]) -> list[Offered[Spec]]:
    """What the core offers of this kind."""
    hook = next(hook for hook, returned in KINDS.items() if returned is kind)
    specs: Sequence[Spec] = getattr(builtin, hook)()
    return [Offered(_CORE, spec) for spec in specs]


def use(offered: Offered[Any]) -> None:
    """Add the tables of the plugin of a specification. Raises PluginError where they cannot be added."""
    if offered.plugin is not _CORE:
        host().use(offered)


def import_object(offered: Offered[Any]) -> Any:
    """What is behind a specification. Raises PluginError where it cannot be imported."""
    return imported(offered.spec.load) if offered.plugin is _CORE else host().import_object(offered)
