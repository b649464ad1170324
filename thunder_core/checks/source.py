"""Sources: access paths to Python objects, from the arguments of a call or from an object that a cache entry holds.

A path is a root, such as `ArgumentSource`, followed by steps, such as `AttributeSource`. A class defines Python for its
last step, `Source.step`. Prologues and the statements that repeat writes contain this code; `Source.read` evaluates it.
"""

from __future__ import annotations

import enum
import functools
import keyword
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, ModuleType
from typing import Any

from thunder_core.checks.plain import identical, is_plain, key_text, literal
from thunder_core.checks.stored_content import delete_item, is_overridden, store_item, stored_item

Args = Sequence[Any]
Kwargs = Mapping[str, Any]

PATH_ERRORS = (AttributeError, LookupError, TypeError, ValueError, RuntimeError, ReferenceError)
"""The exceptions of a read whose path does not exist in this call, or leads through objects of other types."""


class Names(ABC):
    """The names that Python code can use for objects, in the program that will contain the code."""

    @abstractmethod
    def constant(self, value: Any, hint: str) -> str:
        """A global name that holds ``value``; ``hint`` resembles it where the program is shown to users."""

    def bound(self, source: Source) -> str | None:
        """The local variable that holds the object at a path; None if there is none."""
        return None

    def bind(self, source: Source) -> object:
        """Assign the object at a path to a local variable, in programs that consist of statements."""
        return None

    def dictionary(self, base: str, attribute: str) -> str:
        """Python for ``base.attribute``, one of the dictionaries that store the attributes of an object."""
        return f"{base}.{attribute}"


class Constants(Names):
    """The names of constants in one expression.

    Attributes:
        namespace: the constants by name.
    """

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {}

    def constant(self, value: Any, hint: str = "") -> str:
        name = f"constant_{len(self.namespace)}"
        self.namespace[name] = value
        return name


@functools.lru_cache(maxsize=4096)
def _compiled(step: str) -> CodeType:
    return compile(step, __file__, "eval")  # in a file of Thunder, so that the frame is not observed


@dataclass(frozen=True, slots=True)
class Source:
    """The access path to a Python object."""

    @property
    def parent(self) -> Source | None:
        """The path without its last step; None for a root."""
        return None

    @property
    def root(self) -> Source:
        """The first part of the path."""
        source: Source = self
        while (parent := source.parent) is not None:
            source = parent
        return source

    def describe(self) -> str:
        """The path as a user would write it: ``module.layers[0].weight``."""
        raise NotImplementedError

    def step(self, base: str, names: Names) -> str:
        """Python for the last step, where ``base`` is Python for the path before it; of ``args`` and ``kwargs`` for a
        root.
        """
        raise NotImplementedError

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        """The object to which the path leads in a call with these arguments.

        Raises:
            one of PATH_ERRORS: the path does not exist in this call.
        """
        parent, names = self.parent, Constants()
        base = None if parent is None else parent.read(args, kwargs)
        code = _compiled(self.step("base", names))
        return eval(code, names.namespace, {"base": base, "args": args, "kwargs": kwargs})

    def expression(self, names: Names) -> str:
        """Python for the whole path, from the longest part of it that has a variable."""
        return names.bound(self) or self._whole(names)

    def assignment(self, names: Names, value: str) -> str:
        """A Python statement that puts the value of an expression where the path leads."""
        return f"{self._whole(names)} = {value}"

    def deletion(self, names: Names) -> str:
        """A Python statement that removes the last step of the path."""
        return f"del {self._whole(names)}"

    def _whole(self, names: Names) -> str:
        return self.step("" if self.parent is None else self.parent.expression(names), names)

    def __str__(self) -> str:
        return self.describe()


# ---------------------------------------------------------------- roots


@dataclass(frozen=True, slots=True)
class ArgumentSource(Source):
    """The positional argument ``args[index]``; messages contain the name of the parameter."""

    index: int
    name: str = field(default="", compare=False)

    def describe(self) -> str:
        return self.name or f"args[{self.index}]"

    def step(self, base: str, names: Names) -> str:
        return f"args[{self.index}]"


@dataclass(frozen=True, slots=True)
class KeywordSource(Source):
    """The keyword argument ``kwargs[name]``."""

    name: str

    def describe(self) -> str:
        return self.name

    def step(self, base: str, names: Names) -> str:
        return f"kwargs[{self.name!r}]"


def is_argument(source: Source) -> bool:
    """Whether a path begins at an argument."""
    return isinstance(source.root, ArgumentSource | KeywordSource)


