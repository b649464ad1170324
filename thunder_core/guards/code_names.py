"""What a code object may read: the names in its bytecode.

Names are collected, not interpreted, and nested code (lambdas, comprehensions, generators) counts as part of the code
around it. That over-approximates what one execution reads.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from dataclasses import dataclass, replace
from types import CodeType

from thunder_core.guards.abstract_stack import UNKNOWN
from thunder_core.guards.bytecode import Gathered, gather
from thunder_core.guards.code_kinds import CodeKind, kind_of
from thunder_core.guards.lookups import LOOKUPS, may_answer

_VARIADIC = 0x04
_KEYWORDS = 0x08
_GETTERS = frozenset({"attrgetter", "methodcaller"})
_IDENTITY = frozenset({"is_", "is_not"})
_MEMBERSHIP = frozenset(
    {"add", "contains", "count", "countOf", "dict", "discard", "eq", "frozenset", "fromkeys", "get", "index", "indexOf"}
    | {"ne", "pop", "remove", "set", "setdefault", "union", "update"}
)
_ERRORS = frozenset({"AttributeError", "Exception", "BaseException"})
_STATE = frozenset({"__getattribute__", "__getstate__", "__reduce__", "__reduce_ex__"})
_CHANGES = frozenset({"__setattr__", "__delattr__"})


@dataclass(frozen=True, slots=True, eq=False)
class CodeNames:
    """Names in one code object, nested code included.

    An *owner* is the variable or attribute that an object was reached through, or empty when that is not known.

    Attributes:
        arguments: its parameters.
        free: variables it closes over.
        attributes: attributes it loads, from whatever object.
        probes: owners and attributes whose absence it may notice (``getattr`` with a default, ``hasattr``, ``try``).
        whole: owners of which it may read any attribute (``vars``, ``__dict__``, ``getattr`` with a computed name).
        reads_order: it may read in which order an object got its attributes.
        keys: by label of a dictionary, the constant keys that it looks up.
        read_whole: labels of containers that it also reads in other ways than by a constant key.
        used: labels of containers that it does more with than appending.
        chains: global names with the attributes that are loaded right from them: ``("F", "relu")``.
        imports: level, module and names of the import statements.
        asks_class: it may read the class of an object.
        uses_class: it may use such a class for more than its name.
        stored_globals, stored_cells: variables it rebinds.
        stored_attributes: attributes it assigns or deletes, of whatever object.
        compares_identity: it compares two objects by ``is``.
        compares_objects: it compares objects by ``==``, or looks for them in containers.
        shallow: it is PyTorch's own module code, which reads the module it belongs to and no further.
        of_lookup: for ``__getattr__`` and ``__getattribute__`` that guards may call, the names without ``whole``: which
            attributes are read follows from the names in the calling code. None for other code.
    """

    arguments: tuple[str, ...]
    free: tuple[str, ...]
    attributes: frozenset[str]
    probes: frozenset[tuple[str, str]]
    whole: frozenset[str]
    reads_order: bool
    keys: dict[str, tuple[Hashable, ...]]
    read_whole: frozenset[str]
    used: frozenset[str]
    chains: tuple[tuple[str, ...], ...]
    imports: tuple[tuple[int, str, tuple[str, ...]], ...]
    asks_class: bool
    uses_class: bool
    stored_globals: frozenset[str]
    stored_cells: frozenset[str]
    stored_attributes: frozenset[str]
    compares_identity: bool
    compares_objects: bool
    shallow: bool
    of_lookup: CodeNames | None

    def probed(self, label: str | None) -> list[str]:
        """Attributes whose absence may be noticed on an object reached as ``label`` (None: in an unknown way)."""
        return sorted({name for owner, name in self.probes if label is None or owner in (label, UNKNOWN)})

    def keys_of(self, label: str | None) -> tuple[Hashable, ...] | None:
        """The keys that it looks up in a dictionary reached as ``label``; None when it may read all of it."""
        if label is None or label in self.read_whole:
            return None
        return self.keys.get(label, ())

    def only_appends(self, label: str | None) -> bool:
        """Whether it does nothing with a list reached as ``label`` but append to it, if anything."""
        return label is not None and label not in self.used

    def reads_whole(self, label: str | None) -> bool:
        """Whether any attribute may be read of an object reached as ``label``."""
        return bool(self.whole) and (label is None or label in self.whole or UNKNOWN in self.whole)


_cache: dict[int, tuple[weakref.ref[CodeType], CodeNames]] = {}


def names_of(code: CodeType) -> CodeNames:
    """The names in ``code``; computed once for each code object."""
    key = id(code)
    known = _cache.get(key)
    if known is not None and known[0]() is code:
        return known[1]
    names = _build(code, gather(code))

    def forget(reference: weakref.ref[CodeType]) -> None:
        entry = _cache.get(key)
        if entry is not None and entry[0] is reference:
            del _cache[key]

    _cache[key] = (weakref.ref(code, forget), names)
    return names


def _build(code: CodeType, gathered: Gathered) -> CodeNames:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & _VARIADIC) + bool(code.co_flags & _KEYWORDS)
    arguments = code.co_varnames[:count]
    loaded = {name for _, name in gathered.loads}
    globals_loaded = {chain[0] for chain in gathered.chains}
    named = loaded | globals_loaded
    probes = set(gathered.accesses)
    if globals_loaded & _ERRORS:
        probes |= gathered.guarded
    if (loaded | globals_loaded) & _GETTERS:
        probes |= {(UNKNOWN, name) for name in gathered.strings}
    # What a local variable holds is not known by its name.
    known = {*arguments, *code.co_freevars, *globals_loaded, *loaded} - gathered.stored_locals
    asks_for_state = bool(named & _STATE) or "__dict__" in gathered.strings
    whole = gathered.whole | {UNKNOWN} if asks_for_state else gathered.whole
    whole = set() if code.co_name in _CHANGES else whole  # the names in the code that asks say which
    names = CodeNames(
        arguments=arguments,
        free=code.co_freevars,
        attributes=frozenset(loaded | {name for _, name in probes} | gathered.matched),
        probes=frozenset((owner if owner in known else UNKNOWN, name) for owner, name in probes),
        whole=frozenset(owner if owner in known else UNKNOWN for owner in whole),
        reads_order=asks_for_state or not named.isdisjoint({"vars", "__dict__"}),
        keys={label: tuple(sorted(keys, key=repr)) for label, keys in gathered.dictionaries.keys.items()},
        read_whole=frozenset(gathered.dictionaries.whole),
        used=frozenset(gathered.dictionaries.used),
        chains=tuple(gathered.chains),
        imports=tuple(gathered.imports),
        asks_class="__class__" in loaded or "type" in globals_loaded,
        uses_class="__class__" in loaded or gathered.uses_class,
        stored_globals=frozenset(gathered.stored_globals),
        stored_cells=frozenset(gathered.stored_cells),
        stored_attributes=frozenset(gathered.stored_attributes),
        compares_identity=gathered.compares_identity or bool(named & _IDENTITY),
        compares_objects=gathered.compares_objects or bool(named & _MEMBERSHIP),
        shallow=kind_of(code) is CodeKind.MODULE,
        of_lookup=None,
    )
    answers = code.co_name in LOOKUPS and may_answer(code)
    return replace(names, of_lookup=replace(names, whole=frozenset())) if answers else names
