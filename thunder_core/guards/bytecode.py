"""Walk the bytecode of a code object and gather the names in it, with what each is asked of."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType

from thunder_core.guards.dictionary_uses import DictionaryUses, Instruction
from thunder_core.guards.instructions import (
    ATTRIBUTE_LOADS,
    GLOBAL_LOADS,
    UNKNOWN,
    cell_name,
    instructions,
    loaded_variable,
    name_of,
    protected_ranges,
    starts_call,
)

_CELL_STORES = frozenset({"STORE_DEREF", "DELETE_DEREF"})
_ACCESSORS = frozenset({"getattr", "hasattr", "setattr", "delattr", "vars", "dir"})
_CALLS = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW"})

_LONGEST_NAME = 60


@dataclass(slots=True)
class Access:
    """A call of ``getattr`` or one of its kin while its arguments are being loaded.

    Attributes:
        owner: what the object is loaded from.
        name: the attribute's, if it is a constant.
        simple: the object is a variable, or attributes of one.
        pending: calls inside the arguments that have not been made yet.
    """

    owner: str | None = None
    name: str | None = None
    simple: bool = True
    pending: int = 0


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


def gather(code: CodeType) -> Gathered:
    """Everything that ``code`` names."""
    gathered = Gathered()
    _scan(code, gathered)
    return gathered


def _scan(code: CodeType, gathered: Gathered) -> None:
    chain: tuple[str, ...] = ()  # a global and the attributes loaded from it so far
    owner = UNKNOWN  # what the instruction before put on the stack
    access: Access | None = None  # the call of getattr whose arguments are being loaded
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
            if access is not None:
                if access.name is None and access.owner == previous:
                    access.owner = name
                if starts_call(operation, argument):
                    _nest(access)
            previous = name
            continue
        if chain:
            gathered.chains[chain] = None
        chain = (name,) if operation in GLOBAL_LOADS else ()
        owner = loaded_variable(code, operation, argument, name)
        read.append(_instruction(code, operation, argument, owner))
        if chain and name in _ACCESSORS:
            if access is not None:
                _finish(access, gathered, nested=True)
            access = Access()
        elif access is not None:
            access = _argument_of(access, code, operation, argument, owner, gathered)
        if operation == "IMPORT_NAME":
            level, members = read[-3].constant, read[-2].constant
            gathered.imports.append((level, name, members or ()))
        _note(code, operation, argument, name, previous, gathered)
        previous = owner or operation
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
        return Instruction(operation, (code.co_varnames[argument >> 4], owner))
    return Instruction(operation, (owner,) if owner else ())


def _argument_of(
    access: Access, code: CodeType, operation: str, argument: int, owner: str, gathered: Gathered
) -> Access | None:
    """Take one more instruction between the load of ``getattr`` and its call into account."""
    if operation in _CALLS:
        if access.pending == 0:
            _finish(access, gathered)
            return None
        access.pending -= 1
    elif operation == "LOAD_FAST_LOAD_FAST" and access.owner is None:
        access.owner = code.co_varnames[argument >> 4]  # the second one is the attribute's name
    elif operation == "LOAD_CONST":
        constant = code.co_consts[argument]
        if access.owner is not None and access.name is None and isinstance(constant, str):
            access.name = constant
    elif starts_call(operation, argument):
        _nest(access)
    elif access.owner is None:
        access.owner = owner
    elif operation in ("BUILD_STRING", "FORMAT_VALUE", "FORMAT_SIMPLE", "BINARY_OP"):
        if access.name is not None:  # the constant may be the name, or a part of it
            gathered.accesses.add((access.owner if access.simple and access.owner else UNKNOWN, access.name))
        access.name = None
    elif operation == "BINARY_SUBSCR" and access.name is None:
        access.simple = False
    return access


def _nest(access: Access) -> None:
    access.pending += 1
    if access.name is None:
        access.owner, access.simple = access.owner or UNKNOWN, False


def _finish(access: Access, gathered: Gathered, *, nested: bool = False) -> None:
    owner = access.owner if access.simple and access.owner is not None and not nested else UNKNOWN
    if access.name is None:
        gathered.whole.add(owner)
    else:
        gathered.accesses.add((owner, access.name))


def _note(code: CodeType, operation: str, argument: int, name: str, previous: str, gathered: Gathered) -> None:
    """What else an instruction says."""
    if operation in ("STORE_ATTR", "DELETE_ATTR"):
        gathered.stored_attributes.add(name)
    elif operation in ("STORE_GLOBAL", "DELETE_GLOBAL"):
        gathered.stored_globals.add(name)
    elif operation in _CELL_STORES:
        gathered.stored_cells.add(cell_name(code, argument))
    elif operation == "STORE_FAST":
        gathered.stored_locals.add(code.co_varnames[argument])
    elif operation in ("STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"):
        gathered.stored_locals.add(code.co_varnames[argument >> 4])
        gathered.stored_locals.add(code.co_varnames[argument & 15])
    elif operation == "IS_OP":
        gathered.compares_identity |= previous != "LOAD_CONST"  # ``is None`` asks nothing about other objects
    elif operation == "MATCH_CLASS":
        tuples = (constant for constant in code.co_consts if isinstance(constant, tuple))
        gathered.matched.update(item for constant in tuples for item in constant if isinstance(item, str))
