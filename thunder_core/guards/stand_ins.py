"""What the user's variables, attributes and items hold while a program is recorded, in place of what they held before.

Functions of C that acquisition replaces, where the program holds them under names of its own (``log = print``): the
code of a Python function can be replaced, and a function of C has none. A place that cannot hold another object keeps
the function, and its call is refused.

Numbers that vary between calls: the places hold symbols, put there before anything is read. A place that cannot hold
one keeps its number, which is a constant then.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType
from typing import Any

from thunder_core.guards.node import slot_names
from thunder_core.guards.source import PATH_ERRORS, Args, ArgumentSource, GlobalSource, KeywordSource, Kwargs, Source
from thunder_core.guards.steps import AttributeSource, ClosureSource, DictionarySource, KeySource
from thunder_core.guards.stored_content import store_item, stored_item

_turn = threading.Condition()
_recording: Counter[int] = Counter()
"""Recordings by thread."""
_placing: Counter[int] = Counter()
"""Recordings that have stand-ins in the user's objects; all of one thread."""


@contextmanager
def recording_turn() -> Iterator[None]:
    """One recording: while stand-ins are in the user's objects, those of other threads wait."""
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
"""The classes of numbers that vary, each with the name of the class that programs take them for."""
FUNCTIONS_OF_C = (BuiltinFunctionType, MethodDescriptorType)
StandIn = Callable[[Any], Any]
"""The stand-in of a function that acquisition replaces; None for other functions."""


class StandIns:
    """The stand-ins that one recording puts into objects of the user.

    Attributes:
        args, kwargs: the arguments of the call, with stand-ins.
        numbers: where symbols for numbers were put.
        overwritten: the ids of stand-ins in whose place the program has put something, be it what was there before.

    Args:
        holder: gives the object that was met on a path.
    """

    def __init__(
        self, find: StandIn | None, args: tuple[Any, ...], kwargs: dict[str, Any], holder: Callable[[Source], Any]
    ) -> None:
        self.args, self.kwargs = list(args), dict(kwargs)
        self.numbers: set[Source] = set()
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
        """Put symbols where these paths lead to ints and floats, as far as the places can hold them.

        Args:
            symbol: makes one, of the number and its path; gives None for a number that is to be a constant.
        """
        for source in numbers:
            try:
                value = source.read(args, kwargs)
                holder = None if source.parent is None else source.parent.read(args, kwargs)
            except PATH_ERRORS:  # this call has no such path
                continue
            if type(value) not in (int, float) or not _may_hold_number(holder, source) or not self._claim():
                continue
            stand_in = symbol(value, source)
            if stand_in is not None:
                self.numbers.add(source)
                self._originals[id(stand_in)] = (stand_in, value)
                self._put(source, stand_in, holder)

    def met(self, function: Any, source: Source) -> None:
        """An object is read from ``source``, before the program gets it."""
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
        """Replace the functions seen so far, and from now on each function when it is first seen."""
        self._active = True
        for function, source in self._waiting:
            self.met(function, source)
        self._waiting.clear()

    def restore(self) -> None:
        """Give each place its function back, if the program has not put something else there."""
        self._active = False
        while self._undo:
            self._undo.pop()()

    def forget(self) -> None:
        """Let go of stand-ins, all of which were put back."""
        self._originals.clear()
        self._tuples.clear()
        self.overwritten.clear()
        self.args.clear()
        self.kwargs.clear()

    @property
    def any(self) -> bool:
        """Whether anything was put into objects of the user."""
        return bool(self._originals)

    def original(self, value: Any) -> Any:
        """What a stand-in stands for that was put into one of the user's objects; any other object itself."""
        held = self._originals.get(id(value))
        return value if held is None else held[1]

    def before(self, value: Any) -> Any:
        """`original`, but a stand-in that the program has overwritten itself: nothing that it put there is the same."""
        return value if id(value) in self.overwritten else self.original(value)

    def _claim(self) -> bool:
        thread = threading.get_ident()
        with _turn:
            if self._undo:
                return True
            if _recording.keys() - {thread}:  # they may have met the same objects
                return False
            _placing[thread] += 1
        self._undo.append(functools.partial(_release, thread))
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
        elif isinstance(source, DictionarySource):
            self._put_item(getattr(holder, source.dictionary), source.name, value)
        elif isinstance(source, KeySource) and isinstance(holder, tuple) and not hasattr(holder, "__dict__"):
            self._put_in_tuple(holder, source, value)
        elif isinstance(source, KeySource) and isinstance(holder, dict | list):
            self._put_item(holder, source.key, value)
        elif not isinstance(source, AttributeSource):
            return
        elif isinstance(holder, ModuleType):
            self._put_item(vars(holder), source.name, value)
        elif isinstance(holder, FunctionType) or source.name in slot_names(type(holder)):
            self._put_attribute(holder, source.name, value)
        elif type(holder) is functools.partial and source.name == "func":
            self._put_function(holder, value)
        else:
            self._put_on_class(holder if isinstance(holder, type) else type(holder), source.name, value)

    def _put_item(self, holder: Any, key: Any, value: Any) -> None:
        before = stored_item(holder, key)
        store_item(holder, key, value)

        def undo() -> None:
            with suppress(LookupError):  # the program has removed it
                if stored_item(holder, key) is value:
                    store_item(holder, key, before)
                    return
            self.overwritten.add(id(value))

        self._undo.append(undo)

    def _put_attribute(self, holder: Any, name: str, value: Any) -> None:
        before = getattr(holder, name)
        object.__setattr__(holder, name, value)

        def undo() -> None:
            if getattr(holder, name, None) is value:
                object.__setattr__(holder, name, before)
            else:
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
        held = staticmethod(value) if type(value) is FunctionType else value  # a function of C is no method
        type.__setattr__(owner, name, held)

        def undo() -> None:
            if vars(owner).get(name) is held:
                type.__setattr__(owner, name, before)

        self._undo.append(undo)


def _may_hold_number(holder: Any, source: Source) -> bool:
    """Whether the place that a path leads to can hold a symbol, and belongs to one object alone."""
    if isinstance(source, ArgumentSource | KeywordSource | GlobalSource):
        return True
    if isinstance(source, ClosureSource):
        return isinstance(holder, FunctionType)
    if isinstance(source, DictionarySource):
        return source.dictionary == "__dict__"
    if isinstance(source, KeySource):
        return isinstance(holder, dict | list)  # the program may know a tuple from elsewhere
    return isinstance(source, AttributeSource) and (
        isinstance(holder, ModuleType) or source.name in slot_names(type(holder))
    )


_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by a ``class`` statement, which can be changed


def _release(thread: int) -> None:
    with _turn:
        _leave(_placing, thread)
        _turn.notify_all()