@dataclass(frozen=True, slots=True, eq=False)
class HeldSource(Source):
    """An object to which the cache entry has a strong reference."""

    value: Any = field(repr=False)
    label: str = "constant"

    def describe(self) -> str:
        return self.label

    def step(self, base: str, names: Names) -> str:
        return names.constant(self.value, self.label)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeldSource) and type(other) is type(self) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class FunctionSource(HeldSource):
    """The function, callable object or module that is compiled."""

    __slots__ = ()


class ConstantSource(HeldSource):
    """Another object: a class, a Python module, a tensor without a path."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class GlobalSource(Source):
    """The global variable ``name`` of the Python module ``module``, whose dictionary is ``namespace``."""

    module: str
    name: str
    namespace: dict[str, Any] = field(compare=False, repr=False)

    def describe(self) -> str:
        return self.name

    def step(self, base: str, names: Names) -> str:
        hint = "globals_of_" + self.module.rpartition(".")[2]
        return f"{names.constant(self.namespace, hint)}[{self.name!r}]"


def global_source(namespace: dict[str, Any], name: str) -> GlobalSource:
    """The path to a global variable in the dictionary of a Python module."""
    return GlobalSource(str(namespace.get("__name__", "")), name, namespace)


@dataclass(frozen=True, slots=True)
class EnvironmentSource(Source):
    """The environment variable ``name``; None if it is not set."""

    name: str

    def describe(self) -> str:
        return f"os.environ[{self.name!r}]"

    def step(self, base: str, names: Names) -> str:
        return f"{names.constant(os.environ, 'environ')}.get({self.name!r})"

    def assignment(self, names: Names, value: str) -> str:
        return f"{names.constant(os.environ, 'environ')}[{self.name!r}] = {value}"

    def deletion(self, names: Names) -> str:
        return f"del {names.constant(os.environ, 'environ')}[{self.name!r}]"


@dataclass(frozen=True, slots=True, eq=False)
class CreatedSource(Source):
    """``create(*parts)``, a new object in each call; messages contain the label.

    Attributes:
        parts: paths to the arguments. A `CreatedSource` that is a part of several others is created once.
    """

    create: Callable[..., Any] = field(repr=False)
    parts: tuple[Source, ...]
    label: str

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def describe(self) -> str:
        return self.label

    def step(self, base: str, names: Names) -> str:
        for part in self.parts:
            if isinstance(part, CreatedSource):
                names.bind(part)
        parts = ", ".join([part.expression(names) for part in self.parts])
        return f"{names.constant(self.create, 'make_' + self.label)}({parts})"


# ---------------------------------------------------------------- steps


@dataclass(frozen=True, slots=True)
class StepSource(Source):
    """A path that extends ``base`` by one step."""

    base: Source

    @property
    def parent(self) -> Source:
        return self.base


@dataclass(frozen=True, slots=True)
class AttributeSource(StepSource):
    """``base.name``, by ordinary attribute lookup: class attributes, slots, ``__getattr__``."""

    name: str

    def describe(self) -> str:
        return f"{self.base.describe()}.{self.name}"

    def step(self, base: str, names: Names) -> str:
        return f"{base}.{self.name}" if _follows_dot(self.name) else f"getattr({base}, {self.name!r})"

    def assignment(self, names: Names, value: str) -> str:
        if _follows_dot(self.name):
            return StepSource.assignment(self, names, value)
        return f"setattr({self.base.expression(names)}, {self.name!r}, {value})"

    def deletion(self, names: Names) -> str:
        if _follows_dot(self.name):
            return StepSource.deletion(self, names)
        return f"delattr({self.base.expression(names)}, {self.name!r})"


@dataclass(frozen=True, slots=True)
class DirectAttributeSource(AttributeSource):
    """An attribute in a slot or of a class, which is assigned without a ``__setattr__`` of the user's.

    Attributes:
        owner: ``"object"`` or, for attributes of classes, ``"type"``, whose ``__setattr__`` assigns it.
    """

    owner: str = "object"

    def assignment(self, names: Names, value: str) -> str:
        return f"{self.owner}.__setattr__({self.base.expression(names)}, {self.name!r}, {value})"

    def deletion(self, names: Names) -> str:
        return f"{self.owner}.__delattr__({self.base.expression(names)}, {self.name!r})"


@dataclass(frozen=True, slots=True)
class SlotSource(AttributeSource):
    """An attribute in a slot that attribute lookup does not reach, as a property of a subclass has its name.

    Attributes:
        slot: the descriptor of the slot.
    """

    slot: Any = field(repr=False)

    def step(self, base: str, names: Names) -> str:
        return f"{names.constant(self.slot, self.name)}.__get__({base})"

    def assignment(self, names: Names, value: str) -> str:
        return f"{names.constant(self.slot, self.name)}.__set__({self.base.expression(names)}, {value})"

    def deletion(self, names: Names) -> str:
        return f"{names.constant(self.slot, self.name)}.__delete__({self.base.expression(names)})"


def _follows_dot(name: str) -> bool:
    """Whether Python source can use a name after a dot. Python normalizes identifiers that are not ASCII."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def module_variable(module: ModuleType, name: str) -> Source:
    """The path to a variable of a Python module, to which the cache entry has a reference."""
    return AttributeSource(ConstantSource(module, module.__name__.replace(".", "_")), name)


