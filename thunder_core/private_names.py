"""Private names of a library: rows that describe them, and placeholders for those that the installed version lacks.

`thunder_core/pytorch_internals.py` has the table of the core. A package of a plugin has a module of the same kind::

    ROWS = (Name("torch._foreach_copy_", "copies of many inputs at once"),)
    NAMES = PrivateNames(__name__, ROWS)

    def __getattr__(name: str) -> Any:
        return NAMES.bind(name)

and its other files import from there: ``from my_plugin.pytorch_internals import foreach_copy_``. A name is looked up
once, when it is first imported. An import never fails: what the installed version lacks is a placeholder, which raises
`PrivateNameError` where it is used. ``thunder doctor`` lists what is missing, of the tables that plugins give it:
``CheckSpec("private names of PyTorch", "my_plugin.pytorch_internals:NAMES")``.
"""

from __future__ import annotations

import enum
import importlib
import importlib.metadata
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from thunder_core.errors import PrivateNameError

_NUMBER: Final = re.compile(r"\d+")


class Kind(enum.Enum):
    """The kind of object that a table returns for a row."""

    VALUE = "value"
    """The object at the path."""
    ATTRIBUTE = "attribute"
    """A function that reads the attribute, the last part of the path, of an object."""
    ENTRY_POINT = "entry point"
    """An `EntryPoint`, owner and name: an attribute that Thunder replaces during recording."""
    NAME_ONLY = "name only"
    """Nothing: other files contain the last part of the path as text, or as an attribute that they set or override."""


class EntryPoint(NamedTuple):
    """An attribute that is replaced for a time.

    Attributes:
        owner: the module or class.
        name: of the attribute, which ``vars(owner)`` has.
    """

    owner: Any
    name: str

    @property
    def value(self) -> Any:
        """The current value."""
        return vars(self.owner)[self.name]


@dataclass(frozen=True, slots=True)
class Name:
    """A private name.

    Attributes:
        path: dotted path; its first part is the library's top module.
        feature: the feature of Thunder that needs it, and is refused if it is missing.
        name: the name that modules import; by default the last part of the path without leading underscores.
        kind: the kind of object that they get.
        otherwise: paths of the same object in versions without ``path``.
        since: the first version for which Thunder uses it; empty for all that are supported.
        until: the first version for which it does not; empty if there is none.
        only_with: for names that some builds lack: the path of a value that is false or None in these, such as
            ``torch.backends.cuda.is_built()``. Empty if all builds have it.
        example: for attributes that only instances have: the path of an instance, such as ``torch.nn.Module()``. Empty
            where the class has the attribute, or where an instance takes more to make; then it is read unchecked.
    """

    path: str
    feature: str
    name: str = ""
    kind: Kind = Kind.VALUE
    otherwise: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    only_with: str = ""
    example: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.path.rpartition(".")[2].lstrip("_"))

    @property
    def library(self) -> str:
        """The top module."""
        return self.path.partition(".")[0]

    @property
    def expected(self) -> bool:
        """Whether Thunder uses the path in the installed version."""
        return not self.why_unused()

    def why_unused(self) -> str:
        """Why Thunder does not use the path in the installed version, or in this build of it; empty if it does."""
        installed = version_of(self.library)
        version = release(installed)
        if (self.until and version >= release(self.until)) or (self.since and version < release(self.since)):
            return f"not used with version {installed}"
        if self.only_with and not (value := _value(self, self.only_with)):
            return f"not in this build, {installed}: {self.only_with} is {value}"
        return ""


class Missing(NamedTuple):
    """A row that the installed version does not fulfil.

    Attributes:
        row: the row.
        reason: why the path cannot be used, such as the missing attribute.
    """

    row: Name
    reason: str

    def error(self) -> PrivateNameError:
        """The refusal of the feature."""
        library = "PyTorch" if self.row.library == "torch" else self.row.library
        return PrivateNameError(
            f"{self.row.feature}: requires {self.row.path}, which {library} {version_of(self.row.library)} lacks "
            f"({self.reason})",
            advice=(
                f"install a version of {library} that Thunder is tested with; `thunder doctor` lists them",
                "avoid the feature that needs it; `thunder doctor` lists everything that is missing",
            ),
        )


class PrivateNames:
    """A table of private names, and the module that offers them.

    Args:
        module: its ``__name__``.
        rows: the table; names are unique.
    """

    def __init__(self, module: str, rows: tuple[Name, ...]) -> None:
        self.module = module
        self.rows: Mapping[str, Name] = {row.name: row for row in rows}
        if len(self.rows) != len(rows):
            names = [row.name for row in rows]
            raise ValueError(f"{module} has two rows for {next(name for name in names if names.count(name) > 1)}")

    def bind(self, name: str) -> Any:
        """Set the attribute ``name`` of the module to the object of its row, or to a placeholder, and return it.

        Raises:
            AttributeError: there is no such row.
        """
        row = self.rows.get(name)
        if row is None:
            raise AttributeError(f"module {self.module!r} has no attribute {name!r}")
        found = resolve(row)
        value = _placeholder(found) if isinstance(found, Missing) else found
        setattr(sys.modules[self.module], name, value)
        return value

    def missing(self, *, except_below: str = "") -> list[Missing]:
        """The rows that the installed version should fulfil and does not. This imports the modules that they name.

        Args:
            except_below: a module whose names are left out, since it takes long to import.
        """
        rows = [row for row in self.rows.values() if not (except_below and row.path.startswith(f"{except_below}."))]
        return [found for row in rows if isinstance(found := resolve(row), Missing) and row.expected]


