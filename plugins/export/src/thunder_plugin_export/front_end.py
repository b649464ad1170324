"""The front end ``export``: records programs of `torch.export` by running the nodes of their graphs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MethodType
from typing import Any, Final

import torch

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import VALUE, identity_check, keys_check
from thunder_core.checks.guard import Guard
from thunder_core.checks.source import (
    ArgumentSource,
    AttributeSource,
    FunctionSource,
    KeywordSource,
    Source,
    StoredAttributeSource,
)
from thunder_core.contract import Recording, Request
from thunder_core.errors import UnsupportedError
from thunder_core.pytorch_internals import forward_pre_hooks, tree_unflatten
from thunder_core.recording import Leaf, argument_tree, leaf_guard, record_call
from thunder_plugin_export.graph_runner import GUARDS, GraphRunner, graphs_of
from thunder_plugin_export.program import check_hooks, graph_of, hook_keys
from thunder_plugin_export.pytorch_internals import check_inputs, in_spec, out_spec, tree_flatten_spec


@dataclass(frozen=True)
class ExportFrontEnd:
    """Records the module of an exported program, and nothing else."""

    def record(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], request: Request
    ) -> Recording:
        """Record a call of the module, or of its ``forward``. All sizes and numbers are constants of the recording.

        Args:
            function: the module that `thunder_plugin_export.program.module_of` returns, or its ``forward``.
            request: not used.

        Raises:
            OptionError: ``function`` is anything else.
            UnsupportedError: the program has a node that cannot be recorded, or an input is no plain tensor; or hooks
                are registered on the module.
            Exception: the error of ``exported.module()`` for arguments of another structure, sizes outside of the
                range constraints, and other constants than those of the export.
        """
        module = graph_of(function)
        guards: list[Guard] = []
        is_forward = isinstance(function, MethodType)
        root = FunctionSource(function, "forward" if is_forward else "module")
        source: Source = AttributeSource(root, "__self__") if is_forward else root
        guards += _graph_guards(module, source)
        if not is_forward:
            _check_call(module, args, kwargs, source, guards)
        leaves = _leaves(module, args, kwargs, guards)
        if hasattr(module, GUARDS):
            getattr(module, GUARDS)(*[leaf.value for leaf in leaves])
        tensors = _tensors(module, source)
        arguments = [(leaf.source, leaf.value) for leaf in leaves if isinstance(leaf.value, torch.Tensor)]
        runner = GraphRunner(module)

        def program(*fakes: torch.Tensor) -> Any:
            held, given = fakes[: len(tensors)], iter(fakes[len(tensors) :])
            runner.tensors.update(zip(tensors, held, strict=True))
            inputs = [next(given) if isinstance(leaf.value, torch.Tensor) else leaf.value for leaf in leaves]
            return tree_unflatten(runner.run(module, *inputs), out_spec(module))

        return record_call(program, [*tensors.values(), *arguments], guards, location=runner.location)


def _graph_guards(module: torch.fx.GraphModule, source: Source) -> Iterator[Guard]:
    """Guards on the graph and on the bodies of its operators: the objects, and the code that `recompile` made."""
    for prefix, part in graphs_of(module):
        path = _submodule(source, prefix.removesuffix("."))
        yield identity_check(path, part)
        yield identity_check(StoredAttributeSource(path, "_graph"), part.graph)
        yield Check(StoredAttributeSource(path, "_code"), VALUE, part.code)


def _submodule(source: Source, path: str) -> Source:
    """The path to a submodule of the module at ``source``."""
    for name in path.split(".") if path else ():
        source = StoredAttributeSource(source, name, "_modules")
    return source


def _check_call(module: torch.fx.GraphModule, args: Any, kwargs: Any, source: Source, guards: list[Guard]) -> None:
    """Check the arguments as a call of the module does, and guard its hooks, which do that."""
    check_hooks(module)
    guards += [keys_check(StoredAttributeSource(source, name), keys) for name, keys in hook_keys(module).items()]
    if check_inputs in forward_pre_hooks(module).values():  # copies of the module have no hooks
        guards.append(Check(StoredAttributeSource(source, "validate_inputs"), VALUE, module.validate_inputs))
        check_inputs(module, args, kwargs)


def _leaves(module: torch.fx.GraphModule, args: Any, kwargs: Any, guards: list[Guard]) -> list[Leaf]:
    """The leaves of the arguments, in the order of the placeholders. Those that are no tensors are guarded."""
    positional = [argument_tree(value, ArgumentSource(index), guards) for index, value in enumerate(args)]
    named = {name: argument_tree(value, KeywordSource(name), guards) for name, value in kwargs.items()}
    bound = inspect.signature(module.forward).bind(*positional, **named).arguments
    names, trees = list(bound), list(bound.values())
    structure = in_spec(module)
    count = structure.child(0).num_children
    leaves: list[Leaf] = tree_flatten_spec(
        (tuple(trees[:count]), dict(zip(names[count:], trees[count:], strict=True))), structure
    )
    for leaf in leaves:
        if isinstance(leaf.value, torch.nn.Module):
            raise UnsupportedError(
                f"{leaf.source.describe()} is a module, and modules as inputs of exported programs are not recorded",
                advice=("make the module an attribute of the module that is exported",),
            )
        if not isinstance(leaf.value, torch.Tensor):
            guards.append(leaf_guard(leaf))
    return leaves


def _tensors(module: torch.fx.GraphModule, source: Source) -> dict[str, tuple[Source, torch.Tensor]]:
    """The parameters, buffers and constants that the graphs read, by path."""
    found: dict[str, tuple[Source, torch.Tensor]] = {}
    for prefix, part in graphs_of(module):
        for node in part.graph.find_nodes(op="get_attr"):
            path = f"{prefix}{node.target}"
            owner, _, name = path.rpartition(".")
            holder, place = module.get_submodule(owner), _submodule(source, owner)
            stored = next(
                (one for one in ("_parameters", "_buffers", "__dict__") if name in getattr(holder, one)), None
            )
            value = None if stored is None else getattr(holder, stored)[name]
            if stored is not None and isinstance(value, torch.Tensor):
                found[path] = StoredAttributeSource(place, name, stored), value
    return found


front_end: Final = ExportFrontEnd()
"""The front end ``export`` of configurations."""
