"""The steps of access paths: attributes, items, parameters, closure variables."""

from __future__ import annotations

from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, ClassVar

from thunder_core.guards.plain import literal
from thunder_core.guards.source import Args, ConstantSource, Kwargs, Names, Source, dictionary_expression


@dataclass(frozen=True, slots=True)
class StepSource(Source):
    """A path that goes one step further than ``base``."""

    base: Source

    @property
    def parent(self) -> Source:
        return self.base


@dataclass(frozen=True, slots=True)
class AttributeSource(StepSource):
    """``base.name``, by ordinary attribute lookup (class attributes, slots, ``__getattr__``)."""

    name: str

    def describe(self) -> str:
        return f"{self.base.describe()}.{self.name}"

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return getattr(self.base.read(args, kwargs), self.name)

    def step(self, base: str, names: Names) -> str:
        return f"{base}.{self.name}"


def module_variable(module: ModuleType, name: str) -> Source:
    """The path to a variable of a Python module, which entries hold."""
    return AttributeSource(ConstantSource(module, module.__name__.replace(".", "_")), name)


@dataclass(frozen=True, slots=True)
class ReferentSource(StepSource):
    """``base()``, what a weak reference refers to or a function tells."""

    def describe(self) -> str:
        return f"{self.base.describe()}()"

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return self.base.read(args, kwargs)()

    def step(self, base: str, names: Names) -> str:
        return f"{base}()"


@dataclass(frozen=True, slots=True)
class ContextSource(StepSource):
    """The value of the context variable ``base``; None when it has none."""

    def describe(self) -> str:
        return f"{self.base.describe()}.get(None)"

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return self.base.read(args, kwargs).get(None)

    def step(self, base: str, names: Names) -> str:
        return f"{base}.get(None)"


@dataclass(frozen=True, slots=True)
class ClosureSource(StepSource):
    """The variable ``name`` that the function ``base`` closes over, its cell number ``index``."""

    index: int
    name: str

    def describe(self) -> str:
        return self.name

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        function: FunctionType = self.base.read(args, kwargs)
        closure = function.__closure__
        if closure is None:
            raise AttributeError(f"{self.base.describe()} has no closure")
        return closure[self.index].cell_contents

    def step(self, base: str, names: Names) -> str:
        return f"{base}.__closure__[{self.index}].cell_contents"


@dataclass(frozen=True, slots=True)
class ItemSource(StepSource):
    """``base[key]``."""

    key: Any

    def describe(self) -> str:
        return f"{self.base.describe()}[{self.key!r}]"

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return self.base.read(args, kwargs)[self.key]

    def step(self, base: str, names: Names) -> str:
        key = literal(self.key)
        return f"{base}[{key if key is not None else names.constant(self.key, 'key')}]"


@dataclass(frozen=True, slots=True)
class StoredItemSource(StepSource):
    """What a dictionary holds under ``key``, where its class answers ``base[key]`` in its own way."""

    key: Any

    def describe(self) -> str:
        return f"{self.base.describe()}[{self.key!r}]"

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return dict.__getitem__(self.base.read(args, kwargs), self.key)

    def step(self, base: str, names: Names) -> str:
        key = literal(self.key)
        return f"dict.__getitem__({base}, {key if key is not None else names.constant(self.key, 'key')})"


def item_source(container: Any, source: Source, key: Any) -> Source:
    """The path to an entry of a container found at ``source``."""
    if isinstance(container, dict) and type(container).__getitem__ is not dict.__getitem__:
        return StoredItemSource(source, key)
    return ItemSource(source, key)


@dataclass(frozen=True, slots=True)
class DictionarySource(StepSource):
    """An entry of one of the dictionaries that an object keeps its attributes in: ``base.<dictionary>[name]``.

    Attributes:
        dictionary: the attribute of the object that holds the dictionary.
    """

    name: str
    dictionary: ClassVar[str] = ""

    def describe(self) -> str:
        base = self.base.describe()
        return f"{base}.{self.name}" if self.name.isidentifier() else f"{base}[{self.name}]"

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return getattr(self.base.read(args, kwargs), self.dictionary)[self.name]

    def step(self, base: str, names: Names) -> str:
        return f"{dictionary_expression(base, self.dictionary, names)}[{self.name!r}]"


class InstanceAttributeSource(DictionarySource):
    """An attribute in the object's own ``__dict__``."""

    __slots__ = ()
    dictionary: ClassVar[str] = "__dict__"


class ParameterSource(DictionarySource):
    """A parameter of a module."""

    __slots__ = ()
    dictionary: ClassVar[str] = "_parameters"


class BufferSource(DictionarySource):
    """A buffer of a module."""

    __slots__ = ()
    dictionary: ClassVar[str] = "_buffers"


class SubmoduleSource(DictionarySource):
    """A child of a module."""

    __slots__ = ()
    dictionary: ClassVar[str] = "_modules"
