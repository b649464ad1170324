"""Replacement of calls in Dynamo's graphs that represent several calls of user code.

The replacements are functions that users call, so they are recorded in the same way.
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
"""The key in ``meta`` of the body for the ``context_fn`` of a checkpoint."""


def checkpoint(body: torch.fx.GraphModule, *args: Any, **options: Any) -> Any:
    """``tag_activation_checkpoint``: the body as a checkpoint region, with the user's options."""
    if _CONTEXTS in body.meta:
        options["context_fn"] = body.meta[_CONTEXTS]
    return torch.utils.checkpoint.checkpoint(body, *args, **options)


def enter(device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None) -> Any:
    """``_enter_autocast``: the begin of a ``with torch.autocast(...)``."""
    region = torch.autocast(device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
    region.__enter__()
    return region


def leave(region: Any) -> None:
    """``_exit_autocast``: the end of a ``with torch.autocast(...)``."""
    region.__exit__(None, None, None)


def data_of(tensor: torch.Tensor) -> torch.Tensor:
    """``_get_data_attr``: autograd does not track writes to it."""
    return tensor.data


def inline(body: Callable[..., Any], identifier: str, *args: Any) -> Any:
    """``invoke_subgraph``: a region that PyTorch compiles once for all calls; here its operations are inlined."""
    return body(*args)


REPLACED: Final[Mapping[Any, Callable[..., Any]]] = {
    "tag_activation_checkpoint": checkpoint,
    "invoke_subgraph": inline,
    enter_autocast: enter,
    exit_autocast: leave,
    get_data_attr: data_of,
}
"""Replacements by function, or by name for higher-order operators."""

RECORDED: Final = frozenset({"autograd_function_apply", "cond", "map_impl", "register_hook", "scan"})
"""Higher-order operators that the core records."""


def replace_calls(module: torch.fx.GraphModule) -> None:
    """Replace these calls in a graph and in its bodies in place, and generate the code again.

    Raises:
        UnsupportedError: the graph has an unsupported higher-order operator.
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
                "move the call to a function with @torch.compiler.disable, which breaks the graph",
                "call thunder.jit on the function or module itself, without Dynamo",
            ),
        )
