"""Guards on identity for programs that compare objects: which paths lead to different objects, and to which ones."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from thunder_core.guards.check import Check
from thunder_core.guards.conditions import DISTINCT, IDENTITY, NOT_AMONG, identity_check
from thunder_core.guards.guard import Guard
from thunder_core.guards.node import Node, NodeKind
from thunder_core.guards.source import PATH_ERRORS, Args, Kwargs, Names, Source, is_argument
from thunder_core.guards.tensor_index import TensorIndex

_CONTAINERS = (NodeKind.DICTIONARY, NodeKind.SEQUENCE, NodeKind.SET)
_OBJECTS = (NodeKind.OBJECT, NodeKind.MODULE, NodeKind.FUNCTION, NodeKind.OPAQUE)


@dataclass(frozen=True, slots=True, eq=False)
class DistinctGuard(Guard):
    """Paths that lead to different objects, all of them.

    Attributes:
        others: the paths after the first.
    """

    others: tuple[Source, ...]
    kind: ClassVar[str] = "distinct"

    @property
    def paths(self) -> tuple[Source, ...]:
        return self.others

    def summary(self) -> str:
        return ", ".join(source.describe() for source in self.others)

    def violation(self, args: Args, kwargs: Kwargs) -> str | None:
        known: dict[int, Source] = {}
        for source in (self.source, *self.others):
            try:
                value = source.read(args, kwargs)
            except PATH_ERRORS as error:
                return f"{source.describe()}: is missing ({error})"
            other = known.setdefault(id(value), source)
            if other is not source:
                return f"{source.describe()}: is now the same object as {other.describe()}"
        return None

    def failure(self, value: str, names: Names) -> str:
        identities = ", ".join(f"id({path})" for path in (value, *(other.expression(names) for other in self.others)))
        return f"len({{{identities}}}) != {len(self.others) + 1}"


class DistinctObjects:
    """What the program may have compared by identity.

    A path that leads to an object that is known by another path has a guard of its own (`ALIAS`). What remains are
    different objects, which must stay different, and objects whose very identity was read.

    Attributes:
        compares_identity: observed code compares objects by ``is``.
        compares_objects: observed code compares objects by ``==`` or looks for them in containers, which compares those
            without an equality of their own by identity.
        wrote_arguments: the program changed an object among, or in, the arguments.
    """

    def __init__(self) -> None:
        self.compares_identity = False
        self.compares_objects = False
        self.wrote_arguments = False
        self._identified: dict[int, Callable[[], Any]] = {}
        self._members: dict[int, Any] = {}
        self._hashed: dict[int, weakref.ref[torch.Tensor]] = {}

    def identified(self, value: Any) -> None:
        """The program read the identity of ``value``, by ``id``, or by ``hash`` of an object without one of its own."""
        try:
            self._identified[id(value)] = weakref.ref(value)  # the program may have made it, and drop it
        except TypeError:
            self._identified[id(value)] = lambda: value

    def members(self, values: Iterable[Any]) -> None:
        """Keys of a dictionary or items of a set that guards hold: what equals them is found."""
        for value in values:
            if isinstance(value, weakref.ref):  # which equals other references to the same object
                value = value()
            if isinstance(value, tuple | list):
                self.members(value)
            elif _compares_by_identity(value):
                self._members[id(value)] = value

    def hashed(self, tensor: torch.Tensor) -> None:
        """The program put a tensor into a set or a dictionary, or looked for it there."""
        self._hashed[id(tensor)] = weakref.ref(tensor)

    def guards(self, nodes: Iterable[Node], tensors: TensorIndex) -> Iterator[Guard]:
        """The guards; to be called when the program has run."""
        for key, reference in self._identified.items():
            value = reference()
            source = None if value is None else tensors.find(value)
            if source is not None:
                yield identity_check(source, value)
            self._members.pop(key, None)
        groups: dict[Any, list[tuple[Any, Source]]] = {}
        for node in nodes:
            if self._counts(node):
                groups.setdefault(_group(node), []).append((node.object, node.source))
        for reference in self._hashed.values():
            tensor = reference()
            source = None if tensor is None else tensors.find(tensor)
            if tensor is not None and source is not None:
                groups.setdefault(type(tensor), []).append((tensor, source))
        for tensor, source in tensors.known() if self.compares_identity else ():
            if is_argument(source) and id(tensor) not in self._hashed:
                groups.setdefault(type(tensor), []).append((tensor, source))
        for group in groups.values():
            yield from self._apart(group)

    def _counts(self, node: Node) -> bool:
        if node.kind in _CONTAINERS:
            return (self.compares_identity or self.wrote_arguments) and is_argument(node.source)
        if node.kind not in _OBJECTS:
            return False
        if self.wrote_arguments and is_argument(node.source):
            return True
        compared = self.compares_identity or (self.compares_objects and _compares_by_identity(node.object))
        return compared or id(node.object) in self._members

    def _apart(self, group: list[tuple[Any, Source]]) -> Iterator[Guard]:
        """Objects that could be the same one stay different ones; members of guarded containers stay who they are."""
        kinds = {type(value) for value, _ in group}
        members = {key: value for key, value in self._members.items() if type(value) in kinds}
        others = []
        for value, source in group:
            if id(value) in members:
                yield Check(source, IDENTITY, value)
                continue
            others.append((value, source))
            if members:
                yield Check(source, NOT_AMONG, members)
        arguments = [source for _, source in others if is_argument(source)]
        if not arguments and any(isinstance(value, torch.nn.Module) for value, _ in others):
            return  # the parts of a model
        sources = list(dict.fromkeys(source for _, source in others))
        if len(sources) == 2:
            yield Check(sources[0], DISTINCT, sources[1])
        elif len(sources) > 2:
            yield DistinctGuard(sources[0], tuple(sources[1:]))


def _group(node: Node) -> Any:
    """What objects that could be one and the same have in common, by the other guards on them."""
    kind = type(node.object)
    return (kind, id(node.object.__code__)) if node.kind is NodeKind.FUNCTION else kind


def _compares_by_identity(value: Any) -> bool:
    kind: Any = type(value)
    return kind.__eq__ is object.__eq__ or isinstance(value, torch.Tensor)
