"""Attributes that code asks one object for by other means than their plain name, and the absence of attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.overrides import TorchFunctionMode

from thunder_core.guards.check import Check
from thunder_core.guards.code_names import CodeNames
from thunder_core.guards.conditions import NO_ATTRIBUTE, not_its_own
from thunder_core.guards.heap import MODULE_SOURCES, Heap
from thunder_core.guards.node import MODULE_DICTIONARIES, Node, NodeKind
from thunder_core.guards.source import ConstantSource

if TYPE_CHECKING:
    from thunder_core.guards.following import Following

MISSING = object()
"""What an object has that lacks an attribute, and a Python module that lacks a variable."""
COMPUTED = object()
"""An attribute that is computed from tensors, or is one that is computed."""
MODULE_ATTRIBUTES = frozenset(dir(torch.nn.Module))


class DynamicReads:
    """Reads for ``getattr``, ``hasattr``, ``vars``, ``__dict__`` and ``except AttributeError``."""

    def __init__(self, heap: Heap, following: Following) -> None:
        self._heap = heap
        self._following = following
        self._absent: set[tuple[type, str]] = set()

    def read(self, node: Node, names: CodeNames, label: str | None) -> None:
        """Guard what may be asked for by computed names or with a default, its absence included."""
        key = (id(names), label)
        if key in node.asked:
            return
        node.asked.add(key)
        if names.reads_whole(label):
            self._whole(node, names)
        for name in names.probed(label):
            if name not in node.edges and name not in node.attributes:
                self._probe(node, name)

    def _whole(self, node: Node, names: CodeNames) -> None:
        if node.kind is NodeKind.CLASS:
            self._following.classes.read_whole(node, names)
        if node.kind not in (NodeKind.MODULE, NodeKind.OBJECT):
            return
        self._following.attributes_of(node, tuple(node.attributes), names, labelled=False)
        self._heap.objects.guard_attribute_names(node, ordered=names.reads_order)
        if node.kind is NodeKind.MODULE:
            for content, step in zip(node.content, MODULE_SOURCES, strict=True):
                self._following.modules.guard_keys(node, step.dictionary, content)
                for name, value in content.items():
                    self._following.modules.entry(node, step, name, value, names)

    def _probe(self, node: Node, name: str) -> None:
        """Guard that the object has no such attribute."""
        kind = type(node.object)
        if name in self._following.classes.names.of(kind):
            return
        if node.kind is NodeKind.MODULE:
            if name in MODULE_ATTRIBUTES or any(name in content for content in node.content):
                return
            if ask(node.object, name) is MISSING:
                node.edges.add(name)
                for dictionary in ("__dict__", *MODULE_DICTIONARIES):
                    self._heap.guards.append(not_its_own(node.source, name, dictionary))
                self._absent_on_class(kind, name)
        elif ask(node.object, name) is MISSING:
            node.edges.add(name)
            self._heap.guards.append(Check(node.source, NO_ATTRIBUTE, name))

    def _absent_on_class(self, kind: type, name: str) -> None:
        # what a metaclass offers (``__name__``, say) classes have and instances have not
        if (kind, name) not in self._absent and not hasattr(kind, name):
            self._absent.add((kind, name))
            self._heap.guards.append(Check(ConstantSource(kind, kind.__name__), NO_ATTRIBUTE, name))


def ask(value: Any, name: str) -> Any:
    """The attribute, computed by the object's class; a marker when there is none, whatever the class says about it.

    Another marker stands for what takes tensors to compute. That is no read: when the program asks for it, the frame of
    the code that computes it is observed.
    """
    try:
        with _NoTensors():
            return getattr(value, name)
    except _ComputesTensors:
        return COMPUTED
    except Exception:  # noqa: BLE001  the user's code may raise anything, and would raise it again in the program
        return MISSING


class _ComputesTensors(BaseException):
    """No `Exception`: the user's code is not to handle it."""


class _NoTensors(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        raise _ComputesTensors
