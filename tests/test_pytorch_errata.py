"""Each error of PyTorch that Thunder works around is still there. Other tests run compiled programs that meet them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import pytest
import torch
from packaging.version import Version
from torch._decomp import decomposition_table

from thunder_core.ir.size import on_fakes
from thunder_core.pytorch_errata import (
    ERRATA,
    Erratum,
    check_after_inference,
    correct_decompositions,
    decomposition_error,
    depends_on_grad_mode,
    has_wide_statistics,
    preserving_symbolic_sizes,
    returns_argument,
    trusts_values,
    unannotated_writes,
)
from thunder_core.pytorch_internals import EnablePythonDispatcher, FakeTensorMode, core_aten_decompositions, schema_of
from thunder_core.tracing.sizes import Sizes
from thunder_testing.forked import run_forked

_aten: Final = torch.ops.aten


def _writes() -> bool:
    """Running statistics change, and the schema has no alias annotation for them."""
    mean, variance = torch.zeros(2), torch.ones(2)
    args = (torch.randn(4, 2), None, None, mean, variance, True, 0.1, 1e-5)
    operator = _aten.native_batch_norm.default
    operator(*args)
    assert (mean != 0).all()
    assert [id(each) for each in unannotated_writes(schema_of(operator).name, args)] == [id(mean), id(variance)]
    assert unannotated_writes(schema_of(operator).name, (*args[:5], False, *args[6:])) == ()
    return schema_of(operator).arguments[3].alias_info is None


def _grad_mode() -> bool:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of PyTorch has no mkldnn")
    weights = (torch.randn(16, 3), torch.randn(16, 4), torch.randn(16), torch.randn(16))
    state = torch.zeros(1, 2, 4)
    args = (torch.randn(5, 2, 3), *weights, state, state.clone(), False, [], 2, 4, 1, True, False, False, True)
    operator = _aten.mkldnn_rnn_layer.default
    assert depends_on_grad_mode(operator)
    with torch.enable_grad():
        assert operator(*args)[3] is not None
    with torch.no_grad():
        return operator(*args)[3] is None


def _statistics() -> bool:
    args = (torch.randn(4, 8, dtype=torch.bfloat16), [8], torch.ones(8), torch.zeros(8), 1e-5)
    operator = _aten.native_layer_norm.default
    assert has_wide_statistics(operator, args)
    mode = FakeTensorMode()
    with mode:
        fake = operator(*[mode.from_tensor(arg) if isinstance(arg, torch.Tensor) else arg for arg in args])
    return operator(*args)[1].dtype is torch.float32 is not fake[1].dtype


def _binary_cross_entropy() -> bool:
    return _decomposed_runs(_aten.binary_cross_entropy.default, torch.tensor([2.0]), torch.tensor([0.5]))


def _max_unpool() -> bool:
    indices = torch.full((1, 1, 1), -1)
    return _decomposed_runs(_aten.max_unpool2d.default, torch.ones(1, 1, 1), indices, [2, 2])


def _multilabel() -> bool:
    operator = _aten.multilabel_margin_loss_forward.default
    args = (torch.tensor([[0.1, 0.9, 0.3]]), torch.tensor([[0, -1, 2]]), 1)
    assert decomposition_error(operator.overloadpacket, ["cpu"]) is not None
    return not torch.equal(decomposition_table[operator](*args)[0], operator(*args)[0])


def _batched_matmul() -> bool:
    """The product of two batches of fakes reads the value of a size, unless the erratum is applied."""

    def facts(context: AbstractContextManager[Any]) -> int:
        sizes = Sizes()
        mode = FakeTensorMode(shape_env=sizes.environment)
        shape = [on_fakes(sizes.new(hint, f"x.shape[{index}]")) for index, hint in enumerate((3, 4, 5))]
        with mode:
            x = torch.empty(shape)
            with context:
                torch.matmul(x, x.mT)
        return sizes.fact_count

    assert facts(preserving_symbolic_sizes(torch.matmul, (), {})) == 0
    return facts(nullcontext()) > 0


def _masks() -> bool:
    """Attention refuses a mask with a batch that query and key lack, and infers a result for it on fakes."""
    attention = torch.nn.functional.scaled_dot_product_attention
    tensors = [torch.randn(1, 2, 3, 4) for _ in range(3)]
    mask = torch.zeros(5, 2, 3, 3)
    refused = pytest.raises(RuntimeError, match="doesn't match the broadcast shape")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), refused:
        attention(*tensors, mask)
    with refused:
        check_after_inference(attention, (*tensors, mask), {})
    mode = FakeTensorMode()
    with mode, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return attention(*map(mode.from_tensor, tensors), mode.from_tensor(mask)).shape[0] == 5


def _dropout_copies() -> bool:
    """Dropout of a fake returns a copy with the Python implementation; the kernel never does."""
    x, mode = torch.ones(2), FakeTensorMode()
    calls = [(torch.dropout, (0.5, False)), (torch.dropout, (0.0, True)), (torch.nn.functional.dropout, (0.0,))]
    assert all(function(x, *options) is x for function, options in calls)
    assert all(returns_argument(function, (x, *options), {}) for function, options in calls)
    assert not returns_argument(torch.dropout, (x, 0.5, True), {})
    with mode:
        fake = torch.ones(2)
        with EnablePythonDispatcher():
            return torch.dropout(fake, 0.5, False) is not fake


_PACKED = """
import torch
from thunder_core.ir.size import on_fakes
from thunder_core.pytorch_internals import FakeTensorMode
from thunder_core.tracing.sizes import Sizes
sizes = Sizes()
with FakeTensorMode(shape_env=sizes.environment):
    batch_sizes = torch.empty(on_fakes(sizes.new(3, "s")), dtype=torch.int64)
    weights = [torch.empty(15, 4), torch.empty(15, 5), torch.empty(15), torch.empty(15)]
    try:
        torch.gru(torch.empty(10, 4), batch_sizes, torch.empty(1, 4, 5), weights, True, 1, 0.0, True, False)
    except RuntimeError:
        pass
