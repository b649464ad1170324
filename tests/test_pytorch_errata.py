"""Each error of PyTorch that Thunder works around is still there. Other tests run compiled programs that meet them."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import pytest
import torch
from packaging.version import Version
from torch._decomp import decomposition_table
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map

from thunder_core.ir.size import on_fakes
from thunder_core.pytorch_errata import (
    ERRATA,
    Erratum,
    check_after_inference,
    correct_decompositions,
    decomposition_error,
    depends_on_grad_mode,
    has_other_formula,
    has_wide_statistics,
    preserving_symbolic_sizes,
    returns_argument,
    trusts_values,
    unannotated_writes,
)
from thunder_core.pytorch_internals import (
    EnablePythonDispatcher,
    FakeTensorMode,
    aten_chunk_cat,
    aten_log_softmax_backward_data,
    aten_native_batch_norm_legit_no_stats,
    core_aten_decompositions,
    schema_of,
)
from thunder_core.tracing.fake_tensors import ObservingFakeMode
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


def _steps() -> bool:
    """A recurrent network on a fake makes its number of steps a constant."""
    sizes = Sizes()
    steps = on_fakes(sizes.new(5, "x.shape[0]"))
    with FakeTensorMode(shape_env=sizes.environment):
        x, weights = torch.empty(steps, 2, 4), [torch.empty(15, 4), torch.empty(15, 5)]
        args = (x, torch.empty(1, 2, 5), weights, False, 1, 0.0, False, False, False)
        with pytest.raises(RuntimeError, match="number of steps"):
            preserving_symbolic_sizes(torch.gru, args, {})
        with EnablePythonDispatcher():
            torch.gru(*args)
    return sizes.constant("s0") == 5


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


_GUARD = """
import threading
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
{before}

def enter():
    with FakeTensorMode():
        torch.ones(2) * 2

for _ in range(200):
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    others = [b"\\xff" * 8 for _ in range(1000)]
    enter()
"""
_KEPT = """
from thunder_core.pytorch_errata import keep_device_guard
thread = threading.Thread(target=keep_device_guard)
thread.start()
thread.join()
"""


def _device_guard() -> bool:
    if torch.version.cuda is None or torch.cuda.is_available():
        pytest.skip("it needs PyTorch for CUDA and no GPU")
    environment = {**os.environ, "MALLOC_PERTURB_": "165"}  # what is freed is overwritten
    assert _run(_GUARD.format(before=_KEPT), environment) == 0
    return _run(_GUARD.format(before=""), environment) < 0


def _run(program: str, environment: dict[str, str]) -> int:
    return subprocess.run([sys.executable, "-c", program], env=environment, check=False, capture_output=True).returncode


def _prod() -> bool:
    zeros = torch.tensor([0.0, 0.0, torch.inf])
    return all(
        _other_formula(function, zeros if index == 0 else torch.tensor([2.0, torch.inf]))
        for index, function in enumerate((torch.prod, lambda x: torch.prod(x, 0)))
    )


def _maxima() -> bool:
    x = torch.tensor([1.0, 2.0, 3.0])
    functions = (torch.max, torch.min, torch.median, torch.nanmedian)
    return all(_other_formula(function, x, torch.tensor(torch.inf)) for function in functions)


def _other_formula(function: Any, x: torch.Tensor, gradient: torch.Tensor | None = None) -> bool:
    """Whether the operators that backward of ``function`` calls for fake tensors compute other gradients than eager."""
    x = x.clone().requires_grad_()
    result = function(x)
    assert has_other_formula(result.grad_fn.name(), x.device)
    gradient = torch.ones_like(result) if gradient is None else gradient
    (expected,) = torch.autograd.grad(result, x, gradient)
    graph = make_fx(lambda x, gradient: torch.autograd.grad(function(x), x, gradient), tracing_mode="fake")
    with torch.enable_grad():
        (found,) = graph(x.detach().requires_grad_(), gradient)(x.detach().requires_grad_(), gradient)
    return not torch.equal(expected.nan_to_num(7.0), found.nan_to_num(7.0))


def _strides_of_metadata() -> bool:
    """PyTorch's metadata of each operator of the table has other strides than the kernel for one of the layouts."""
    differing = [name for name, layouts in strides_by_layout().items() if any(row[0] != row[1] for row in layouts)]
    return differing == list(STRIDED)


