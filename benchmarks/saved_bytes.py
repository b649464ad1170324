"""Bytes that a forward pass saves for its backward pass.

This is the size of the distinct storages of all tensors that autograd packs with ``saved_tensors_hooks``, except those
of parameters, buffers and inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.implementations import compile_with
from benchmarks.process import in_fresh_process
from benchmarks.row import Row

CASES = {
    "tiny_llama_block": "a block of TinyLlama 1.1B, 1x512",
    "bert_training": "Hugging Face BERT, 12 layers, 2x128, dropout",
}
AGGRESSIVE_LIMIT = 0.6


def measure(threads: int) -> list[Row]:
    """Measure, and return the rows."""
    return [row for case in CASES for row in _rows(case, in_fresh_process(saved_bytes, threads=threads, case=case))]


def _rows(case: str, saved: dict[str, int | str]) -> list[Row]:
    eager = saved["eager"]
    rows = []
    for name, suffix, goal, limit in (
        ("default", "", "<= eager", 1.0),
        ("aggressive", ', recompute="aggressive"', f"<= {AGGRESSIVE_LIMIT} x eager", AGGRESSIVE_LIMIT),
        ("low-memory", ', config="thunder:low-memory"', f"<= {AGGRESSIVE_LIMIT} x eager", AGGRESSIVE_LIMIT),
    ):
        values = {"eager": eager / 2**20, "thunder": saved[name] / 2**20}
        reached = saved[name] <= limit * eager
        rows.append(Row("saved for backward", CASES[case] + suffix, "MiB", values, {}, goal, reached))
    return rows


def saved_bytes(case: str, **sizes: int) -> dict[str, int]:
    """Bytes saved by eager, and by Thunder with default options, ``recompute="aggressive"``, and the recipe for it."""
    from benchmarks import programs

    program, arguments = getattr(programs, case)(**sizes)
    compiled = {
        "eager": program,
        "default": compile_with("thunder[]", program),
        "aggressive": compile_with("thunder[]", program, recompute="aggressive"),
        "low-memory": compile_with("thunder:low-memory", program),
    }
    return {name: saved_by(call, program, arguments) for name, call in compiled.items()}


def saved_by(call: Callable[..., Any], module: Any, arguments: tuple[Any, ...]) -> int:
    """Bytes that a call saves for backward.

    Args:
        module: the module whose parameters and buffers are there anyway, and whose gradients are reset.
    """
    import torch
    from torch.utils import _pytree as pytree

    present = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers(), *arguments)}
    # References to the storages, so that no address is reused.
    saved: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in present:
            saved[storage.data_ptr()] = storage
        return tensor.detach()

    call(*arguments)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
        results = pytree.tree_leaves(call(*arguments))
    # The backward pass confirms that the saved tensors are sufficient.
    sum(result.sum() for result in results if result.requires_grad).backward()
    module.zero_grad()
    return sum(storage.nbytes() for storage in saved.values())
