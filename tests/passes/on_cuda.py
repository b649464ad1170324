"""Lines as programs on a GPU have them, made with fake tensors; no GPU is needed."""

from __future__ import annotations

from dataclasses import replace

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context, modes_for_fakes
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_fake


def on_cuda(line: BoundSymbol, context: Context) -> BoundSymbol | None:
    """The line as it is recorded on CUDA under autocast; None if eager refuses it there."""
    device = torch.device("cuda", 0)

    def moved(leaf):
        if isinstance(leaf, TensorProxy):
            return replace(leaf, device=device)
        return device if isinstance(leaf, torch.device) else leaf

    line = line.map_arguments(moved)
    mode = ObservingFakeMode()
    args, kwargs = map_leaves(
        lambda leaf: make_fake(mode, leaf) if isinstance(leaf, TensorProxy) else leaf, (line.args, line.kwargs)
    )
    try:
        with mode, modes_for_fakes(context):
            result = line.symbol.target(*args, **kwargs)
    except RuntimeError:
        return None
    dtypes = iter([leaf.dtype for leaf in iterate_leaves(result)])
    output = map_leaves(lambda leaf: replace(moved(leaf), dtype=next(dtypes)), line.output)
    return replace(line, output=output)
