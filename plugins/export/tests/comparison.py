"""Compare a compiled exported program with the module of PyTorch."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.utils import _pytree as pytree

import thunder


def compare(program: torch.export.ExportedProgram, args: Any, kwargs: Any, calls: int = 2, **options: Any) -> Any:
    """Calls of the compiled program and of ``program.module()`` are equal: results, gradients, writes, random states.

    Returns:
        The compiled module.
    """
    options = {"executors": [], "sharp_edges": "error", **options}
    expected, compiled = copy.deepcopy(program).module(), thunder.jit(copy.deepcopy(program), **options)
    for _ in range(calls):
        outcomes = []
        for module in (expected, compiled):
            torch.manual_seed(1)
            outcomes.append(_outcome(module, *copy.deepcopy((args, kwargs))))
        (facts, tensors), (expected_facts, expected_tensors) = outcomes[1], outcomes[0]
        assert facts == expected_facts
        torch.testing.assert_close(tensors, expected_tensors, rtol=0, atol=0)
    assert not compiled_of(compiled).fallbacks
    return compiled


def compiled_of(module: Any) -> Any:
    """The cache of a compiled module."""
    return module._thunder_compiled


def _outcome(module: Any, args: Any, kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    for leaf in given:
        leaf.requires_grad_(leaf.is_floating_point() and leaf.dim() == 2)
    before = [leaf._version for leaf in given]
    try:
        result = module(*args, **kwargs)
    except RuntimeError as error:
        if "leaf Variable" not in str(error):
            raise
        for leaf in given:  # the program writes to its inputs
            leaf.requires_grad_(False)
        result = module(*args, **kwargs)
    leaves, spec = pytree.tree_flatten(result)
    outputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    differentiable = [leaf for leaf in outputs if leaf.requires_grad and torch.is_grad_enabled()]
    module.zero_grad()
    if differentiable:
        torch.stack(
            [(leaf.float() * torch.arange(1.0, leaf.numel() + 1).view(leaf.shape)).sum() for leaf in differentiable]
        ).sum().backward()
    facts = {
        "structure": str(spec),
        "others": [repr(leaf) for leaf in leaves if not isinstance(leaf, torch.Tensor)],
        "requires_grad": [leaf.requires_grad for leaf in outputs],
        "is_input": [[leaf is one for one in (*given, *module.parameters())] for leaf in outputs],
        "shared": [[one.data_ptr() == other.data_ptr() for one in outputs] for other in outputs],
        "written": [leaf._version > version for leaf, version in zip(given, before, strict=True)],
        "gradients": [leaf.grad is not None for leaf in (*given, *module.parameters())],
    }
    tensors = {
        "outputs": [leaf.detach() for leaf in outputs],
        "inputs": [leaf.detach().clone() for leaf in given],
        "gradients": [leaf.grad for leaf in (*given, *module.parameters()) if leaf.grad is not None],
        "buffers": {name: value.clone() for name, value in module.named_buffers()},
        "random": torch.get_rng_state(),
    }
    return facts, tensors
