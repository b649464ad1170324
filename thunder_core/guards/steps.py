"""The steps of access paths: attributes, items, parameters, closure variables."""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, ClassVar

from thunder_core.guards.plain import identical, is_plain, key_text, literal
from thunder_core.guards.source import Args, ConstantSource, Kwargs, Names, Source, dictionary_expression
from thunder_core.guards.stored_content import delete_item, is_overridden, store_item, stored_item


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
        return f"{base}.{self.name}" if _is_plain_name(self.name) else f"getattr({base}, {self.name!r})"

    def assignment(self, names: Names, value: str) -> str:
        if _is_plain_name(self.name):
            return StepSource.assignment(self, names, value)
        return f"setattr({self.base.expression(names)}, {self.name!r}, {value})"

    def deletion(self, names: Names) -> str:
        if _is_plain_name(self.name):
            return StepSource.deletion(self, names)
        return f"delattr({self.base.expression(names)}, {self.name!r})"


def _is_plain_name(name: str) -> bool:
    """True for an attribute that Python source can name; Python normalizes other letters than those of ASCII."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


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

    def assignment(self, names: Names, value: str) -> str:
        return f"{self.base.expression(names)}.set({value})"


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
class KeySource(StepSource):
    """What a container holds under ``key``. Keys that are no plain values, as tensors, are compared by identity."""

    key: Any

    def describe(self) -> str:
        return f"{self.base.describe()}[{key_text(self.key)}]"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return False
        same = self.key is other.key or (is_plain(self.key) and identical(other.key, self.key))
        return same and self.base == other.base

    def __hash__(self) -> int:
        return hash((self.base, self.key))

    def _key(self, names: Names) -> str:
        return literal(self.key) or names.constant(self.key, "key")


@dataclass(frozen=True, slots=True, eq=False)
class ItemSource(KeySource):
    """``base[key]``."""

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return self.base.read(args, kwargs)[self.key]

    def step(self, base: str, names: Names) -> str:
        return f"{base}[{self._key(names)}]"


@dataclass(frozen=True, slots=True, eq=False)
class StoredItemSource(KeySource):
    """What a container holds under ``key``, where its class answers ``base[key]`` in its own way."""

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return stored_item(self.base.read(args, kwargs), self.key)

    def step(self, base: str, names: Names) -> str:
        return f"{names.constant(stored_item, 'stored_item')}({base}, {self._key(names)})"

    def assignment(self, names: Names, value: str) -> str:
        store = names.constant(store_item, "store_item")
        return f"{store}({self.base.expression(names)}, {self._key(names)}, {value})"

    def deletion(self, names: Names) -> str:
        return f"{names.constant(delete_item, 'delete_item')}({self.base.expression(names)}, {self._key(names)})"


def item_source(container: Any, source: Source, key: Any) -> Source:
    """The path to an entry of a container found at ``source``."""
    return StoredItemSource(source, key) if is_overridden(container) else ItemSource(source, key)


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


@dataclass(frozen=True, slots=True)
class NamespaceSource(StepSource):
    """One of the dictionaries that an object keeps its attributes in, which messages call by the object's path."""

    dictionary: str = "__dict__"

    def describe(self) -> str:
        return self.base.describe()

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return getattr(self.base.read(args, kwargs), self.dictionary)

    def step(self, base: str, names: Names) -> str:
        return dictionary_expression(base, self.dictionary, names)