_CHANNELS_LAST: Final = torch.randn(2, 5, 3, 4).contiguous(memory_format=torch.channels_last)
_LARGER: Final = torch.randn(2, 5, 5, 6).contiguous(memory_format=torch.channels_last)
_VOLUME: Final = torch.randn(2, 3, 4, 3, 5).contiguous(memory_format=torch.channels_last_3d)
_LARGER_VOLUME: Final = torch.randn(2, 3, 6, 5, 7).contiguous(memory_format=torch.channels_last_3d)
_COLUMNS: Final = torch.rand(4, 3).t()
_SEQUENCE: Final = torch.randn(1, 4, 3).mT
_X, _Y, _Z = (torch.rand(shape) for shape in ((5, 3, 4), (3, 4), ()))
_BINARY: Final = (
    (_X.transpose(0, 1).contiguous().transpose(0, 1), _Y),
    (_COLUMNS, _Z),
    (_COLUMNS.contiguous(), _COLUMNS),
    (_X[:, :1], _COLUMNS),
)
STRIDED: Final[dict[Any, Sequence[tuple[Any, ...]]]] = {
    **{
        operator: [(*tensors, *more) for tensors in _BINARY]
        for operator, more in {
            _aten.copysign.Tensor: (),
            _aten.div.Tensor_mode: (),
            _aten.floor_divide.default: (),
            _aten.heaviside.default: (),
            _aten.logaddexp.default: (),
            _aten.logical_and.default: (),
            _aten.logical_or.default: (),
            _aten.logical_xor.default: (),
            _aten.special_xlog1py.default: (),
            _aten.xlogy.Tensor: (),
            _aten.ldexp.Tensor: (),
        }.items()
    },
    _aten.native_dropout_backward.default: [(_COLUMNS, _COLUMNS > 0.5, 2.0)],
    aten_chunk_cat: [([_CHANNELS_LAST[..., :2], _CHANNELS_LAST[..., 2:]], -1, 5)],
    aten_log_softmax_backward_data: [(_COLUMNS, _COLUMNS.contiguous(), 1, torch.float32), (_Y, _Y, 1, torch.float32)],
    _aten.glu_backward.default: [(_CHANNELS_LAST[:, :, :, :2], _CHANNELS_LAST, 3)],
    _aten.huber_loss_backward.default: [(_COLUMNS, _COLUMNS, _COLUMNS, 0, 1.0), (_Z, _COLUMNS, _COLUMNS, 1, 1.0)],
    _aten.isin.Tensor_Tensor: [(_CHANNELS_LAST, _CHANNELS_LAST)],
    _aten.log_sigmoid_forward.default: [(_CHANNELS_LAST,), (_COLUMNS,)],
    _aten.mse_loss_backward.default: [(_COLUMNS, _COLUMNS, _COLUMNS, 0), (_Z, _COLUMNS, _COLUMNS, 1)],
    _aten.nll_loss2d_forward.default: [(_CHANNELS_LAST, torch.zeros(2, 4, 3, dtype=torch.long).mT, None, 0, -1)],
    _aten.normal.Tensor_Tensor: [(_COLUMNS, _COLUMNS)],
    _aten.pow.Scalar: [(2, _COLUMNS), (2, _CHANNELS_LAST)],
    _aten.smooth_l1_loss_backward.default: [(_COLUMNS, _COLUMNS, _COLUMNS, 0, 1.0), (_Z, _COLUMNS, _COLUMNS, 1, 1.0)],
    _aten.channel_shuffle.default: [(_CHANNELS_LAST, 1), (_CHANNELS_LAST[..., ::2], 1)],
    _aten.max_unpool2d.default: [
        (_CHANNELS_LAST, torch.zeros_like(_CHANNELS_LAST, dtype=torch.long), [6, 8]),
        (_CHANNELS_LAST[:, :1], torch.zeros(2, 1, 3, 4, dtype=torch.long), [6, 8]),
    ],
    _aten.reflection_pad3d.default: [(_VOLUME, [1] * 6), (_CHANNELS_LAST, [1] * 6)],
    _aten.replication_pad3d.default: [(_VOLUME, [1] * 6), (_CHANNELS_LAST, [1] * 6)],
    **{
        operator: [(_LARGER, _CHANNELS_LAST, [1] * 4), (_LARGER, _CHANNELS_LAST.contiguous(), [1] * 4)]
        for operator in (_aten.reflection_pad2d_backward.default, _aten.replication_pad2d_backward.default)
    },
    **{
        operator: [(_LARGER_VOLUME, _VOLUME, [1] * 6), (_LARGER_VOLUME, _VOLUME.contiguous(), [1] * 6)]
        for operator in (_aten.reflection_pad3d_backward.default, _aten.replication_pad3d_backward.default)
    },
    _aten.native_batch_norm.default: [(_SEQUENCE, None, None, None, None, True, 0.1, 1e-5)],
    aten_native_batch_norm_legit_no_stats: [(_SEQUENCE, None, None, True, 0.1, 1e-5)],
    _aten.binary_cross_entropy.default: [(_COLUMNS.contiguous(), _COLUMNS, None, 0), (_COLUMNS, _Y, None, 0)],
    _aten.roll.default: [
        (_CHANNELS_LAST, shifts, dims)
        for shifts, dims in (([1], [0]), ([-1], [-1]), ([0], [1]), ([1, 2], [0, 1]), ([1, 2, 0], [0, 1, 2]), ([1], []))
    ],
}
"""By operator with other strides in PyTorch's metadata: arguments, for some of which they differ."""


