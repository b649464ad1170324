"""Nodes: the Python objects that a program reads, with their contents at the first visit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from thunder_core.checks.source import Source, item_source
from thunder_frontend.observe.code_names import CodeNames
from thunder_frontend.observe.contents import Change, NodeKind, Table


@dataclass(slots=True, eq=False)
class Node:
    """A visited object.

    Attributes:
        object: the object. The reference keeps its id unique until the observation ends.
        source: the path of its first visit.
        kind: how its contents are read.
        recorded: the contents of its tables at the first visit.
        followed: by id, the `CodeNames` that were followed from it.
        changed_by: by key, the `CodeNames` of code that has stored objects in it since the first visit.
        guarded: the names of its guarded attributes.
        probed: ids of `CodeNames` and labels for which computed names and absence were guarded.
        called: a module or function that was called.
        reached: a module with a guard on its class, or a container or buffer with guards on its whole content.
        guarded_keys: the keys of a dictionary with guards on single items.
        parent: the parent of a submodule.
        depth: the number of computed attributes on its path.
    """

    object: Any
    source: Source
    kind: NodeKind
    recorded: tuple[Any, ...]
    followed: dict[int, CodeNames] = field(default_factory=dict)
    changed_by: dict[object, CodeNames] = field(default_factory=dict)
    guarded: set[str] = field(default_factory=set)
    probed: set[tuple[int, str | None]] = field(default_factory=set)
    called: bool = False
    reached: bool = False
    guarded_keys: set[Any] = field(default_factory=set)
    parent: Node | None = None
    depth: int = 0

    @property
    def attributes(self) -> dict[str, Any]:
        """The recorded attributes; for modules without `MODULE_DICTIONARIES`."""
        attributes: dict[str, Any] = self.recorded[0]
        return attributes

    @property
    def content(self) -> Any:
        """The recorded items of a container."""
        return self.recorded[1]

    @property
    def dictionaries(self) -> tuple[dict[str, Any], ...]:
        """The recorded `MODULE_DICTIONARIES` of a module."""
        return self.recorded[1:-1]

    def contents(self) -> Iterator[tuple[Table, Any]]:
        """The tables of the object, with their recorded contents."""
        return zip(self.kind.tables, self.recorded, strict=True)

    def changes(self) -> Iterator[tuple[Source, Change]]:
        """The changes of the object since the first visit, with their paths."""
        for table, recorded in self.contents():
            for change in table.changes(self.object, recorded):
                yield table.path(self.object, self.source, change.key), change

    def attribute_source(self, name: str) -> Source:
        """The path to an attribute that the object stores in ``__dict__`` or in a slot."""
        return self.kind.tables[0].path(self.object, self.source, name)

    def items(self) -> Iterator[tuple[Any, Any, Source]]:
        """Key, value and path of each item in the recorded content of a dictionary or sequence."""
        if self.kind is NodeKind.DICTIONARY or self.kind is NodeKind.SEQUENCE:
            items = self.content.items() if self.kind is NodeKind.DICTIONARY else enumerate(self.content)
            for key, value in items:
                yield key, value, item_source(self.object, self.source, key)


def make_node(value: Any, source: Source, kind: NodeKind) -> Node:
    """A node with a shallow copy of the current contents of ``value``."""
    return Node(value, source, kind, tuple([table.read(value) for table in kind.tables]))
