"""Walk the bytecode of a code object and gather the names in it, with what each is asked of."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType

from thunder_core.guards.accessors import ACCESSORS, Accesses
from thunder_core.guards.dictionary_uses import DictionaryUses, Instruction
from thunder_core.guards.instructions import (
    ATTRIBUTE_LOADS,
    GLOBAL_LOADS,
    UNKNOWN,
    instructions,
    loaded_variable,
    name_of,
    protected_ranges,
    variable_name,
)

_CELL_STORES = frozenset({"STORE_DEREF", "DELETE_DEREF"})

_COMPARISONS = frozenset(
    {"COMPARE_OP", "CONTAINS_OP", "BINARY_SUBSCR", "BUILD_SET", "SET_ADD", "SET_UPDATE", "BUILD_MAP", "MAP_ADD"}
)
"""Operations that may compare objects without an equality of their own, by identity."""
_LONGEST_NAME = 60


@dataclass(slots=True)
class Gathered:
    """Names over a code object and the code objects in its constants.

    Attributes:
        loads: attributes with their owners: the variable or attribute that they are loaded from.
        guarded: those among them that a ``try`` surrounds.
        accesses: ``(owner, name)`` asked through ``getattr`` and its kin.
        whole: owners of which any attribute may be asked.
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


def gather(code: CodeType) -> Gathered:
    """Everything that ``code`` names."""
    gathered = Gathered()
    _scan(code, gathered)
    return gathered


def _scan(code: CodeType, gathered: Gathered) -> None:
    chain: tuple[str, ...] = ()  # a global and the attributes loaded from it so far
    owner = UNKNOWN  # what the instruction before put on the stack
    accesses = Accesses()
    previous = ""
    tries = protected_ranges(code)
    read: list[Instruction] = []
    for position, operation, argument in instructions(code):
        name = name_of(code, operation, argument)
        if operation in ATTRIBUTE_LOADS:
            read.append(Instruction(operation, (name,), attribute=True))
            load = (owner if operation != "LOAD_SUPER_ATTR" else UNKNOWN, name)
            gathered.loads.add(load)
            if any(start <= position < end for start, end in tries):
                gathered.guarded.add(load)
            if name == "__dict__":
                gathered.whole.add(load[0])
            chain = (*chain, name) if chain else ()
            owner = name
            if accesses.open:
                accesses.follow(operation, argument, (name,), None)
            previous = name
            continue
        if chain:
            gathered.chains[chain] = None
        chain = (name,) if operation in GLOBAL_LOADS else ()
        owner = loaded_variable(code, operation, argument, name)
        read.append(_instruction(code, operation, argument, owner))
        if accesses.open or name in ACCESSORS:
            constant = code.co_consts[argument] if operation == "LOAD_CONST" else None
            accesses.follow(operation, argument, read[-1].loads, constant)
        if operation == "IMPORT_NAME":
            level, members = read[-3].constant, read[-2].constant
            gathered.imports.append((level, name, members or ()))
        _note(code, operation, argument, name, previous, gathered)
        previous = owner or operation
    accesses.end()
    gathered.accesses |= accesses.named
    gathered.whole |= accesses.whole
    gathered.dictionaries.add(read)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _scan(constant, gathered)
        elif isinstance(constant, str) and len(constant) < _LONGEST_NAME:
            gathered.strings.update(part for part in constant.split(".") if part.isidentifier())


def _instruction(code: CodeType, operation: str, argument: int, owner: str) -> Instruction:
    if operation == "LOAD_CONST":
        return Instruction(operation, constant=code.co_consts[argument])
    if operation == "LOAD_FAST_LOAD_FAST":
        return Instruction(operation, (variable_name(code, argument >> 4), owner))
    return Instruction(operation, (owner,) if owner else ())


def _note(code: CodeType, operation: str, argument: int, name: str, previous: str, gathered: Gathered) -> None:
    """What else an instruction says."""
    if operation in ("STORE_ATTR", "DELETE_ATTR"):
        gathered.stored_attributes.add(name)
    elif operation in ("STORE_GLOBAL", "DELETE_GLOBAL"):
        gathered.stored_globals.add(name)
    elif operation in _CELL_STORES:
        gathered.stored_cells.add(variable_name(code, argument))
    elif operation == "STORE_FAST":
        gathered.stored_locals.add(variable_name(code, argument))
    elif operation == "STORE_FAST_LOAD_FAST":
        gathered.stored_locals.add(variable_name(code, argument >> 4))
    elif operation == "STORE_FAST_STORE_FAST":
        gathered.stored_locals.add(variable_name(code, argument >> 4))
        gathered.stored_locals.add(variable_name(code, argument & 15))
    elif operation == "IS_OP":
        gathered.compares_identity |= previous != "LOAD_CONST"  # ``is None`` asks nothing about other objects
    elif operation in _COMPARISONS:
        gathered.compares_objects |= previous != "LOAD_CONST"
    elif operation == "MATCH_CLASS":
        tuples = (constant for constant in code.co_consts if isinstance(constant, tuple))
        gathered.matched.update(item for constant in tuples for item in constant if isinstance(item, str))
