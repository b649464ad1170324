"""The lists of a configuration whose entries name parts of plugins: ``name``, or ``{name: options}``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from thunder.config.problems import describe
from thunder_core.executors.executor import Executor
from thunder_core.passes.transform import Transform
from thunder_core.plugins.specs import ExecutorSpec, InterceptionsSpec, TensorClassesSpec, TransformSpec
from thunder_frontend.record.tensor_classes import TensorClasses

Object = Executor | Transform | TensorClasses
PartSpec = ExecutorSpec | TransformSpec | TensorClassesSpec | InterceptionsSpec


@dataclass(frozen=True, slots=True)
class EntryList:
    """One of the lists.

    Attributes:
        spec: the class of the specifications that its names refer to.
        kind: the class of its objects; None if it has names only.
        noun: what messages call an entry.
        replaces: whether the list of a later document replaces that of an earlier one; else the entries are merged.
    """

    spec: type[PartSpec]
    kind: type[Object] | None
    noun: str
    replaces: bool = False


LISTS: Final = {
    "executors": EntryList(ExecutorSpec, Executor, "an executor", replaces=True),
    "transforms": EntryList(TransformSpec, Transform, "a transform"),
    "tensor_classes": EntryList(TensorClassesSpec, TensorClasses, "a support of tensor classes", replaces=True),
    "interceptions": EntryList(InterceptionsSpec, None, "a plugin with interceptions"),
}
"""The lists by option."""
_MADE_OF: Final[Mapping[type, str]] = {
    Executor: "an executor has claims: OperatorExecutor('my_kernels', (Claim(torch.relu, run=function),))",
    Transform: "a transform is an instance of a class: docs/transforms.md has recipes",
}
"""What a function is made into, by the class of the objects of a list."""


@dataclass(frozen=True, slots=True, repr=False)
class Entry:
    """An entry of a list.

    Attributes:
        name: the name of an executor, transform and so on, or ``plugin.name``.
        text: its options as JSON with sorted names; ``1``, ``1.0`` and ``true`` differ.
        given: the object, if the entry is a Python object instead of a name.
    """

    name: str
    text: str = "{}"
    given: Object | None = None

    @property
    def item(self) -> str:
        """The name without the plugin's."""
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
        """The entry as plain data; of a Python object only the name."""
        return self.name if self.text == "{}" else {self.name: self.options}

    def __repr__(self) -> str:
        return repr(self.plain() if self.given is None else self.given)


EXTENDED: Final = Entry("...")
"""The item ``...`` of a list: those entries of the extended list that the list does not name."""


def read_entries(name: str) -> Callable[[Any], tuple[Entry, ...] | None]:
    """The pydantic validator of the list ``name``."""

    def read(value: Any) -> tuple[Entry, ...] | None:
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise refusal(_no_list(value))
        return tuple(checked(value, lambda items: _entries(items, LISTS[name])))

    return read


_MOST: Final = 1000
"""The largest number of items of a list. Each name takes a search in the installed plugins."""


def checked(values: Any, results: Callable[[Any], Iterator[Any]]) -> list[Any]:
    """The results for the items of a list. Raises one ValidationError for all that are `PydanticCustomError`."""
    if len(values) > _MOST:
        raise refusal(f"has {len(values)} items; at most {_MOST} are accepted")
    items = list(results(values))
    errors = [
        InitErrorDetails(type=result, loc=(index,), input=value)
        for index, (value, result) in enumerate(zip(values, items, strict=True))
        if isinstance(result, PydanticCustomError)
    ]
    if errors:
        raise ValidationError.from_exception_data("configuration", errors)
    return items


def refusal(text: str) -> PydanticCustomError:
    """A validation error with this message."""
    return PydanticCustomError("config", "{text}", {"text": text})


def _entries(values: Any, of: EntryList) -> Iterator[Entry | PydanticCustomError]:
    seen: dict[str, int] = {}
    for index, value in enumerate(values):
        try:
            entry = _entry(value, of)
        except PydanticCustomError as error:
            yield error
            continue
        first = seen.setdefault(entry.name, index)
        yield entry if first == index else refusal(f"{entry.name!r} is listed twice, first as entry [{first}]")


def _entry(value: Any, of: EntryList) -> Entry:
    if value is ...:
        return EXTENDED
    if isinstance(value, Entry):
        return value
    if of.kind is not None and isinstance(value, of.kind):
        return _given(value)
    if isinstance(value, str) and value.strip():
        if value != EXTENDED.name and not value.strip(".\N{HORIZONTAL ELLIPSIS}"):
            raise refusal(f"{value!r} is not a name; the entries of the extended list are '...'")
        return Entry(value)
    if isinstance(value, Mapping) and len(value) == 1:
        [(name, options)] = value.items()
        return _with_options(name, options)
    raise refusal(_no_entry(value, of))


def _given(value: Any) -> Entry:
    """The entry for a Python object."""
    name = getattr(value, "name", None)
    if not isinstance(name, str):
        raise refusal(f"{type(value).__name__} has no name; its attribute `name` must be text")
    try:
        hash(value)
    except TypeError as error:
        unhashable = type(value).__hash__ is None
        cure = "declare it with @dataclass(frozen=True)" if unhashable else "give it tuples instead of lists"
        raise refusal(f"{name!r} cannot be compared with others ({error}); {cure}") from error
    return Entry(name, given=value)


def _with_options(name: Any, options: Any) -> Entry:
    if not isinstance(name, str) or not name.strip():
        raise refusal(f"a name must be text, not {describe(name)}")
    if isinstance(options, BaseModel):
        options = options.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if name == EXTENDED.name:
        raise refusal("'...' has no options; write it alone, and name the entry whose options differ")
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


def _no_entry(value: Any, of: EntryList) -> str:
    if isinstance(value, Mapping) and value:
        first, second = list(value)[:2]
        if value[first] is None:
            return f"{second!r} is not below {first!r}; indent options further than the name before them"
        return f"has two names, {first!r} and {second!r}; begin each entry with `- ` on a line of its own"
    if of.kind is not None and isinstance(value, type) and issubclass(value, of.kind):
        return f"must be an instance of {value.__name__}, not the class; write {value.__name__}()"
    if isinstance(value, FunctionType) and of.kind is not None and of.kind in _MADE_OF:
        return f"must be {of.noun}, not the function {value.__name__}; {_MADE_OF[of.kind]}"
    return f"must be the name of {of.noun}, or {{name: options}}, not {describe(value) if value else 'nothing'}"


def _no_list(value: Any) -> str:
    if isinstance(value, str):
        return (
            f"must be a list, not {describe(value)}; write [{value}], or put `- ` before each name on a line of its own"
        )
    if isinstance(value, Mapping):
        return "must be a list, not a mapping; put `- ` before each name"
    return f"must be a list, not {describe(value)}"
