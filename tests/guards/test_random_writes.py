"""Random writes to nested containers and objects: undoing them, and repeating them, compared with eager."""

from __future__ import annotations

import array
import collections
import functools
import random
from types import CellType, FunctionType, SimpleNamespace

import pytest
import torch
from torch import nn

import thunder
from thunder_core.checks.source import ConstantSource
from thunder_frontend.observe.contents import node_kind
from thunder_frontend.observe.node import make_node


class Slotted:
    __slots__ = ("__dict__", "left", "right")


class Defaults:
    left = 1
    __setattr__ = None  # neither undoing a write nor repeating it calls methods of the class

    def __init__(self):
        vars(self).update(left=2, right=3)


class Named(dict):
    pass


class Attributes(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = 1, nn.Identity()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("total", torch.zeros(2))


def make():
    """A dictionary of one object of each kind, some of which are in others."""
    slotted = Slotted()
    slotted.left = [1]
    inner = {"a": 1, "b": 2.0, "c": "text"}

    def function(number=1):
        return number

    objects = {
        "dict": {"a": 1, "b": inner, "c": [1, 2], 4: None},
        "ordered": collections.OrderedDict(a=1, b=inner, c=3),
        "default": collections.defaultdict(list, a=[1], b=[2]),
        "named": Named(a=1, b=2),
        "list": [1, inner, (3, [4])],
        "deque": collections.deque([1, 2, 3], maxlen=5),
        "set": {1, "two", 3.0},
        "bytes": bytearray(b"bytes"),
        "array": array.array("d", [1.0, 2.5]),
        "namespace": SimpleNamespace(left=1, right=inner),
        "slotted": slotted,
        "defaults": Defaults(),
        "module": Attributes(),
        "layer": nn.ReLU(),
        "function": function,
        "partial": functools.partial(function, 2),
        "cell": CellType(1),
        "inner": inner,
    }
    objects["dict"]["d"] = objects["namespace"]
    return objects


VALUES = [
    "0",
    "1.5",
    "'new'",
    "None",
    "(1, 2)",
    "objects['inner']",
    "objects['list']",
    "[]",
    "{'k': [1]}",
    "float('nan')",
]


def statements(rng):
    """Random statements that write to ``objects``. A statement that raises an exception changes nothing."""

    def value():
        return rng.choice(VALUES)

    mapping = f"objects[{rng.choice(['dict', 'ordered', 'default', 'named', 'inner'])!r}]"
    holder = f"objects[{rng.choice(['namespace', 'slotted', 'named', 'module', 'function', 'partial'])!r}]"
    key, name = rng.choice("abcx"), rng.choice(["left", "right", "fresh"])
    return rng.choice(
        [
            f"{mapping}[{key!r}] = {value()}",
            f"{mapping}.pop({key!r}, None)",
            f"{mapping}[{key!r}] = {mapping}.pop({key!r}, {value()})",
            f"{mapping}.update({{'a': {value()}, 'y': {value()}}})",
            f"{mapping}.clear()",
            "objects['ordered'].move_to_end('a') if 'a' in objects['ordered'] else None",
            f"objects['default'][{key!r}].append(1) if {key!r} not in objects['default'] else None",
            f"objects['list'].append({value()})",
            f"objects['list'][0:1] = [{value()}, {value()}]",
            "objects['list'].reverse()",
            f"objects['list'].insert(0, {value()})",
            "objects['list'].pop() if objects['list'] else None",
            f"objects['deque'].appendleft({value()})",
            "objects['deque'].rotate(1)",
            f"objects['set'].add({rng.choice(['1', '5', '(1, 2)'])})",
            f"objects['set'].discard({rng.choice(['1', '3.0'])})",
            "objects['bytes'][0] = 9",
            "objects['bytes'].extend(b'more')",
            "objects['array'].append(2.0)",
            f"{holder}.{name} = {value()}",
            f"{holder}.__dict__.pop({name!r}, None)",
            "del objects['slotted'].left" if rng.random() < 0.2 else "pass",
            f"vars(objects['defaults'])['left'] = {value()}",
            "vars(objects['defaults']).pop('left', None)",
            f"objects['module'].total = {rng.choice(['None', 'torch.ones(2)'])}",
            "objects['module']._parameters['weight'] = objects['module']._parameters.pop('weight')",
            "objects['module'].add_module('other', objects['layer'])",
            "objects['module']._modules.pop('right', None)",
            f"{holder}.{name} = {holder}.__dict__.pop({name!r}, 0)",
            f"objects['function'].__defaults__ = ({value()},)",
            "objects['function'].__name__ = 'another'",
            f"objects['cell'].cell_contents = {value()}",
        ]
    )


def program(rng, count):
    lines = "\n".join(f"    try: {statements(rng)}\n    except (AttributeError, TypeError): pass" for _ in range(count))
    namespace = {"torch": torch}
    exec(f"def program(x, objects):\n{lines}\n    return x + 1", namespace)
    return namespace["program"]


def described(value, known):
    """Nested tuples, equal for objects with equal contents in equal order and the same objects in the same places."""
    if isinstance(value, torch.Tensor):
        return type(value), tuple(value.tolist())
    if isinstance(value, type) or value is None or isinstance(value, int | float | str | bytes):
        return repr(value)
    if id(value) in known:
        return known[id(value)]
    if not isinstance(value, tuple):
        known[id(value)] = len(known)
    parts = [type(value), getattr(value, "default_factory", None)]
    for name in ("left", "right") if isinstance(value, Slotted) else ():
        parts.append(described(getattr(value, name, "missing"), known))
    if isinstance(value, dict):
        parts += [(key, described(item, known)) for key, item in value.items()]
    elif isinstance(value, list | tuple | collections.deque):
        parts += [described(item, known) for item in value]
    elif isinstance(value, set):
        parts.append(frozenset(map(repr, value)))
    elif isinstance(value, bytearray | array.array):
        parts.append(repr(value))
    elif isinstance(value, CellType):
        parts.append(described(value.cell_contents, known))
    elif isinstance(value, FunctionType):
        parts += [value.__name__, described(value.__defaults__, known)]
    namespace = vars(value) if hasattr(value, "__dict__") else {}
    return (*parts, *((name, described(item, known)) for name, item in namespace.items()))


@pytest.mark.parametrize("seed", range(60))
def test_changes_lead_there_and_back(seed):
    rng, objects = random.Random(seed), make()
    nodes = [make_node(value, ConstantSource(value), node_kind(value)) for value in (objects, *objects.values())]
    before = described(objects, {})

    def changes(back):
        return [
            (node.object, table, list(table.changes(node.object, recorded, back=back)))
            for node in nodes
            for table, recorded in node.contents()
        ]

    def apply(changes):
        for value, table, steps in changes:
            for change in steps:
                table.put(value, change.key, change.now)

    program(rng, rng.randrange(1, 8))(torch.ones(2), objects)
    after = described(objects, {})
    writes = changes(back=False)
    apply(changes(back=True))
    assert described(objects, {}) == before
    apply(writes)
    assert described(objects, {}) == after


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.battery
def test_random_programs(seed):
    rng = random.Random(seed)
    eager = program(rng, 6)
    compiled, x = thunder.jit(eager), torch.ones(2)
    expected, objects = make(), make()
    for _ in range(3):
        assert torch.equal(compiled(x, objects), eager(x, expected))
        assert described(objects, {}) == described(expected, {})
