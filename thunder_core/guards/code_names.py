"""What a code object may read: the names in its bytecode.

Names are collected, not interpreted: which object a name is read from is left open, and nested code (lambdas,
comprehensions, generators) counts as part of the code around it. That over-approximates what one execution reads.
"""

from __future__ import annotations

import dis
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

from thunder_core.guards.code_kinds import CodeKind, kind_of

_VARIADIC = 0x04
_KEYWORDS = 0x08
_NAME_SHIFT = {"LOAD_GLOBAL": 1}
if sys.version_info >= (3, 12):
    _NAME_SHIFT |= {"LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2}

_ATTRIBUTE_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"})
_GLOBAL_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_NAME_OPERATIONS = (
    _ATTRIBUTE_LOADS
    | _GLOBAL_LOADS
    | {"STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "IMPORT_FROM"}
)
_PROBES = frozenset({"getattr", "hasattr", "attrgetter"})
_WHOLE = frozenset({"vars", "dir", "__dict__"})
_ENVIRONMENT = frozenset({"environ", "getenv"})
_ACCESSORS = frozenset({"getattr", "hasattr", "setattr", "delattr"})
_CALLS = frozenset({"CALL", "PRECALL", "CALL_FUNCTION_EX", "CALL_KW"})
_STRING_BUILDERS = frozenset({"BUILD_STRING", "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "BINARY_OP"})
_LOOKUPS = frozenset({"__getattr__", "__getattribute__"})
_ERRORS = frozenset({"AttributeError", "Exception", "BaseException"})


@dataclass(frozen=True, slots=True, eq=False)
class CodeNames:
    """Names in one code object, nested code included.

    Attributes:
        arguments: its parameters.
        free: variables it closes over.
        attributes: attributes it loads, from whatever object.
        probes: attributes whose absence it may notice (``getattr`` with a default, ``hasattr``, ``try``).
        whole: it may read any attribute (``vars``, ``__dict__``, ``getattr`` with a computed name).
        chains: global names with the attributes that are loaded right from them: ``("F", "relu")``.
        stored_globals, stored_cells: variables it rebinds.
        environment: strings that may be names of environment variables.
        compares_identity: it uses ``is`` on something.
        shallow: it is PyTorch's own module code, which reads the module it belongs to and no further.
    """

    arguments: tuple[str, ...]
    free: tuple[str, ...]
    attributes: frozenset[str]
    probes: frozenset[str]
    whole: bool
    chains: tuple[tuple[str, ...], ...]
    stored_globals: frozenset[str]
    stored_cells: frozenset[str]
    environment: frozenset[str]
    compares_identity: bool
    shallow: bool


_cache: dict[int, tuple[weakref.ref[CodeType], CodeNames]] = {}


def names_of(code: CodeType) -> CodeNames:
    """The names in ``code``; computed once for each code object."""
    known = _cache.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    names = _collect(code)
    key = id(code)

    def forget(reference: weakref.ref[CodeType]) -> None:
        entry = _cache.get(key)
        if entry is not None and entry[0] is reference:
            del _cache[key]

    _cache[key] = (weakref.ref(code, forget), names)
    return names


def _instructions(code: CodeType) -> Iterator[tuple[str, int]]:
    """``(operation, argument)`` of each instruction. The ``dis`` module's own walk is ten times slower."""
    extended = 0
    raw = code.co_code
    for position in range(0, len(raw), 2):
        operation = dis.opname[raw[position]]
        if operation == "CACHE":
            continue
        argument = raw[position + 1] | extended
        if operation == "EXTENDED_ARG":
            extended = argument << 8
            continue
        extended = 0
        yield operation, argument


def _collect(code: CodeType) -> CodeNames:
    collector = _Collector()
    collector.scan(code)
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & _VARIADIC) + bool(code.co_flags & _KEYWORDS)
    strings = frozenset(collector.strings)
    globals_loaded = {chain[0] for chain in collector.chains}
    named = collector.attributes | globals_loaded
    probes: set[str] = set()
    if named & _PROBES:
        probes |= strings
    if collector.catches and globals_loaded & _ERRORS:
        probes |= collector.attributes
    return CodeNames(
        arguments=code.co_varnames[:count],
        free=code.co_freevars,
        attributes=frozenset(collector.attributes | (probes & strings) | collector.matched),
        probes=frozenset(probes),
        # lookup of one attribute for somebody else, whose own names say which
        whole=code.co_name not in _LOOKUPS and (collector.whole or bool(named & _WHOLE)),
        chains=tuple(collector.chains),
        stored_globals=frozenset(collector.stored_globals),
        stored_cells=frozenset(collector.stored_cells),
        environment=strings if named & _ENVIRONMENT else frozenset(),
        compares_identity=collector.compares_identity,
        shallow=kind_of(code) is CodeKind.MODULE,
    )


class _Collector:
    """Gathers names over a code object and the code objects in its constants."""

    def __init__(self) -> None:
        self.attributes: set[str] = set()
        self.strings: set[str] = set()
        self.matched: set[str] = set()
        self.chains: dict[tuple[str, ...], None] = {}
        self.stored_globals: set[str] = set()
        self.stored_cells: set[str] = set()
        self.whole = False
        self.catches = False
        self.compares_identity = False

    def scan(self, code: CodeType) -> None:
        self.catches |= bool(code.co_exceptiontable)
        chain: tuple[str, ...] = ()
        probing = False  # between the load of getattr and its call
        constant_name = False  # and a constant string was seen since
        previous = ""
        for operation, argument in _instructions(code):
            name = ""
            if operation in _NAME_OPERATIONS:
                name = code.co_names[argument >> _NAME_SHIFT.get(operation, 0)]
            if operation in _ATTRIBUTE_LOADS:
                previous = operation
                self.attributes.add(name)
                if chain:
                    chain = (*chain, name)
                continue
            if chain:
                self.chains[chain] = None
            chain = (name,) if operation in _GLOBAL_LOADS else ()
            if chain and name in _ACCESSORS:
                probing, constant_name = True, False
            elif operation == "LOAD_CONST":
                constant_name = probing and (constant_name or isinstance(code.co_consts[argument], str))
            elif probing and (operation in _CALLS or operation in _STRING_BUILDERS):
                self.whole |= operation in _STRING_BUILDERS or not constant_name
                probing = False
            else:
                self._scan_other(code, operation, argument, name, previous)
            previous = operation
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self.scan(constant)
            elif isinstance(constant, str) and constant.isidentifier():
                self.strings.add(constant)

    def _scan_other(self, code: CodeType, operation: str, argument: int, name: str, previous: str) -> None:
        if operation in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            self.stored_globals.add(name)
        elif operation in ("STORE_DEREF", "DELETE_DEREF"):
            self.stored_cells.add(_cell_name(code, argument))
        elif operation == "IS_OP":
            self.compares_identity |= previous != "LOAD_CONST"  # ``is None`` asks nothing about other objects
        elif operation == "MATCH_CLASS":
            tuples = (constant for constant in code.co_consts if isinstance(constant, tuple))
            self.matched.update(item for constant in tuples for item in constant if isinstance(item, str))


def _cell_name(code: CodeType, index: int) -> str:
    """The variable behind operand ``index`` of a cell instruction: locals, then new cells, then free variables."""
    own = [name for name in code.co_cellvars if name not in code.co_varnames]
    return (*code.co_varnames, *own, *code.co_freevars)[index]
