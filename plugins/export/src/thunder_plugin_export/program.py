"""The module that `thunder.jit` compiles for an exported program."""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch

from thunder_core.checks.conditions import HOOKS
from thunder_core.errors import OptionError, UnsupportedError
from thunder_plugin_export.pytorch_internals import check_inputs, in_spec


def module_of(exported: torch.export.ExportedProgram) -> torch.nn.Module:
    """The module of an exported program, ``exported.module()``.

    Its parameters and buffers are the tensors of ``exported``, so an optimizer of either updates both.
    """
    return exported.module()


def graph_of(function: Any) -> torch.fx.GraphModule:
    """The graph module that ``function`` is, or whose ``forward`` it is.

    Raises:
        OptionError: ``function`` is anything else.
    """
    module: Any = function.__self__ if isinstance(function, MethodType) else function
    if not _has_structure(module):
        raise OptionError(
            f"the front end 'export' records programs of torch.export, not {type(module).__name__}",
            advice=(
                "pass what torch.export.export returns: thunder.jit(exported)",
                "omit front_end to record the program itself",
            ),
        )
    graph: torch.fx.GraphModule = module
    return graph


def _has_structure(module: Any) -> bool:
    """Whether a module is a graph module that flattens its arguments, as those of exported programs do."""
    if not isinstance(module, torch.fx.GraphModule):
        return False
    try:
        in_spec(module)
    except AttributeError:
        return False
    return True


def check_hooks(module: torch.fx.GraphModule) -> None:
    """Raise UnsupportedError if a hook is registered on the module besides those of `torch.export`."""
    for name in HOOKS:
        for hook in getattr(module, name).values():
            if getattr(hook, "__module__", "") != check_inputs.__module__:
                raise UnsupportedError(
                    f"a hook is registered on the module of an exported program: {hook!r}",
                    advice=(
                        "remove the hook, and call its function before or after the compiled program",
                        "put the compiled program into a module, and register the hook there",
                    ),
                )


def hook_keys(module: torch.fx.GraphModule) -> dict[str, tuple[Any, ...]]:
    """The keys of the hooks of the module, by the attribute that stores them: a new hook has another key."""
    return {name: tuple(getattr(module, name)) for name in HOOKS}
