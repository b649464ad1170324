"""Calls in graphs that stand for something that Python code would do by several calls: they are replaced by that.

What replaces them is what users write, so it is recorded as theirs is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import torch.utils.checkpoint

from thunder_core.errors import UnsupportedError
from thunder_plugin_dynamo.pytorch_internals import (
    HigherOrderOperator,
    enter_autocast,
    exit_autocast,
    get_data_attr,
)
from thunder_plugin_dynamo.user_lines import user_line

_CONTEXTS: Final = "_checkpoint_context_fn"
"""Where Dynamo puts the ``context_fn`` of a checkpoint: in ``meta`` of the body."""


def checkpoint(body: torch.fx.GraphModule, *args: Any, **options: Any) -> Any:
    """``tag_activation_checkpoint``: the body as a checkpoint region, with the options that the user gave it."""
    if _CONTEXTS in body.meta:
        options["context_fn"] = body.meta[_CONTEXTS]
    return torch.utils.checkpoint.checkpoint(body, *args, **options)


def enter(device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None) -> Any:
    """``_enter_autocast``: the beginning of a ``with torch.autocast(...)``."""
    region = torch.autocast(device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
    region.__enter__()
    return region


def leave(region: Any) -> None:
    """``_exit_autocast``: its end."""
    region.__exit__(None, None, None)


def data_of(tensor: torch.Tensor) -> torch.Tensor:
    """``_get_data_attr``: what is written to it autograd does not see."""
    return tensor.data


def inline(body: Callable[..., Any], identifier: str, *args: Any) -> Any:
    """``invoke_subgraph``: a region that PyTorch compiles once for all of its calls; here its lines, at each call."""
    return body(*args)


REPLACED: Final[Mapping[Any, Callable[..., Any]]] = {
    "tag_activation_checkpoint": checkpoint,
    "invoke_subgraph": inline,
    enter_autocast: enter,
    exit_autocast: leave,
    get_data_attr: data_of,
}
"""By function, and by name for higher-order operators."""

RECORDED: Final = frozenset({"autograd_function_apply", "cond", "map_impl", "register_hook", "scan"})
"""Higher-order operators that the core records as they are."""


def replace_calls(module: torch.fx.GraphModule) -> None:
    """Replace these calls in a graph and in the bodies that it has, in place, and generate the code anew.

    Raises:
        UnsupportedError: it has a higher-order operator that is not known.
    """
    for part in module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in part.graph.nodes:
            if node.op == "call_function":
                _replace(node)
        part.recompile()


def _replace(node: torch.fx.Node) -> None:
    target: Any = node.target
    is_higher_order = isinstance(target, HigherOrderOperator)
    key = target.name() if is_higher_order else target
    if key in REPLACED:
        node.target = REPLACED[key]
    elif is_higher_order and key not in RECORDED:
        raise UnsupportedError(
            f"the higher-order operator {key!r} in a graph of torch.compile is not recorded",
            location=user_line(node),
            advice=(
                "put the call into a function of @torch.compiler.disable: Dynamo then breaks the graph there",
                "call thunder.jit on the function or module itself, which needs no graphs",
            ),
        )
