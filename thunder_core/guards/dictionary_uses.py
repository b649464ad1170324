"""Which keys code asks of the dictionaries that it names: ``table["a"]``, ``table.get("a")``, ``"a" in table``.

A dictionary that is used in another way (iterated, passed on, kept in a variable) may be read as a whole. Labels are
those of `thunder_core.guards.bytecode`: the variable or attribute that an object is loaded from, or ``['a']`` for the
entry of another dictionary.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

_METHODS = frozenset(name for name in dir(dict))
_SUBSCRIPTS = frozenset({"BINARY_SUBSCR", "STORE_SUBSCR", "COPY"})  # a deletion may change the order of all keys
_APPENDS = frozenset({"append", "extend"})
_NOTHING: Any = object()


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        loads: the variables, or the attribute, that it loads; the last is on top of the stack.
        attribute: it loads an attribute of what the instruction before loaded.
        constant: the constant that it loads, if any.
    """

    operation: str
    loads: tuple[str, ...] = ()
    attribute: bool = False
    constant: Any = _NOTHING


@dataclass(slots=True)
class DictionaryUses:
    """Keys by label, and the labels of which anything may be read.

    Attributes:
        used: labels that are not only appended to.
    """

    keys: dict[str, set[Hashable]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)

    def add(self, instructions: Sequence[Instruction]) -> None:
        """Take the uses in one code object in."""
        label = ""  # of the object on top of the stack
        before: Any = _NOTHING  # the constant under it
        skipped = False
        ended = Instruction("")
        for index, instruction in enumerate(instructions):
            if skipped:
                skipped = False
                continue
            following = instructions[index + 1] if index + 1 < len(instructions) else ended
            if label:
                if not (instruction.attribute and instruction.loads[-1] in _APPENDS):
                    self.used.add(label)
                key = self._key(label, instruction, following, before)
                if key is _NOTHING:
                    if not instruction.attribute or instruction.loads[-1] in _METHODS:
                        self.whole.add(label)
                else:
                    self.keys.setdefault(label, set()).add(key)
                    skipped = following.operation == "BINARY_SUBSCR"
                    label = f"[{key!r}]" if skipped else ""
                    continue
            self.whole.update(instruction.loads[:-1])
            self.used.update(instruction.loads[:-1])
            if instruction.loads and not instruction.attribute:
                before = instructions[index - 1].constant if index else _NOTHING
            label = instruction.loads[-1] if instruction.loads else ""

    @staticmethod
    def _key(label: str, instruction: Instruction, following: Instruction, before: Any) -> Any:
        """The key that is asked of the object on top of the stack."""
        constant: Any = _NOTHING
        if instruction.attribute and instruction.loads[-1] == "get":
            constant = following.constant
        elif instruction.constant is not _NOTHING and following.operation in _SUBSCRIPTS:
            constant = instruction.constant
        elif instruction.operation == "CONTAINS_OP":
            constant = before
        return constant if isinstance(constant, Hashable) else _NOTHING
