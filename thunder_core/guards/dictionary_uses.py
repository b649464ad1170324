"""Which keys code reads of the dictionaries that it names: ``table["a"]``, ``table.get("a")``, ``"a" in table``.

A dictionary that is used in another way (iterated, passed on, assigned to a variable) may be read as a whole.
Dictionaries go by the labels of `thunder_core.guards.abstract_stack.StackValue`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from thunder_core.guards.abstract_stack import StackValue

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
