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

from thunder_core.guards.contents import put_attribute, reaches_slot, slot_item
from thunder_core.guards.source import (
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
from thunder_core.guards.stored_content import store_item, stored_item

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
FUNCTIONS_OF_C = frozenset({BuiltinFunctionType, MethodDescriptorType})
StandIn = Callable[[Any], Any]
"""Returns the stand-in of a function that recording intercepts; None for other functions."""


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
        self._tuples: dict[int, tuple[Any, ...]] = {}  # those with stand-ins, by the id of those without
        self._undo: list[Callable[[], None]] = []
        self._active = False

    def place_numbers(
        self, numbers: Iterable[Source], symbol: Callable[[Any, Source], Any], args: Args, kwargs: Kwargs
    ) -> None:
        """Replace the ints and floats at these paths by symbols, where that is possible.

        Args:
            symbol: creates the symbol for a number and its path; returns None for a number that is a constant.
        """
        for source in numbers:
            try:
                value = source.read(args, kwargs)
                holder = None if source.parent is None else source.parent.read(args, kwargs)
            except PATH_ERRORS:  # the path does not exist in this call
                continue
            if type(value) not in (int, float) or not _may_hold_number(holder, source) or not self._claim():
                continue
            stand_in = symbol(value, source)
            if stand_in is not None:
                self.numbers.add(source)
                self._originals[id(stand_in)] = (stand_in, value)
                self._put(source, stand_in, holder)

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
            self._put(source, stand_in, None if source.parent is None else self._holder(source.parent))

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

    def _put(self, source: Source, value: Any, holder: Any) -> None:
        if isinstance(source, ArgumentSource):
            self.args[source.index] = value
        elif isinstance(source, KeywordSource):
            self.kwargs[source.name] = value
        elif isinstance(source, GlobalSource):
            self._put_item(source.namespace, source.name, value)
        elif source.parent is not None:
            self._put_into(holder, source, value)

    def _put_in_tuple(self, holder: tuple[Any, ...], source: KeySource, value: Any) -> None:
        now = self._tuples.get(id(holder), holder)
        changed = tuple.__new__(type(holder), (*now[: source.key], value, *now[source.key + 1 :]))
        self._tuples[id(holder)] = changed
        self._originals[id(changed)] = (changed, holder)
        outer = source.parent.parent
        self._put(source.parent, changed, None if outer is None else self._holder(outer))

    def _put_into(self, holder: Any, source: Source, value: Any) -> None:
        if isinstance(source, ClosureSource) and isinstance(holder, FunctionType):
            self._put_attribute((holder.__closure__ or ())[source.index], "cell_contents", value)
        elif isinstance(source, StoredAttributeSource):
            self._put_item(getattr(holder, source.dictionary), source.name, value)
        elif isinstance(source, KeySource) and isinstance(holder, tuple) and not hasattr(holder, "__dict__"):
            self._put_in_tuple(holder, source, value)
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


def _may_hold_number(holder: Any, source: Source) -> bool:
    """Whether the variable, attribute or item at a path can hold a symbol, and belongs to one object only."""
    if isinstance(source, ArgumentSource | KeywordSource | GlobalSource):
        return True
    if isinstance(source, ClosureSource):
        return isinstance(holder, FunctionType)
    if isinstance(source, StoredAttributeSource):
        return source.dictionary == "__dict__"
    if isinstance(source, KeySource):
        return isinstance(holder, dict | list)  # other paths may lead to a tuple
    return isinstance(source, AttributeSource) and (isinstance(holder, ModuleType) or _is_slot(holder, source))


def _is_slot(holder: Any, source: AttributeSource) -> bool:
    """Whether a path ends in a slot of its holder; another attribute may hide one of this name."""
    return isinstance(source, SlotSource) or reaches_slot(type(holder), source.name)


_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class of a ``class`` statement, whose attributes can be assigned


def _release(thread: int) -> None:
    with _turn:
        _leave(_placing, thread)
        _turn.notify_all()