def is_missing(value: Any) -> bool:
    """Whether ``value`` is a placeholder."""
    return isinstance(value, _Refusing)


def resolve(row: Name) -> Any:
    """The object of the row in the installed version, or `Missing`."""
    missing = None
    for path in (row.path, *row.otherwise):
        found = _RESOLVE[row.kind](row, path)
        if not isinstance(found, Missing):
            return found
        missing = missing or found
    return missing


def version_of(library: str) -> str:
    """The version of the library with this top module; empty if it does not say."""
    version = getattr(sys.modules.get(library), "__version__", None)
    if version is None:
        try:
            version = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            version = ""
    return str(version)


def release(version: str) -> tuple[int, int]:
    """Major and minor version: ``(2, 15)`` of ``2.15.0+cu132``."""
    major, minor = _NUMBER.findall(f"{version}.0.0")[:2]
    return int(major), int(minor)


def _value(row: Name, path: str) -> Any:
    """The object at ``path``, importing modules as needed; the result of a call where a part ends with ``()``."""
    top, *parts = path.replace("()", ".()").split(".")
    try:
        value: Any = importlib.import_module(top)
    except ImportError as error:
        return Missing(row, f"{type(error).__name__}: {error}")
    reached = top
    for index, part in enumerate(parts, 1):
        inner = _child(value, reached, part)
        if isinstance(inner, _Absent):
            return Missing(row, inner.reason)
        value, reached = inner, f"{reached}.{part}"
        if index < len(parts) and not hasattr(value, parts[index]):  # a package may have a function of a module's name
            value = sys.modules.get(reached, value)
    return value


@dataclass(frozen=True, slots=True)
class _Absent:
    reason: str


def _child(value: Any, reached: str, part: str) -> Any:
    if part == "()":
        return value()
    try:
        return getattr(value, part)
    except AttributeError:
        pass
    if not hasattr(value, "__path__"):
        return _Absent(f"{reached} has no attribute {part}")
    try:
        return importlib.import_module(f"{reached}.{part}")
    except ImportError as error:
        return _Absent(f"{type(error).__name__}: {error}")


def _attribute(row: Name, path: str) -> Any:
    """A reader of the attribute, which the class or the example has."""
    owner_path, _, attribute = path.rpartition(".")
    owner = _value(row, owner_path)
    if not isinstance(owner, Missing) and row.example and not hasattr(owner, attribute):
        owner = _value(row, row.example)
    if isinstance(owner, Missing):
        return owner
    if row.example and not hasattr(owner, attribute):
        return Missing(row, f"{row.example} has no attribute {attribute}")
    return operator.attrgetter(attribute)


def _entry_point(row: Name, path: str) -> Any:
    owner_path, _, name = path.rpartition(".")
    owner = _value(row, owner_path)
    if isinstance(owner, Missing):
        return owner
    return EntryPoint(owner, name) if name in vars(owner) else Missing(row, f"{owner_path} has no attribute {name}")


_RESOLVE: Final[dict[Kind, Callable[[Name, str], Any]]] = {
    Kind.VALUE: _value,
    Kind.ATTRIBUTE: _attribute,
    Kind.ENTRY_POINT: _entry_point,
    Kind.NAME_ONLY: _attribute,
}


class _Refusing(type):
    """The class of placeholders: any use raises, except for what Python itself does with an object at import.

    A placeholder is a class, so that modules can derive from it, name it in a union or catch it. Classes that derive
    from it cannot be instantiated.
    """

    def _refuse(cls) -> PrivateNameError:
        missing: Missing = cls.missing  # set below, inherited by classes that derive from a placeholder
        return missing.error()

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise cls._refuse()

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise cls._refuse()

    def __iter__(cls) -> Iterator[Any]:
        raise cls._refuse()

    def __contains__(cls, item: Any) -> bool:
        raise cls._refuse()

    def __getitem__(cls, item: Any) -> Any:
        raise cls._refuse()

    def __enter__(cls) -> Any:
        raise cls._refuse()

    def __exit__(cls, *error: Any) -> None:
        raise cls._refuse()

    def __instancecheck__(cls, instance: Any) -> bool:
        raise cls._refuse()

    def __subclasscheck__(cls, subclass: type) -> bool:
        raise cls._refuse()


def _placeholder(missing: Missing) -> Any:
    # an exception, so that `except` accepts it; none is ever raised
    return _Refusing(missing.row.name, (Exception,), {"missing": missing, "__module__": __name__})
