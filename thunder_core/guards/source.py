"""Sources: access paths from what a call is given to a Python object.

A source can be read directly (``read``) and can print itself as Python (``expression``, ``assignment``, ``deletion``);
both mean the same object. ``describe`` is for people.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Args = Sequence[Any]
Kwargs = Mapping[str, Any]

# What reading a path may raise when a part of it is gone.
PATH_ERRORS = (AttributeError, LookupError, TypeError, ValueError, RuntimeError)


class Names(Protocol):
    """What printing a source needs from the program it is printed into."""

    def constant(self, value: Any, hint: str) -> str:
        """A global name of the program that holds ``value``."""
        ...

    def bound(self, source: Source) -> str | None:
        """The local variable that already holds the source's object, if any."""
        ...


def dictionary_expression(base: str, attribute: str, names: Names) -> str:
    """Python for ``base.attribute``, a dictionary; programs that ask for it many times keep it in a variable."""
    variable = getattr(names, "dictionary", None)
    return f"{base}.{attribute}" if variable is None else str(variable(base, attribute))


@dataclass(frozen=True, slots=True)
class Source:
    """Root of the family."""

    @property
    def parent(self) -> Source | None:
        """The path without its last step; None for a root."""
        return None

    @property
    def root(self) -> Source:
        """The first step of the path."""
        source: Source = self
        while (parent := source.parent) is not None:
            source = parent
        return source

    def describe(self) -> str:
        """The path as the user would write it."""
        raise NotImplementedError

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        """The object at the end of the path, now.

        Raises:
            one of PATH_ERRORS: when a part of the path is missing.
        """
        raise NotImplementedError

    def step(self, base: str, names: Names) -> str:
        """Python for the last step, given Python for the rest of the path."""
        raise NotImplementedError

    def expression(self, names: Names) -> str:
        """Python for the whole path, from the nearest part that has a variable."""
        variable = names.bound(self)
        if variable is not None:
            return variable
        parent = self.parent
        return self.step(parent.expression(names) if parent is not None else "", names)

    def assignment(self, names: Names, value: str) -> str:
        """A Python statement that makes the path lead to the expression ``value``."""
        parent = self.parent
        return f"{self.step(parent.expression(names) if parent is not None else '', names)} = {value}"

    def deletion(self, names: Names) -> str:
        """A Python statement that removes the last step of the path."""
        parent = self.parent
        return f"del {self.step(parent.expression(names) if parent is not None else '', names)}"

    def __str__(self) -> str:
        return self.describe()


@dataclass(frozen=True, slots=True)
class ArgumentSource(Source):
    """The positional argument ``args[index]``; ``name`` is the parameter's, for messages."""

    index: int
    name: str = field(default="", compare=False)

    def describe(self) -> str:
        return self.name or f"args[{self.index}]"

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return args[self.index]

    def step(self, base: str, names: Names) -> str:
        return f"args[{self.index}]"


@dataclass(frozen=True, slots=True)
class KeywordSource(Source):
    """The keyword argument ``kwargs[name]``."""

    name: str

    def describe(self) -> str:
        return self.name

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return kwargs[self.name]

    def step(self, base: str, names: Names) -> str:
        return f"kwargs[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class FunctionSource(Source):
    """What is compiled: the user's function, callable object or root module. Held strongly, as its owner does."""

    function: Any = field(repr=False)
    label: str = field(default="function", compare=False)

    def describe(self) -> str:
        return self.label

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return self.function

    def step(self, base: str, names: Names) -> str:
        return names.constant(self.function, self.label)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSource) and self.function is other.function

    def __hash__(self) -> int:
        return id(self.function)


@dataclass(frozen=True, slots=True)
class ConstantSource(Source):
    """An object that the entry holds strongly: a class, a Python module, a tensor of unknown origin."""

    value: Any = field(repr=False)
    label: str = field(default="constant", compare=False)

    def describe(self) -> str:
        return self.label

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return self.value

    def step(self, base: str, names: Names) -> str:
        return names.constant(self.value, self.label)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstantSource) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@dataclass(frozen=True, slots=True)
class GlobalSource(Source):
    """The global variable ``name`` of the Python module ``module``, whose dictionary is ``namespace``."""

    module: str
    name: str
    namespace: dict[str, Any] = field(compare=False, repr=False)

    def describe(self) -> str:
        return self.name

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return self.namespace[self.name]

    def step(self, base: str, names: Names) -> str:
        hint = "globals_of_" + self.module.rpartition(".")[2]
        return f"{names.constant(self.namespace, hint)}[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class EnvironmentSource(Source):
    """The environment variable ``name``; None when it is not set."""

    name: str

    def describe(self) -> str:
        return f"os.environ[{self.name!r}]"

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return os.environ.get(self.name)

    def step(self, base: str, names: Names) -> str:
        return f"{names.constant(os.environ, 'environ')}.get({self.name!r})"

    def assignment(self, names: Names, value: str) -> str:
        return f"{names.constant(os.environ, 'environ')}[{self.name!r}] = {value}"

    def deletion(self, names: Names) -> str:
        return f"del {names.constant(os.environ, 'environ')}[{self.name!r}]"


@dataclass(frozen=True, slots=True, eq=False)
class CreatedSource(Source):
    """``make(*parts)``, one object in each call; ``label`` is for messages.

    Attributes:
        parts: where the arguments are found. An object that is part of several is made once.
    """

    make: Callable[..., Any] = field(repr=False)
    parts: tuple[Source, ...]
    label: str

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def describe(self) -> str:
        return self.label

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return self.make(*[part.read(args, kwargs) for part in self.parts])

    def step(self, base: str, names: Names) -> str:
        bind: Callable[[Source], Any] | None = getattr(names, "bind", None)
        for part in self.parts:
            if bind is not None and isinstance(part, CreatedSource):
                bind(part)
        parts = ", ".join([part.expression(names) for part in self.parts])
        return f"{names.constant(self.make, 'make_' + self.label)}({parts})"


def is_argument(source: Source) -> bool:
    """True for a path that begins at an argument."""
    return isinstance(source.root, ArgumentSource | KeywordSource)
