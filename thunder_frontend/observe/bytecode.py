"""Reads the `CodeNames` of a code object from its bytecode."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import CodeType
from typing import Final

from thunder_core.checks.own_lookups import LOOKUPS
from thunder_core.checks.stored_content import STORING
from thunder_core.tracing.frames import CodeKind, kind_of
from thunder_frontend.observe.abstract_stack import (
    ATTRIBUTE_LOADS,
    FIRST_ASSIGNMENT,
    GLOBAL_LOADS,
    JUMPS_IF_NONE,
    UNKNOWN,
    Instruction,
    StackValue,
    instructions,
    protected_ranges,
    stored_variables,
    variable_name,
)
from thunder_frontend.observe.code_names import CodeNames
from thunder_frontend.observe.lookup_methods import is_pure_lookup

_ACCESSORS: Final = frozenset({"getattr", "hasattr", "setattr", "delattr", "vars", "dir"})
"""Builtin functions that read or write attributes by name."""
_STORING_ACCESSORS = frozenset({"setattr", "delattr"})
CLASS_NAMES: Final = frozenset({"__name__", "__qualname__", "__module__"})
"""Attributes with equal values in ``int`` or ``float`` and in the classes of symbolic numbers."""
_LONGEST_NAME = 60
_VARIADIC = 0x04
_KEYWORDS = 0x08
_GETTERS = frozenset({"attrgetter", "methodcaller"})
_IDENTITY = frozenset({"is_", "is_not"})
_TYPES = frozenset({"type", "callable", "id"})
_OF_FIRST = frozenset((name,) for name in (*_TYPES, "isinstance"))
"""Global functions that read no content of their first argument, only its class or identity."""
_MEMBERSHIP = frozenset(
    {"add", "contains", "count", "countOf", "dict", "discard", "eq", "frozenset", "fromkeys", "get", "index", "indexOf"}
    | {"ne", "pop", "remove", "set", "setdefault", "union", "update"}
)
_ASSIGNING = frozenset({"__delattr__", "__dict__", "__setattr__", "exec", "globals", "vars"})
"""Names by which code may assign or delete attributes or variables of computed names."""
_ASSIGNING_ITEMS = frozenset(
    {
        "__delattr__",
        "__delitem__",
        "__setattr__",
        "__setitem__",
        "clear",
        "exec",
        "pop",
        "popitem",
        "setdefault",
        "update",
    }
)
"""Names by which code may change a dictionary of attributes, or the attributes themselves."""
_DELETING = frozenset({"__delattr__", "__delitem__", "clear", "exec", "pop", "popitem"})
"""Those of `_ASSIGNING_ITEMS` that delete."""
_SHOWING = frozenset(
    {"__contains__", "__eq__", "__format__", "__ne__", "__repr__", "__replace__", "__str__", "ascii", "contains"}
    | {"count", "countOf", "eq", "format", "format_map", "index", "indexOf", "ne", "print", "remove", "repr", "str"}
)
"""Functions and methods of C that format or compare their arguments, or the objects in these."""
_REMAINDER = (6, FIRST_ASSIGNMENT + 6)
"""The arguments of ``BINARY_OP`` for ``%`` and ``%=``, which format the values for a text."""
_ERRORS = frozenset({"AttributeError", "Exception", "BaseException"})
_STATE = frozenset({"__getattribute__", "__getstate__", "__reduce__", "__reduce_ex__"})
_CHANGES = frozenset({"__setattr__", "__delattr__"})


_cache: dict[int, tuple[weakref.ref[CodeType], CodeNames]] = {}


def names_of(code: CodeType) -> CodeNames:
    """The names in ``code``, computed once per code object."""
    key = id(code)
    known = _cache.get(key)
    if known is not None and known[0]() is code:
        return known[1]
    names = _Reader(code).names

    def forget(reference: weakref.ref[CodeType]) -> None:
        entry = _cache.get(key)
        if entry is not None and entry[0] is reference:
            del _cache[key]

    _cache[key] = (weakref.ref(code, forget), names)
    return names


def _argument_names(code: CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & _VARIADIC) + bool(code.co_flags & _KEYWORDS)
    return code.co_varnames[:count]


class _Reader:
    """Reads the instructions of a code object and of the code objects among its constants.

    Attributes:
        names: the names, complete after the constructor.
    """

    def __init__(self, code: CodeType) -> None:
        self.names = CodeNames(_argument_names(code), code.co_freevars, kind_of(code) is CodeKind.MODULE)
        self._attribute_loads: set[tuple[str, str]] = set()  # owners and attributes
        self._tried: set[tuple[str, str]] = set()  # those inside of ``try``
        self._accesses: set[tuple[str, str]] = set()  # owners and constant names in calls of `_ACCESSORS`
        self._assigns_items = self._deletes_items = False
        self._strings: set[str] = set()  # the identifiers in constant strings
        self._computed_getters = 0  # loads of getters of `operator`, but for calls of them with constant names
        self._compares_constants = False  # by ``is`` with constants other than None
        self._read(code)
        self._complete(code)

    def _read(self, code: CodeType) -> None:
        self._code, self._tries = code, protected_ranges(code)
        self.names.catches |= bool(self._tries)
        self._loaded: dict[tuple[str, ...], None] = {}  # chains in the order of their loads
        self._used: set[tuple[str, ...]] = set()  # those used in other ways than by loading an attribute
        for instruction in instructions(code):
            method = _METHODS.get(instruction.operation)
            if method is not None:
                method(self, instruction)
            elif instruction.operands:
                self.use(instruction.operands)
        self.names.chains.update(dict.fromkeys(chain for chain in self._loaded if chain in self._used))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._read(constant)
            elif isinstance(constant, str) and len(constant) < _LONGEST_NAME:
                self._strings.update(part for part in constant.split(".") if part.isidentifier())

    def _complete(self, code: CodeType) -> None:
        """Derive the names that depend on the whole code."""
        names = self.names
        loaded = {name for _, name in self._attribute_loads}
        globals_loaded = {chain[0] for chain in names.chains}
        named = loaded | globals_loaded
        probes = set(self._accesses)
        if globals_loaded & _ERRORS:
            probes |= self._tried
        if named & _GETTERS or code.co_name in _CHANGES:  # the latter often read other attributes by constant names
            probes |= {(UNKNOWN, name) for name in self._strings}
        if self._computed_getters:
            names.whole.add(UNKNOWN)
        # A variable or attribute that the code assigns can hold objects with different labels.
        stored = names.stored_locals | names.stored_cells | names.stored_globals | names.stored_attributes
        known = {*names.arguments, *names.free, *named} - stored - (loaded if names.stores_computed else set())
        names.stores_items |= bool(named & STORING)
        names.stores_computed |= bool(named & _ASSIGNING)
        names.assigns_by_key |= bool(named & _ASSIGNING) and bool(self._assigns_items or named & _ASSIGNING_ITEMS)
        names.deletes_by_key |= bool(named & _ASSIGNING) and bool(self._deletes_items or named & _DELETING)
        names.stores = names.stores_items or names.stores_computed or bool(stored - names.stored_locals)
        reads_state = bool(named & _STATE) or "__dict__" in self._strings
        if code.co_name in _CHANGES:  # the calling code contains the name of the attribute
            names.whole = set()
        elif reads_state:
            names.whole.add(UNKNOWN)
        names.whole = {owner if owner in known else UNKNOWN for owner in names.whole}
        names.shown = {owner if owner in known or owner[:1] == "[" else UNKNOWN for owner in names.shown}
        names.probes = {(owner if owner in known else UNKNOWN, name) for owner, name in probes}
        names.attributes |= loaded | {name for _, name in probes}
        names.reads_order = reads_state or not named.isdisjoint({"vars", "__dict__"})
        names.reads_class = "__class__" in loaded or "type" in globals_loaded
        names.uses_class |= "__class__" in loaded
        compares_types = names.compares_identity or self._compares_constants
        names.compares_types = compares_types or bool(named & _IDENTITY or globals_loaded & _TYPES)
        names.compares_identity |= bool(named & _IDENTITY)
        names.compares_objects |= bool(named & _MEMBERSHIP)
        if code.co_name in LOOKUPS and is_pure_lookup(code):
            names.of_lookup = replace(names, whole=set())

    def raise_(self, instruction: Instruction) -> None:
        """``raise``."""
        self.names.raises = True
        self.use(instruction.operands)

    def use(self, values: Iterable[StackValue], *, as_tensors: bool = False, as_classes: bool = False) -> None:
        """Values are used in a way that no other method of this class records.

        Args:
            as_tensors: as an index, or by a function of PyTorch, which takes an array as a tensor.
            as_classes: by `isinstance`, which does not call them.
        """
        for value in values:
            if not as_tensors:
                self.names.inspected.add(value.label)
            self.names.uses_class |= value.is_class or value.chain == ("type",)
            if value.label:
                self.names.dictionaries.value_used(value)
                self._use_chain(value)
                if value.label in _SHOWING and not as_classes:  # passed to a function
                    self.names.shown.add(UNKNOWN)
                if value.chain and _is_accessor(value):  # the same, or called with unpacked arguments
                    self.names.whole.add(UNKNOWN)

    def use_identity(self, values: Iterable[StackValue]) -> None:
        """Values are used without their content."""
        for value in values:
            self.names.uses_class |= value.is_class or value.chain == ("type",)
            self._use_chain(value)

    def _use_chain(self, value: StackValue) -> None:
        if value.chain:
            self._used.add(value.chain)

    def attribute_load(self, instruction: Instruction) -> None:
        names, name = self.names, instruction.name
        *others, owner = instruction.operands
        self.use(others)
        names.uses_class |= owner.is_class and name not in CLASS_NAMES
        load = (owner.label if instruction.operation != "LOAD_SUPER_ATTR" else UNKNOWN, name)
        self._attribute_loads.add(load)
        if self._tries and any(start <= instruction.position < end for start, end in self._tries):
            self._tried.add(load)
        self._computed_getters += name in _GETTERS
        if name == "__dict__":
            names.whole.add(load[0])
        names.dictionaries.attribute_loaded(owner, name)
        names.inspected.add(owner.label)
        if owner.chain:
            self._loaded[*owner.chain, name] = None

    def global_load(self, instruction: Instruction) -> None:
        self._loaded[instruction.name,] = None
        self._computed_getters += instruction.name in _GETTERS

    def call(self, instruction: Instruction) -> None:
        callee, arguments = instruction.callee, instruction.call_arguments
        self._use_chain(callee)
        self._makes_getter(callee, arguments)
        self.names.uses_class |= callee.is_class
        self.names.dictionaries.called(callee, arguments)
        without_content = 1 if callee.chain in _OF_FIRST else 0
        self._shows_arguments(callee, arguments)
        self.use_identity(arguments[:without_content])
        as_classes, as_tensors = callee.chain == ("isinstance",), callee.chain[:1] == ("torch",)
        self.use(arguments[without_content:], as_tensors=as_tensors, as_classes=as_classes)
        if not _is_accessor(callee):
            return
        owner = arguments[0].label if arguments else UNKNOWN
        name = arguments[1].constant if len(arguments) > 1 else None
        if isinstance(name, str):
            self._accesses.add((owner, name))
            if callee.label in _STORING_ACCESSORS:
                self._assigns(name, deletes=callee.label == "delattr")
        else:
            self.names.whole.add(owner)
            self.names.stores_computed |= callee.label in _STORING_ACCESSORS
            self.names.assigns_by_key |= callee.label in _STORING_ACCESSORS
            self.names.deletes_by_key |= callee.label == "delattr"

    def _makes_getter(self, callee: StackValue, arguments: Sequence[StackValue]) -> None:
        """A call makes a getter: if its names are constants, they are among the strings of the code."""
        named = arguments[:1] if callee.label == "methodcaller" else arguments
        self._computed_getters -= callee.label in _GETTERS and all(value.is_constant for value in named)

    def _shows_arguments(self, callee: StackValue, arguments: Iterable[StackValue]) -> None:
        if callee.label in _SHOWING:
            self._shows(arguments if callee.owner is None else (*arguments, callee.owner))

    def _shows(self, values: Iterable[StackValue]) -> None:
        """Values are formatted or compared."""
        self.names.shown.update(value.label for value in values if not (value.is_constant or value.is_plain))

    def call_with_keywords(self, instruction: Instruction) -> None:
        *arguments, _ = instruction.call_arguments
        self._makes_getter(instruction.callee, arguments[:1])
        self._shows_arguments(instruction.callee, arguments)
        self.use(instruction.operands, as_tensors=instruction.callee.chain[:1] == ("torch",))

    def subscript(self, instruction: Instruction) -> None:
        *stored, container, key = instruction.operands
        self._assigns_items |= instruction.operation != "BINARY_SUBSCR"
        self.names.stores_items |= not all(value.is_constant for value in stored)
        self.names.compares_objects |= not (stored or key.is_constant)
        self._entry(container, key)
        self.use(stored)

    def subscript_delete(self, instruction: Instruction) -> None:
        self._assigns_items = self._deletes_items = True
        self.use(instruction.operands)

    def slice_store(self, instruction: Instruction) -> None:
        self.names.stores_items = True
        self.use(instruction.operands)

    def format(self, instruction: Instruction) -> None:
        self._shows(instruction.operands)
        self.use(instruction.operands)

    def operator(self, instruction: Instruction) -> None:
        left, right = instruction.operands
        if instruction.argument in _REMAINDER and (not left.is_constant or isinstance(left.constant, str)):
            self._shows((right,))
        self.names.stores_items |= instruction.argument >= FIRST_ASSIGNMENT and not instruction.operands[-1].is_constant
        self.use(instruction.operands)

    def membership(self, instruction: Instruction) -> None:
        key, container = instruction.operands
        if not (key.is_constant or container.is_constant):
            self.names.compares_objects = True
            self._shows(instruction.operands)
        self._entry(container, key)

    def _entry(self, container: StackValue, key: StackValue) -> None:
        self.names.dictionaries.entry_used(container, key)
        self.names.uses_class |= container.is_class
        self.names.inspected.add(container.label)
        self._use_chain(container)
        self.use((key,), as_tensors=True)

    def identity(self, instruction: Instruction) -> None:
        if any(value.is_common for value in instruction.operands):
            # Code that passes a generator to ``all`` first compares this function with the builtin one.
            self.use_identity(instruction.operands)
            return
        constants = [value.constant for value in instruction.operands if value.is_constant]
        self.names.compares_identity |= not constants
        self._compares_constants |= any(constant is not None for constant in constants)
        self.names.compares_bools |= any(type(constant) is bool for constant in constants)
        self.use_identity(instruction.operands)

    def jump_if_none(self, instruction: Instruction) -> None:
        """A comparison with None."""
        self.use_identity(instruction.operands)

    def comparison(self, instruction: Instruction) -> None:
        if not any(value.is_constant for value in instruction.operands):
            self.names.compares_objects = True
            if instruction.name in ("==", "!="):
                self._shows(instruction.operands)
        self.use(instruction.operands)

    def hashed(self, instruction: Instruction) -> None:
        """Values become items of a set or keys of a dictionary."""
        keys = instruction.operands[::2] if instruction.operation == "BUILD_MAP" else instruction.operands
        keys = keys[-2:-1] if instruction.operation == "MAP_ADD" else keys
        self.names.compares_objects |= not all(value.is_constant for value in keys)
        self.use(instruction.operands)

    def import_(self, instruction: Instruction) -> None:
        level, members = instruction.operands
        self.names.imports.append((level.constant, instruction.name, members.constant or ()))

    def _assigns(self, name: str, *, deletes: bool) -> None:
        self.names.stored_attributes.add(name)
        if deletes:
            self.names.deleted_attributes.add(name)

    def match_class(self, instruction: Instruction) -> None:
        subject, _, keywords = instruction.operands
        self.names.attributes.update(keywords.constant)
        if instruction.argument:  # positional patterns, whose attributes are in ``__match_args__``
            self.names.whole.add(subject.label)
        self.use(instruction.operands)

    def attribute_store(self, instruction: Instruction) -> None:
        self._assigns(instruction.name, deletes=instruction.operation == "DELETE_ATTR")
        self.use(instruction.operands)

    def global_store(self, instruction: Instruction) -> None:
        self.names.stored_globals.add(instruction.name)
        self.use(instruction.operands)

    def cell_store(self, instruction: Instruction) -> None:
        self.names.stored_cells.add(variable_name(self._code, instruction.argument))
        self.use(instruction.operands)

    def local_store(self, instruction: Instruction) -> None:
        self.names.stored_locals.update(stored_variables(self._code, instruction.operation, instruction.argument))
        self.use(instruction.operands)


def _is_accessor(value: StackValue) -> bool:
    return value.label in _ACCESSORS and value.chain == (value.label,)


_METHODS: dict[str, Callable[[_Reader, Instruction], None]] = {
    **dict.fromkeys(ATTRIBUTE_LOADS, _Reader.attribute_load),
    **dict.fromkeys(GLOBAL_LOADS, _Reader.global_load),
    "CALL": _Reader.call,
    "CALL_KW": _Reader.call_with_keywords,
    "BINARY_SUBSCR": _Reader.subscript,
    "STORE_SUBSCR": _Reader.subscript,
    "DELETE_SUBSCR": _Reader.subscript_delete,
    "STORE_SLICE": _Reader.slice_store,
    "BINARY_OP": _Reader.operator,
    **dict.fromkeys(("CONVERT_VALUE", "FORMAT_SIMPLE", "FORMAT_VALUE", "FORMAT_WITH_SPEC"), _Reader.format),
    "CONTAINS_OP": _Reader.membership,
    "IS_OP": _Reader.identity,
    **dict.fromkeys(JUMPS_IF_NONE, _Reader.jump_if_none),
    "COMPARE_OP": _Reader.comparison,
    "BUILD_SET": _Reader.hashed,
    "SET_ADD": _Reader.hashed,
    "SET_UPDATE": _Reader.hashed,
    "BUILD_MAP": _Reader.hashed,
    "MAP_ADD": _Reader.hashed,
    "IMPORT_NAME": _Reader.import_,
    "MATCH_CLASS": _Reader.match_class,
    "RAISE_VARARGS": _Reader.raise_,
    "STORE_ATTR": _Reader.attribute_store,
    "DELETE_ATTR": _Reader.attribute_store,
    "STORE_GLOBAL": _Reader.global_store,
    "DELETE_GLOBAL": _Reader.global_store,
    "STORE_DEREF": _Reader.cell_store,
    "DELETE_DEREF": _Reader.cell_store,
    "STORE_FAST": _Reader.local_store,
    "DELETE_FAST": _Reader.local_store,
    "STORE_FAST_LOAD_FAST": _Reader.local_store,
    "STORE_FAST_STORE_FAST": _Reader.local_store,
}
"""The methods for instructions; `use` handles the operands of all others."""
