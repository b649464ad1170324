"""The names that the bytecode of a code object reads, each with the object that it is an attribute or variable of.

A dictionary that is used in another way (iterated, passed on, assigned to a variable) may be read as a whole.
Dictionaries go by the labels of `thunder_core.guards.abstract_stack.StackValue`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Final

from thunder_core.guards.abstract_stack import (
    ATTRIBUTE_LOADS,
    GLOBAL_LOADS,
    UNKNOWN,
    StackValue,
    Step,
    protected_ranges,
    steps,
    stored_variables,
    variable_name,
)

_METHODS = frozenset(dir(dict))
_APPENDS = frozenset({"append", "extend"})


@dataclass(slots=True)
class DictionaryUses:
    """What code does with the values that it loads.

    Attributes:
        keys: constant keys that it reads or stores, by label.
        whole: labels of containers of which anything may be read.
        used: labels of containers that it does more with than appending.
    """

    keys: dict[str, set[Hashable]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)

    def attribute_loaded(self, owner: StackValue, name: str) -> None:
        """An attribute is loaded; what becomes of a method ``get`` is seen when that is called."""
        if owner.label:
            if name not in _APPENDS:
                self.used.add(owner.label)
            if name in _METHODS and name != "get":
                self.whole.add(owner.label)

    def entry_used(self, container: StackValue, key: StackValue) -> None:
        """An entry is read, stored or looked for."""
        self._entry_used(container.label, key)

    def called(self, callee: StackValue, arguments: Sequence[StackValue]) -> None:
        """A function is called with arguments by position."""
        if callee.label == "get" and callee.owner is not None and arguments:
            self._entry_used(callee.owner.label, arguments[0])
        else:
            self.value_used(callee)

    def value_used(self, value: StackValue) -> None:
        """A value is used in a way that nothing is known about."""
        self._used_whole(value.label)
        if value.label == "get" and value.owner is not None:  # the method of a dictionary, not called
            self._used_whole(value.owner.label)

    def _entry_used(self, label: str, key: StackValue) -> None:
        if label and key.is_constant and isinstance(key.constant, Hashable):
            self.used.add(label)
            self.keys.setdefault(label, set()).add(key.constant)
        else:
            self._used_whole(label)

    def _used_whole(self, label: str) -> None:
        if label:
            self.used.add(label)
            self.whole.add(label)


ACCESSORS: Final = frozenset({"getattr", "hasattr", "setattr", "delattr", "vars", "dir"})
"""Builtin functions that read or write attributes by name."""
CLASS_NAMES: Final = frozenset({"__name__", "__qualname__", "__module__"})
"""Attributes of classes that those of numbers which vary have as ``int`` and ``float`` have them."""
_LONGEST_NAME = 60


@dataclass(slots=True)
class Gathered:
    """Names over a code object and the code objects in its constants.

    An *owner* is the label of the object that an attribute is loaded from (`StackValue`).

    Attributes:
        loads: attributes with their owners.
        guarded: those among them that a ``try`` surrounds.
        accesses: owners and constant names that are passed to `ACCESSORS`.
        whole: owners of which any attribute may be read.
        chains: global variables with the attributes loaded right from them.
        matched: attributes that ``match`` statements read.
        uses_class: what ``type`` gives for an object may be used for more than its name.
    """

    loads: set[tuple[str, str]] = field(default_factory=set)
    guarded: set[tuple[str, str]] = field(default_factory=set)
    accesses: set[tuple[str, str]] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)
    matched: set[str] = field(default_factory=set)
    chains: dict[tuple[str, ...], None] = field(default_factory=dict)
    stored_globals: set[str] = field(default_factory=set)
    stored_cells: set[str] = field(default_factory=set)
    stored_attributes: set[str] = field(default_factory=set)
    stored_locals: set[str] = field(default_factory=set)
    dictionaries: DictionaryUses = field(default_factory=DictionaryUses)
    imports: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)
    compares_identity: bool = False
    compares_objects: bool = False
    uses_class: bool = False


def gather(code: CodeType) -> Gathered:
    """Everything that ``code`` names."""
    gathered = Gathered()
    _scan(code, gathered)
    return gathered


def _scan(code: CodeType, gathered: Gathered) -> None:
    reading = _Reading(code, gathered)
    for step in steps(code):
        read = _READERS.get(step.operation)
        if read is not None:
            read(reading, step)
        elif step.operands:
            reading.use(step.operands)
    gathered.chains.update(dict.fromkeys(chain for chain in reading.loaded if chain in reading.used))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _scan(constant, gathered)
        elif isinstance(constant, str) and len(constant) < _LONGEST_NAME:
            gathered.strings.update(part for part in constant.split(".") if part.isidentifier())


class _Reading:
    """Reads the steps of one code object.

    Attributes:
        loaded: chains, in the order in which they were last extended.
        used: those among them that are used otherwise than by loading an attribute.
    """

    def __init__(self, code: CodeType, gathered: Gathered) -> None:
        self._code = code
        self._gathered = gathered
        self._tries = protected_ranges(code)
        self.loaded: dict[tuple[str, ...], None] = {}
        self.used: set[tuple[str, ...]] = set()

    def use(self, values: Iterable[StackValue]) -> None:
        """Values are used in a way that nothing is known about."""
        for value in values:
            self._gathered.uses_class |= value.is_class or value.chain == ("type",)
            if value.label:
                self._gathered.dictionaries.value_used(value)
                self._use_chain(value)
                if value.chain and _is_accessor(value):  # it is passed on, or its arguments are unpacked
                    self._gathered.whole.add(UNKNOWN)

    def _use_chain(self, value: StackValue) -> None:
        if value.chain:
            self.used.add(value.chain)

    def attribute_load(self, step: Step) -> None:
        gathered, name = self._gathered, step.name
        *others, owner = step.operands
        self.use(others)
        gathered.uses_class |= owner.is_class and name not in CLASS_NAMES
        load = (owner.label if step.operation != "LOAD_SUPER_ATTR" else UNKNOWN, name)
        gathered.loads.add(load)
        if self._tries and any(start <= step.position < end for start, end in self._tries):
            gathered.guarded.add(load)
        if name == "__dict__":
            gathered.whole.add(load[0])
        gathered.dictionaries.attribute_loaded(owner, name)
        if owner.chain:
            self.loaded[*owner.chain, name] = None

    def global_load(self, step: Step) -> None:
        self.loaded[step.name,] = None

    def call(self, step: Step) -> None:
        callee, arguments = step.callee, step.call_arguments
        self._use_chain(callee)
        self._gathered.uses_class |= callee.is_class
        self._gathered.dictionaries.called(callee, arguments)
        self.use(arguments)
        if not _is_accessor(callee):
            return
        owner = arguments[0].label if arguments else UNKNOWN
        name = arguments[1].constant if len(arguments) > 1 else None
        if isinstance(name, str):
            self._gathered.accesses.add((owner, name))
        else:
            self._gathered.whole.add(owner)

    def subscript(self, step: Step) -> None:
        *stored, container, key = step.operands
        self._gathered.compares_objects |= not (stored or key.is_constant)
        self._entry(container, key)
        self.use(stored)

    def membership(self, step: Step) -> None:
        key, container = step.operands
        self._gathered.compares_objects |= not (key.is_constant or container.is_constant)
        self._entry(container, key)

    def _entry(self, container: StackValue, key: StackValue) -> None:
        self._gathered.dictionaries.entry_used(container, key)
        self._gathered.uses_class |= container.is_class
        self._use_chain(container)
        self.use((key,))

    def identity(self, step: Step) -> None:
        self._gathered.compares_identity |= not any(value.is_constant for value in step.operands)
        self.use(step.operands)

    def comparison(self, step: Step) -> None:
        self._gathered.compares_objects |= not any(value.is_constant for value in step.operands)
        self.use(step.operands)

    def hashed(self, step: Step) -> None:
        """Values become elements of a set or keys of a dictionary."""
        keys = step.operands[::2] if step.operation == "BUILD_MAP" else step.operands
        keys = keys[-2:-1] if step.operation == "MAP_ADD" else keys
        self._gathered.compares_objects |= not all(value.is_constant for value in keys)
        self.use(step.operands)

    def import_(self, step: Step) -> None:
        level, members = step.operands
        self._gathered.imports.append((level.constant, step.name, members.constant or ()))

    def match_class(self, step: Step) -> None:
        self._gathered.matched.update(step.operands[-1].constant)
        self.use(step.operands)

    def attribute_store(self, step: Step) -> None:
        self._gathered.stored_attributes.add(step.name)
        self.use(step.operands)

    def global_store(self, step: Step) -> None:
        self._gathered.stored_globals.add(step.name)
        self.use(step.operands)

    def cell_store(self, step: Step) -> None:
        self._gathered.stored_cells.add(variable_name(self._code, step.argument))
        self.use(step.operands)

    def local_store(self, step: Step) -> None:
        self._gathered.stored_locals.update(stored_variables(self._code, step.operation, step.argument))
        self.use(step.operands)


def _is_accessor(value: StackValue) -> bool:
    return value.label in ACCESSORS and value.chain == (value.label,)


_READERS: dict[str, Callable[[_Reading, Step], None]] = {
    **dict.fromkeys(ATTRIBUTE_LOADS, _Reading.attribute_load),
    **dict.fromkeys(GLOBAL_LOADS, _Reading.global_load),
    "CALL": _Reading.call,
    "BINARY_SUBSCR": _Reading.subscript,
    "STORE_SUBSCR": _Reading.subscript,
    "CONTAINS_OP": _Reading.membership,
    "IS_OP": _Reading.identity,
    "COMPARE_OP": _Reading.comparison,
    "BUILD_SET": _Reading.hashed,
    "SET_ADD": _Reading.hashed,
    "SET_UPDATE": _Reading.hashed,
    "BUILD_MAP": _Reading.hashed,
    "MAP_ADD": _Reading.hashed,
    "IMPORT_NAME": _Reading.import_,
    "MATCH_CLASS": _Reading.match_class,
    "STORE_ATTR": _Reading.attribute_store,
    "DELETE_ATTR": _Reading.attribute_store,
    "STORE_GLOBAL": _Reading.global_store,
    "DELETE_GLOBAL": _Reading.global_store,
    "STORE_DEREF": _Reading.cell_store,
    "DELETE_DEREF": _Reading.cell_store,
    "STORE_FAST": _Reading.local_store,
    "STORE_FAST_LOAD_FAST": _Reading.local_store,
    "STORE_FAST_STORE_FAST": _Reading.local_store,
}
"""What is read of an instruction; the operands of all others count as used."""
