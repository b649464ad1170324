"""Cross entropy under autocast on a GPU is what the patterns of its parts say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.passes.on_cuda import on_cuda
from tests.passes.programs import acquire_program
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.explicit_autocast import explicit_form
from thunder_plugin_composites.symbols.patterns.autocast_losses import REDUCTIONS

CLASS_WEIGHTS = pytest.mark.parametrize("class_weight", [None, torch.linspace(0.5, 2, 7)], ids=["", "class weights"])


def taken_apart(logits: torch.Tensor, target: torch.Tensor, *options: Any) -> torch.Tensor:
    """What the patterns have for `F.cross_entropy`."""
    logarithms = torch._log_softmax(logits, 1, False).to(torch.float32)
    return torch.ops.aten.nll_loss_forward.default(logarithms, target, *options)[0]


@CLASS_WEIGHTS
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_autocast_on_a_gpu_takes_it_apart_so(reduction: str, class_weight: Any) -> None:
    """As for fake CUDA tensors; no GPU is needed."""
    logits, target = torch.randn(6, 7).bfloat16(), torch.randint(7, (6,))
    context = Context(True, False, (("cuda", torch.bfloat16),))

    def program() -> torch.Tensor:
        return F.cross_entropy(logits, target, class_weight, reduction=reduction)

    (line,) = acquire_program(program).trace.symbols
    line = on_cuda(line, context)
    assert line is not None
    form = explicit_form(line, context)
    assert isinstance(form, Trace)
    spelled = acquire_program(lambda: taken_apart(logits, target, class_weight, REDUCTIONS[reduction], -100)).trace
    assert [written(part) for part in form.symbols] == [written(part) for part in spelled.symbols]


def written(line: BoundSymbol) -> tuple[Any, ...]:
    """A line without the names of tensors."""
    plain = line.map_arguments(lambda leaf: leaf.dtype if isinstance(leaf, TensorProxy) else leaf)
    return plain.symbol, plain.args, plain.kwargs