@dataclass(frozen=True, slots=True)
class StoredAttributeSource(StepSource):
    """``base.<dictionary>[name]``: an attribute as it is stored in the object, without attribute lookup.

    Attributes:
        dictionary: ``__dict__``, or one of those in which modules store parameters, buffers and submodules.
    """

    name: str
    dictionary: str = "__dict__"

    def describe(self) -> str:
        base = self.base.describe()
        return f"{base}.{self.name}" if self.name.isidentifier() else f"{base}[{self.name}]"

    def step(self, base: str, names: Names) -> str:
        return f"{names.dictionary(base, self.dictionary)}[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class NamespaceSource(StepSource):
    """``base.<dictionary>``: all of these attributes. Messages contain the path of the object."""

    dictionary: str = "__dict__"

    def describe(self) -> str:
        return self.base.describe()

    def step(self, base: str, names: Names) -> str:
        return names.dictionary(base, self.dictionary)


@dataclass(frozen=True, slots=True)
class KeySource(StepSource):
    """The item of a container under ``key``. Keys that are not plain values (tensors) are compared by identity."""

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

    def step(self, base: str, names: Names) -> str:
        return f"{base}[{self._key(names)}]"


@dataclass(frozen=True, slots=True, eq=False)
class StoredItemSource(KeySource):
    """The item that a container stores under ``key``, where its class overrides ``base[key]``."""

    def step(self, base: str, names: Names) -> str:
        return f"{names.constant(stored_item, 'stored_item')}({base}, {self._key(names)})"

    def assignment(self, names: Names, value: str) -> str:
        store = names.constant(store_item, "store_item")
        return f"{store}({self.base.expression(names)}, {self._key(names)}, {value})"

    def deletion(self, names: Names) -> str:
        return f"{names.constant(delete_item, 'delete_item')}({self.base.expression(names)}, {self._key(names)})"


def item_source(container: Any, source: Source, key: Any) -> Source:
    """The path to the item ``key`` of the container at ``source``."""
    return StoredItemSource(source, key) if is_overridden(container) else ItemSource(source, key)


@dataclass(frozen=True, slots=True)
class ClosureSource(StepSource):
    """The variable ``name`` that the function ``base`` closes over, its cell number ``index``."""

    index: int
    name: str

    def describe(self) -> str:
        return self.name

    def step(self, base: str, names: Names) -> str:
        return f"{base}.__closure__[{self.index}].cell_contents"


@dataclass(frozen=True, slots=True)
class ResultSource(StepSource):
    """``base()``: the result of a function, or the referent of a weak reference."""

    def describe(self) -> str:
        return f"{self.base.describe()}()"

    def step(self, base: str, names: Names) -> str:
        return f"{base}()"


@dataclass(frozen=True, slots=True)
class ProxySource(StepSource):
    """The object behind a `weakref.proxy`, to which that has no other path than a bound method."""

    def describe(self) -> str:
        return self.base.describe()

    def step(self, base: str, names: Names) -> str:
        return f"{base}.__init__.__self__"


class Unset(enum.Enum):
    """The value of a context variable that is not set; a variable can be set to None."""

    UNSET = "unset"


@dataclass(frozen=True, slots=True)
class ContextSource(StepSource):
    """The value of the context variable ``base``, or `Unset.UNSET`.

    Within one program, Python sets a context variable or resets it to an earlier value, so there is no `deletion`.
    """

    def describe(self) -> str:
        return f"{self.base.describe()}.get()"

    def step(self, base: str, names: Names) -> str:
        return f"{base}.get({names.constant(Unset.UNSET, 'unset')})"

    def assignment(self, names: Names, value: str) -> str:
        return f"{self.base.expression(names)}.set({value})"
