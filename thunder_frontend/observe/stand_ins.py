"""Stand-ins: objects that replace values of the user's variables, attributes and items while a program is recorded.

Functions implemented in C that recording intercepts have stand-ins where the program refers to them by other names
(``log = print``). Recording can replace the code of a Python function, but a function implemented in C has none. If a
variable, attribute or item cannot hold another object, it still holds the function, and a call of it is refused.

Numbers that vary between calls have symbols as stand-ins, from the start of the observation. If a variable, attribute
or item cannot hold a symbol, its number is a constant.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType
from typing import Any

import torch

from thunder_core.checks.source import (
    PATH_ERRORS,
    Args,
    ArgumentSource,
    AttributeSource,
    ClosureSource,
    GlobalSource,
    KeySource,
    KeywordSource,
    Kwargs,
    SlotSource,
    Source,
    StoredAttributeSource,
)
from thunder_core.checks.stored_attributes import reaches_slot, slot_item
from thunder_core.checks.stored_content import store_item, stored_item
from thunder_frontend.observe.contents import put_attribute

_turn = threading.Condition()
_recording: Counter[int] = Counter()
"""The number of recordings by thread."""
_placing: Counter[int] = Counter()
"""The number of recordings with stand-ins in the user's objects, by thread; at most one thread has any."""


@contextmanager
def recording_turn() -> Iterator[None]:
    """The context of one recording. It waits while another thread has stand-ins in the user's objects."""
    thread = threading.get_ident()
    with _turn:
        _turn.wait_for(lambda: not _placing or thread in _placing)
        _recording[thread] += 1
    try:
        yield
    finally:
        with _turn:
            _leave(_recording, thread)
            _turn.notify_all()


def _leave(count: Counter[int], thread: int) -> None:
    count[thread] -= 1
    if not count[thread]:
        del count[thread]


NUMBER_CLASSES: dict[type, str] = {}
"""The classes of symbolic numbers, with the names of the classes of the numbers that they replace."""
CONVERSIONS: dict[type, type] = {}
"""The classes that code calls in place of ``int`` and ``float``, with these: global variables that are not guarded."""
FUNCTIONS_OF_C = frozenset({BuiltinFunctionType, MethodDescriptorType})
StandIn = Callable[[Any], Any]
"""Returns the stand-in of a function that recording intercepts; None for other functions."""


def is_conversion(value: Any) -> bool:
    """Whether a value is a class that code calls in place of ``int`` or ``float``."""
    return issubclass(type(value), type) and any(value is kind for kind in CONVERSIONS)


