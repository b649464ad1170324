"""The reads that a code object may execute, by the names in its bytecode.

The names over-approximate the reads of one execution: they do not depend on control flow, and include those in nested
code (lambdas, comprehensions, generators). `thunder_frontend.observe.bytecode.names_of` reads them.

A dictionary that the code iterates, passes to a function or assigns to a variable may be read as a whole. Dictionaries
are identified by the labels of `thunder_frontend.observe.abstract_stack.StackValue`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from thunder_frontend.observe.abstract_stack import UNKNOWN, StackValue

_METHODS = frozenset(dir(dict))
_APPENDS = frozenset({"append", "extend"})


@dataclass(slots=True)
class DictionaryUses:
    """The uses of containers in code.

    Attributes:
        keys: by label, the constant keys that the code reads or stores.
        whole: labels of containers of which the code may read any item.
        used: labels of containers that the code uses in other ways than by appending to them.
    """

    keys: dict[str, set[Hashable]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)

    def attribute_loaded(self, owner: StackValue, name: str) -> None:
        """An attribute is loaded. The method ``get`` counts when it is called."""
        if owner.label:
            if name not in _APPENDS:
                self.used.add(owner.label)
            if name in _METHODS and name != "get":
                self.whole.add(owner.label)

    def called(self, callee: StackValue, arguments: Sequence[StackValue]) -> None:
        """A function is called with positional arguments."""
        if callee.label == "get" and callee.owner is not None and arguments:
            self.entry_used(callee.owner, arguments[0])
        else:
            self.value_used(callee)

    def value_used(self, value: StackValue) -> None:
        """A value is used other than by an attribute load, a call or an item access."""
        self._used_whole(value.label)
        if value.label == "get" and value.owner is not None:  # the method of a dictionary, which is not called here
            self._used_whole(value.owner.label)

    def entry_used(self, container: StackValue, key: StackValue) -> None:
        """An item is read, stored, or searched with ``in``."""
        label = container.label
        if label and key.is_constant and isinstance(key.constant, Hashable):
            self.used.add(label)
            self.keys.setdefault(label, set()).add(key.constant)
        else:
            self._used_whole(label)

    def _used_whole(self, label: str) -> None:
        if label:
            self.used.add(label)
            self.whole.add(label)

    def keys_of(self, label: str | None) -> tuple[Hashable, ...] | None:
        """The keys that the code reads from a dictionary with this label; None if it may read all items."""
        if label is None or label in self.whole:
            return None
        return tuple(sorted(self.keys.get(label, ()), key=repr))

    def with_whole(self, labels: Set[str]) -> DictionaryUses:
        """These uses, and any use of all items of containers with these labels."""
        return replace(self, whole=self.whole | labels, used=self.used | labels)

    def only_appends(self, label: str | None) -> bool:
        """Whether the code uses a list with this label only to append to it, if at all."""
        return label is not None and label not in self.used


@dataclass(slots=True, eq=False)
class CodeNames:
    """The names in one code object, including nested code. It does not change after `names_of` has returned it.

    An *owner* is the label of the object from which an attribute is loaded: the variable or attribute from which that
    was loaded, or UNKNOWN.

    Attributes:
        arguments: the names of its parameters.
        free: the variables in its closure.
        attributes: the attributes that it loads from any object.
        probes: owners and attributes whose absence it may test (``getattr`` with a default, ``hasattr``, ``try``).
        whole: owners of which it may read any attribute (``vars``, ``__dict__``, ``getattr`` with a computed name).
        shown: owners whose content functions of C may read: the code formats or compares them.
        reads_order: it may read the order of the attributes of an object.
        dictionaries: its uses of dictionaries and lists.
        inspected: labels of the values that it uses otherwise than as an index or an argument of a function of PyTorch.
        chains: global variables with the attributes loaded from them without other operations: ``("F", "relu")``.
        imports: level, module and names of the import statements.
        reads_class: it may read the class of an object.
        uses_class: it may use such a class for more than its name.
        stored_globals, stored_cells, stored_locals: the variables that it assigns or deletes.
        stored_attributes: the attributes of any object that it assigns or deletes.
        deleted_attributes: those that it deletes.
        stores_items: it may store items in containers, other than constants.
        stores_computed: it may assign attributes whose names are not in ``stored_attributes``.
        assigns_by_key: it may assign attributes of computed names, by `setattr` or in a dictionary of attributes.
        deletes_by_key: it may delete such attributes.
        stores: it may store objects in objects or variables that it did not create.
        compares_identity: it compares two objects by ``is``.
        compares_bools: it compares an object with True or False by ``is``.
        compares_types: it reads the type of an object, whether it is callable, or its identity, except with None.
        compares_objects: it compares objects by ``==``, hashes them, or searches them in containers.
        raises: it has a ``raise`` statement.
        catches: it has an exception handler, at least that of a ``with`` statement.
        shallow: it is code of a module of PyTorch, which reads this module only.
        of_lookup: for ``__getattr__`` and ``__getattribute__`` that guards may call, the names without ``whole``: the
            names in the calling code determine the attributes. None for other code.
        key: an object that only the names of the same code share, as extended by getters.
    """

    arguments: tuple[str, ...]
    free: tuple[str, ...]
    shallow: bool
    attributes: set[str] = field(default_factory=set)
    probes: set[tuple[str, str]] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    reads_order: bool = False
    dictionaries: DictionaryUses = field(default_factory=DictionaryUses)
    inspected: set[str] = field(default_factory=set)
    chains: dict[tuple[str, ...], None] = field(default_factory=dict)
    imports: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)
    reads_class: bool = False
    uses_class: bool = False
    stored_globals: set[str] = field(default_factory=set)
    stored_cells: set[str] = field(default_factory=set)
    stored_locals: set[str] = field(default_factory=set)
    stored_attributes: set[str] = field(default_factory=set)
    deleted_attributes: set[str] = field(default_factory=set)
    stores_items: bool = False
    stores_computed: bool = False
    assigns_by_key: bool = False
    deletes_by_key: bool = False
    stores: bool = False
    compares_identity: bool = False
    compares_bools: bool = False
    compares_types: bool = False
    compares_objects: bool = False
    raises: bool = False
    catches: bool = False
    of_lookup: CodeNames | None = None
    key: object = field(default_factory=object)

    def variables(self, namespace: dict[str, Any]) -> Iterator[tuple[ModuleType | None, str, Any]]:
        """The global variables that it reads, and those that it reads from Python modules.

        Args:
            namespace: the global variables of the code.

        Returns:
            For each of `chains` the Python module of its last variable, or None for ``namespace``; its name and value.
        """
        for first, *attributes in self.chains:
            module, name, value = None, first, namespace.get(first)
            for attribute in attributes:
                if not issubclass(type(value), ModuleType):
                    break
                module, name, value = value, attribute, vars(value).get(attribute)
            yield module, name, value

    def with_attributes(self, names: Set[str]) -> CodeNames:
        """These names, and attributes that the code reads by other means than an attribute load, for any use."""
        return replace(
            self,
            attributes=self.attributes | names,
            dictionaries=self.dictionaries.with_whole(names),
            inspected=self.inspected | names,
        )

    def reads_namespace(self, label: str | None) -> bool:
        """Whether it reads the dictionary of variables of the object with this label; `getattr` reads single ones."""
        by_name = "__dict__" in self.attributes or any(chain[0] in ("vars", "dir") for chain in self.chains)
        return label in self.whole and by_name

    def label_of(self, name: str) -> str | None:
        """The label of an attribute; None if the code may read it by other means than an attribute load."""
        return None if any(name == probed for _, probed in self.probes) else name

    def reads_variable(self, name: str) -> bool:
        """Whether it may read a global or closure variable with this name, also as an attribute of a Python module."""
        return name in self.free or name in self.attributes or any(chain[0] == name for chain in self.chains)

    def reads(self, key: Any) -> bool:
        """Whether it may read this attribute of an object that it reaches; always for those that have no plain name."""
        special = not isinstance(key, str) or key.startswith("__")
        return special or bool(self.whole) or key in self.attributes or any(key == name for _, name in self.probes)

    def probed(self, label: str | None) -> list[str]:
        """The attributes whose absence it may test on an object. ``label`` is None if it is not known."""
        return sorted({name for owner, name in self.probes if label is None or owner in (label, UNKNOWN)})

    def reads_whole(self, label: str | None) -> bool:
        """Whether it may read any attribute of an object with this label."""
        return bool(self.whole) and (label is None or label in self.whole or UNKNOWN in self.whole)

    def shows(self, label: str | None) -> bool:
        """Whether it may format or compare an object with this label."""
        return bool(self.shown) and (label is None or label in self.shown or UNKNOWN in self.shown)