def strides_by_layout() -> dict[Any, list[tuple[Any, Any, Any]]]:
    """By operator, for each of its arguments: the strides of the kernel, of PyTorch's metadata, and of Thunder's."""

    def call(operator: Any, args: Sequence[Any]) -> Any:
        return operator(*args, **({"rounding_mode": "floor"} if operator is _aten.div.Tensor_mode else {}))

    def strides(mode: Any, operator: Any, args: tuple[Any, ...]) -> list[tuple[int, ...]]:
        with mode:
            fakes = tree_map(lambda leaf: mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf, args)
            return metadata(call(operator, fakes))

    def metadata(result: Any) -> list[tuple[int, ...]]:
        return [tuple(torch.empty_like(each, device="meta").stride()) for each in tree_leaves(result)]

    return {
        operator: [
            (
                metadata(call(operator, args)),
                strides(FakeTensorMode(), operator, args),
                strides(ObservingFakeMode(), operator, args),
            )
            for args in calls
        ]
        for operator, calls in STRIDED.items()
    }


def _results_in_memory_of_arguments() -> bool:
    """A fake result shares its argument's memory, though that of the kernel does not."""
    x, mode = torch.ones(2), FakeTensorMode()
    assert torch.native_dropout(x, 0.0, True)[0].data_ptr() != x.data_ptr()
    with mode:
        fake = torch.ones(2)
        return torch.native_dropout(fake, 0.0, True)[0] is fake


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
    "steps of recurrent networks": _steps,
    "batch sizes of packed sequences": _batch_sizes,
    "strides of metadata": _strides_of_metadata,
    "results that are arguments": _results_in_memory_of_arguments,
    "derivative of prod": _prod,
    "derivative of maxima on a CPU": _maxima,
    "device guard of fake tensors": _device_guard,
}


@pytest.mark.parametrize("row", ERRATA, ids=[row.name for row in ERRATA])
@pytest.mark.slow
def test_each_error_is_still_there(row: Erratum) -> None:
    installed = Version(torch.__version__).release
    expected = not row.fixed or installed < Version(row.fixed).release
    assert _CHECKS[row.name]() is expected, f"{row.name}: PyTorch {torch.__version__} differs; see the column `fixed`"


def test_each_row_has_a_check() -> None:
    assert [row.name for row in ERRATA] == list(_CHECKS)


@pytest.mark.slow
def test_strides_are_those_of_kernels() -> None:
    different = {
        str(operator): [(kernel, ours) for kernel, _, ours in layouts if kernel != ours]
        for operator, layouts in strides_by_layout().items()
    }
    assert {name: found for name, found in different.items() if found} == {}


def test_strides_of_calls_with_a_number() -> None:
    mode = ObservingFakeMode()
    with mode:
        fake = mode.from_tensor(_COLUMNS)
        assert [(fake // 2).stride(), (2 // fake).stride()] == [(_COLUMNS // 2).stride(), (2 // _COLUMNS).stride()]


def test_attention_with_dropout_runs_kernels_of_matmul() -> None:
    """Dropout may be positional; PyTorch's Python implementation of it generates other random numbers."""
    function = torch.nn.functional.multi_head_attention_forward
    position = list(inspect.signature(function).parameters).index("dropout_p")
    args = [None] * position
    assert isinstance(preserving_symbolic_sizes(function, [*args, 0.5], {}), nullcontext)
    assert not isinstance(preserving_symbolic_sizes(function, [*args, 0.0], {}), nullcontext)
    assert isinstance(preserving_symbolic_sizes(function, args, {"dropout_p": 0.5}), nullcontext)
