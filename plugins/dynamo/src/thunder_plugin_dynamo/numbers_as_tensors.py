"""Conversion of floats that Dynamo passes as tensors back to numbers.

With dynamic shapes, a Python float that varies is an input of the graph, a float64 tensor without dimensions, and the
graph begins with its ``item``. Thunder uses the number as the input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def take_numbers(module: torch.fx.GraphModule) -> tuple[int, ...]:
    """Remove each ``item`` of such an input from the graph, in place; returns the positions of these inputs."""
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    indices = [position for position, node in enumerate(inputs) if _stands_for_number(node)]
    for position in indices:
        for user in list(inputs[position].users):
            user.replace_all_uses_with(inputs[position])
            module.graph.erase_node(user)
    return tuple(indices)


def _stands_for_number(node: torch.fx.Node) -> bool:
    value = node.meta.get("example_value")
    if not isinstance(value, torch.Tensor) or (value.dtype, value.dim()) != (torch.float64, 0) or not node.users:
        return False
    return all((user.op, user.target) == ("call_method", "item") for user in node.users)


def with_numbers(function: Callable[..., Any], positions: tuple[int, ...]) -> Callable[..., Any]:
    """``function`` for callers that pass tensors at these positions."""
    if not positions:
        return function

    def call(*args: Any) -> Any:
        return function(*[value.item() if place in positions else value for place, value in enumerate(args)])

    return call
