"""What code may read from objects that the program made."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable
from types import MethodType
from typing import Any

from thunder_core.guards.code_names import CodeNames
from thunder_core.guards.node import NodeKind, node_kind
from thunder_core.guards.stored_content import stored_items

_MOST_FRESH_ITEMS = 64


def parts_of_fresh(value: Any, names: CodeNames, label: str | None) -> Iterable[tuple[str | None, Any]]:
    """Its parts that may be read, with labels."""
    kind = type(value)
    if isinstance(value, dict):
        items = tuple(dict.values(value))
    elif isinstance(value, list | tuple | set | frozenset | collections.deque):
        items = stored_items(value)
    elif kind is MethodType:
        items = (value.__self__,)
    elif kind is functools.partial:
        items = (value.func, *value.args, *value.keywords.values())
    elif node_kind(value) in (NodeKind.OBJECT, NodeKind.MODULE):
        own = getattr(value, "__dict__", None) or {}
        read = own.keys() if names.reads_whole(label) else sorted(own.keys() & names.attributes)
        return [(name, own[name]) for name in tuple(read)]
    else:
        return ()
    return [(None, item) for item in items] if len(items) <= _MOST_FRESH_ITEMS else ()
