"""Guards on identity for programs that compare objects: on paths to different objects, and on identities."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import DISTINCT, NOT_AMONG, identity_check
from thunder_core.checks.distinct_guard import DistinctGuard
from thunder_core.checks.guard import Guard
from thunder_core.checks.source import Source, StoredAttributeSource, is_argument
from thunder_frontend.observe.contents import CONTAINERS, MODULE_DICTIONARIES, NodeKind
from thunder_frontend.observe.node import Node
from thunder_frontend.observe.tensor_index import TensorIndex

_OBJECTS = (NodeKind.OBJECT, NodeKind.MODULE, NodeKind.FUNCTION, NodeKind.OPAQUE)


class DistinctObjects:
    """The objects that a program may have compared by identity.

    If two paths lead to one object, an `ALIAS` check guards that. This class adds the guards that different objects
    stay different, and that objects whose identity was read stay the same.

    Attributes:
        compares_identity: whether executed code compares objects by ``is``.
        compares_objects: whether executed code compares objects by ``==`` or searches them in containers, which may
            compare them by identity.
        wrote_arguments: whether the program changed an argument, or an object in one.
        rebuilt: tuples with numbers that vary, and their paths: the program got other tuples.
    """

    def __init__(self) -> None:
        self.compares_identity = False
        self.compares_objects = False
        self.wrote_arguments = False
        self.rebuilt: list[tuple[Any, Source]] = []
        self._identified: dict[int, Callable[[], Any]] = {}
        self._members: dict[int, Any] = {}
        self._hashed: dict[int, weakref.ref[torch.Tensor]] = {}

    def identified(self, value: Any) -> None:
        """The program read the identity of ``value`` by ``id``, or by the default ``hash``."""
        try:
            self._identified[id(value)] = weakref.ref(value)  # the program may have created it, and release it
        except TypeError:
            self._identified[id(value)] = lambda: value

    def members(self, values: Iterable[Any]) -> None:
        """Add keys of a dictionary or items of a set, with which the container compares other objects."""
        for value in values:
            if isinstance(value, weakref.ref):  # equal to other references to the same object
                value = value()
            if isinstance(value, tuple | list):
                self.members(value)
            elif _compares_by_identity(value):
                self._members[id(value)] = value

    def hashed(self, tensor: torch.Tensor) -> None:
        """The program added a tensor to a set or a dictionary, or searched it there."""
        self._hashed[id(tensor)] = weakref.ref(tensor)

    def guards(self, nodes: Iterable[Node], tensors: TensorIndex) -> Iterator[Guard]:
        """The guards, after the run of the program."""
        for key, reference in self._identified.items():
            value = reference()
            source = None if value is None else tensors.find(value)
            if source is not None:
                yield identity_check(source, value)
            self._members.pop(key, None)
        groups: dict[Any, list[tuple[Any, Source]]] = {}
        for node in nodes:
            if self._is_compared(node):
                groups.setdefault(_group(node), []).append((node.object, node.source))
        if self.compares_identity:
            groups[tuple] = self.rebuilt
        for reference in self._hashed.values():
            tensor = reference()
            source = None if tensor is None else tensors.find(tensor)
            if tensor is not None and source is not None:
                groups.setdefault(type(tensor), []).append((tensor, source))
        for tensor, source in tensors.known() if self.compares_identity else ():
            of_module = isinstance(source, StoredAttributeSource) and source.dictionary in MODULE_DICTIONARIES
            if not of_module and id(tensor) not in self._hashed:
                groups.setdefault(type(tensor), []).append((tensor, source))
        for group in groups.values():
            yield from self._apart(group)
        self._members.clear()  # a weak dictionary must be able to release its keys

    def _is_compared(self, node: Node) -> bool:
        if node.kind in CONTAINERS:
            return (self.compares_identity or self.wrote_arguments) and is_argument(node.source)
        if node.kind not in _OBJECTS:
            return False
        if self.wrote_arguments and is_argument(node.source):
            return True
        compared = self.compares_identity or (self.compares_objects and _compares_by_identity(node.object))
        return compared or id(node.object) in self._members

    def _apart(self, group: list[tuple[Any, Source]]) -> Iterator[Guard]:
        """Guard that the objects of a group stay different, and that members of containers stay the same objects."""
        kinds = {type(value) for value, _ in group}
        members = {key: value for key, value in self._members.items() if type(value) in kinds}
        others = []
        for value, source in group:
            if id(value) in members:
                yield identity_check(source, value)
                continue
            others.append((value, source))
            if members:
                yield Check(source, NOT_AMONG, frozenset(members))
        arguments = [source for _, source in others if is_argument(source)]
        if not arguments and any(isinstance(value, torch.nn.Module) for value, _ in others):
            return  # the modules of a model
        sources = list(dict.fromkeys(source for _, source in others))
        if len(sources) == 2:
            yield Check(sources[0], DISTINCT, sources[1])
        elif len(sources) > 2:
            yield DistinctGuard(sources[0], tuple(sources[1:]))


def _group(node: Node) -> Any:
    """A key that is equal for objects that could be the same object according to all other guards."""
    kind = type(node.object)
    return (kind, id(node.object.__code__)) if node.kind is NodeKind.FUNCTION else kind


def _compares_by_identity(value: Any) -> bool:
    kind: Any = type(value)
    return kind.__eq__ is object.__eq__ or issubclass(kind, torch.Tensor)