class StandIns:
    """The stand-ins of one recording in objects of the user.

    Attributes:
        args, kwargs: the arguments of the call, with stand-ins.
        numbers: the paths to symbols.
        lost_number: whether a number was read at such a path: another thread has stored it over the symbol.
        overwritten: the ids of stand-ins that the program has overwritten, even with the original.

    Args:
        holder: returns the object that was read from a path.
    """

    def __init__(
        self, find: StandIn | None, args: tuple[Any, ...], kwargs: dict[str, Any], holder: Callable[[Source], Any]
    ) -> None:
        self.args, self.kwargs = list(args), dict(kwargs)
        self.numbers: set[Source] = set()
        self.lost_number = False
        self.overwritten: set[int] = set()
        self._find, self._holder = find or (lambda function: None), holder
        self._waiting: list[tuple[Any, Source]] = []
        self._originals: dict[int, tuple[Any, Any]] = {}  # by the id of the stand-in
        self._tuples: dict[Source, tuple[Any, ...]] = {}  # those with stand-ins, by the path of those without
        self._undo: list[Callable[[], None]] = []
        self._active = False

    def place_numbers(
        self, numbers: Iterable[Source], symbol: Callable[[Any, Source], Any], args: Args, kwargs: Kwargs
    ) -> None:
        """Replace the ints and floats at these paths by symbols, where that is possible.

        Args:
            symbol: creates the symbol for a number and its path; returns None for a number that is a constant.
        """

        def read(source: Source) -> Any:
            return source.read(args, kwargs)

        passed = Counter([id(value) for value in (*args, *kwargs.values()) if issubclass(type(value), tuple)])
        for source in numbers:
            try:
                value = read(source)
                # the program may compare a tuple that it gets twice with itself
                shared = source.parent is not None and passed[id(read(source.parent))] > 1
                fits = type(value) in (int, float) and not shared and _may_hold_number(source, read)
            except PATH_ERRORS:  # the path does not exist in this call
                continue
            if not fits or not self._claim():
                continue
            stand_in = symbol(value, source)
            if stand_in is not None:
                self.numbers.add(source)
                self._originals[id(stand_in)] = (stand_in, value)
                self._put(source, stand_in, read)

    def visit(self, function: Any, source: Source) -> None:
        """Replace a function implemented in C that was read from a path, before the program reads it."""
        if type(function) not in FUNCTIONS_OF_C:
            return
        if not self._active:
            self._waiting.append((function, source))
            return
        stand_in = self._find(function)
        if stand_in is not None and self._claim():
            self._originals[id(stand_in)] = (stand_in, function)
            self._put(source, stand_in, self._holder)

    def start(self) -> None:
        """Replace the functions that were visited before, and from now on each function at its first visit."""
        self._active = True
        for function, source in self._waiting:
            self.visit(function, source)
        self._waiting.clear()

    def restore(self) -> None:
        """Restore the originals of stand-ins that the program has not overwritten."""
        self._active = False
        while self._undo:
            self._undo.pop()()

    def forget(self) -> None:
        """Release the stand-ins after the originals were restored."""
        self._originals.clear()
        self._tuples.clear()
        self.overwritten.clear()
        self.args.clear()
        self.kwargs.clear()

    @property
    def any(self) -> bool:
        """Whether there are stand-ins in objects of the user."""
        return bool(self._originals)

    def original(self, value: Any) -> Any:
        """The object that a stand-in replaces; any other object itself."""
        held = self._originals.get(id(value))
        return value if held is None else held[1]

    def before(self, value: Any) -> Any:
        """`original`, except that an overwritten stand-in is returned itself, so that any new value differs from it."""
        return value if id(value) in self.overwritten else self.original(value)

    def _claim(self) -> bool:
        thread = threading.get_ident()
        with _turn:
            if self._undo:
                return True
            if _recording.keys() - {thread}:  # they may have visited the same objects
                return False
            _placing[thread] += 1
        self._undo.append(partial(_release, thread))
        return True

    def tuple_at(self, source: Source, value: tuple[Any, ...]) -> tuple[Any, ...]:
        """The tuple at a path, with stand-ins among its items."""
        return self._tuples.get(source, value)

    def _put(self, source: Source, value: Any, read: Callable[[Source], Any]) -> None:
        if isinstance(source, ArgumentSource):
            self.args[source.index] = value
        elif isinstance(source, KeywordSource):
            self.kwargs[source.name] = value
        elif isinstance(source, GlobalSource):
            self._put_item(source.namespace, source.name, value)
        elif source.parent is not None:
            self._put_into(source, read(source.parent), value, read)

    def _put_in_tuple(self, holder: tuple[Any, ...], source: KeySource, value: Any, read: Any) -> None:
        now = self.tuple_at(source.parent, holder)
        items = (*now[: source.key], value, *now[source.key + 1 :])
        changed = torch.Size(items) if type(holder) is torch.Size else tuple.__new__(type(holder), items)
        self._tuples[source.parent] = changed
        self._originals[id(changed)] = (changed, self.original(holder))
        self._put(source.parent, changed, read)

    def _put_into(self, source: Source, holder: Any, value: Any, read: Callable[[Source], Any]) -> None:
        if isinstance(source, ClosureSource) and isinstance(holder, FunctionType):
            self._put_attribute((holder.__closure__ or ())[source.index], "cell_contents", value)
        elif isinstance(source, StoredAttributeSource):
            self._put_item(getattr(holder, source.dictionary), source.name, value)
        elif isinstance(source, KeySource) and _is_rebuilt(holder):
            self._put_in_tuple(holder, source, value, read)
        elif isinstance(source, KeySource) and isinstance(holder, dict | list):
            self._put_item(holder, source.key, value)
        elif not isinstance(source, AttributeSource):
            return
        elif isinstance(holder, ModuleType):
            self._put_item(vars(holder), source.name, value)
        elif isinstance(holder, FunctionType) or _is_slot(holder, source):
            self._put_attribute(holder, source.name, value)
        elif type(holder) is partial and source.name == "func":
            self._put_function(holder, value)
        else:
            self._put_on_class(holder if isinstance(holder, type) else type(holder), source.name, value)

    def _put_item(self, holder: Any, key: Any, value: Any) -> None:
        self._replace(partial(stored_item, holder, key), partial(store_item, holder, key), value)

    def _put_attribute(self, holder: Any, name: str, value: Any) -> None:
        self._replace(partial(slot_item, holder, name), partial(put_attribute, holder, name), value)

    def _replace(self, read: Callable[[], Any], write: Callable[[Any], None], value: Any) -> None:
        before = read()
        write(value)

        def undo() -> None:
            with suppress(AttributeError, LookupError, ValueError):  # the program has deleted it
                if read() is value:
                    write(before)
                    return
            self.overwritten.add(id(value))

        self._undo.append(undo)

    def _put_function(self, holder: Any, value: Any) -> None:
        _, _, state = holder.__reduce__()
        holder.__setstate__((value, *state[1:]))
        self._undo.append(lambda: holder.__setstate__((state[0], *holder.__reduce__()[2][1:])))

    def _put_on_class(self, kind: type, name: str, value: Any) -> None:
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        if owner is None or not owner.__flags__ & _HEAP_TYPE:
            return
        before = vars(owner)[name]
        held = (
            staticmethod(value) if type(value) is FunctionType else value
        )  # a function implemented in C is not a method
        type.__setattr__(owner, name, held)

        def undo() -> None:
            if vars(owner).get(name) is held:
                type.__setattr__(owner, name, before)

        self._undo.append(undo)