"""


def _packed_sizes() -> bool:
    """A recurrent network on a packed fake with a symbolic size ends the process."""
    for function in (torch.gru, torch.lstm, torch.rnn_tanh, torch.rnn_relu):
        with pytest.raises(RuntimeError, match="batch sizes"):
            preserving_symbolic_sizes(function, (None, None, None, []), {})
        assert isinstance(preserving_symbolic_sizes(function, (None, None, [], True), {}), nullcontext)
    return run_forked(_PACKED).returncode < 0


_GROWING = """
import os
import torch
torch._pad_packed_sequence(torch.ones(3, 1), torch.tensor([0, 1]), True, 0.0, 4)
os._exit(0)  # what is freed may be damaged
"""


def _batch_sizes() -> bool:
    """Growing batch sizes raise no exception; most often they end the process."""
    assert trusts_values(torch._pad_packed_sequence, ())
    assert trusts_values(torch.gru, (None, None, None, []))
    assert not trusts_values(torch.gru, (None, None, [], True))
    return run_forked(_GROWING).returncode <= 0


def _decomposed_runs(operator: Any, *args: Any) -> bool:
    """Whether the decomposition accepts what the kernel refuses."""
    assert decomposition_error(operator.overloadpacket, ["cpu"]) is not None
    with pytest.raises((RuntimeError, IndexError)):
        operator(*args)
    decomposition = core_aten_decompositions()[operator]
    assert correct_decompositions({operator: decomposition})[operator](*args) is NotImplemented
    try:
        decomposition(*args)
    except (RuntimeError, IndexError):
        return False
    return True


_CHECKS: Final[dict[str, Callable[[], bool]]] = {
    "writes of batch norm": _writes,
    "grad mode of mkldnn_rnn_layer": _grad_mode,
    "statistics of mixed norms": _statistics,
    "checks of binary_cross_entropy": _binary_cross_entropy,
    "indices of max_unpool": _max_unpool,
    "labels of multilabel_margin_loss": _multilabel,
    "symbolic sizes in batched matmul": _batched_matmul,
    "masks that broadcast attention": _masks,
    "copies of dropout": _dropout_copies,
    "symbolic sizes in packed sequences": _packed_sizes,
    "batch sizes of packed sequences": _batch_sizes,
}


@pytest.mark.parametrize("row", ERRATA, ids=[row.name for row in ERRATA])
def test_each_error_is_still_there(row: Erratum) -> None:
    installed = Version(torch.__version__).release
    expected = not row.fixed or installed < Version(row.fixed).release
    assert _CHECKS[row.name]() is expected, f"{row.name}: PyTorch {torch.__version__} differs; see the column `fixed`"


def test_each_row_has_a_check() -> None:
    assert [row.name for row in ERRATA] == list(_CHECKS)


def test_attention_with_dropout_runs_kernels_of_matmul() -> None:
    """Dropout may be positional; PyTorch's Python implementation of it generates other random numbers."""
    function = torch.nn.functional.multi_head_attention_forward
    position = list(inspect.signature(function).parameters).index("dropout_p")
    args = [None] * position
    assert isinstance(preserving_symbolic_sizes(function, [*args, 0.5], {}), nullcontext)
    assert not isinstance(preserving_symbolic_sizes(function, [*args, 0.0], {}), nullcontext)
    assert isinstance(preserving_symbolic_sizes(function, args, {"dropout_p": 0.5}), nullcontext)