def _is_rebuilt(holder: Any) -> bool:
    """Whether an object is a tuple that is replaced by one with other items, where it is stored."""
    return isinstance(holder, tuple) and not hasattr(holder, "__dict__")


def _may_hold_number(source: Source, read: Callable[[Source], Any]) -> bool:
    """Whether the variable, attribute or item at a path can hold a symbol, and belongs to one object only.

    An item of a tuple can where the tuple can be replaced. Other paths to the tuple still lead to its numbers.
    """
    if isinstance(source, ArgumentSource | KeywordSource | GlobalSource):
        return True
    if source.parent is None:
        return False
    holder = read(source.parent)
    if isinstance(source, ClosureSource):
        return isinstance(holder, FunctionType)
    if isinstance(source, StoredAttributeSource):
        return source.dictionary == "__dict__"
    if isinstance(source, KeySource):
        return isinstance(holder, dict | list) or (_is_rebuilt(holder) and _may_hold_number(source.parent, read))
    return isinstance(source, AttributeSource) and (
        isinstance(holder, ModuleType) or (_is_slot(holder, source) and type(holder) is not FunctionType)
    )


def _is_slot(holder: Any, source: AttributeSource) -> bool:
    """Whether a path ends in a slot of its holder; another attribute may hide one of this name."""
    return isinstance(source, SlotSource) or reaches_slot(type(holder), source.name)


_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class of a ``class`` statement, whose attributes can be assigned


def _release(thread: int) -> None:
    with _turn:
        _leave(_placing, thread)
        _turn.notify_all()
