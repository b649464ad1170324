"""Errors in PyTorch's schemas, metadata and decompositions, where they differ from its kernels, and workarounds.

`ERRATA` lists the errors. ``tests/test_pytorch_errata.py`` has a check for each row, which fails if the installed
PyTorch no longer has the error. `Erratum.fixed` of the row is then set to the version with the fix; row and workaround
are removed when that version is the oldest supported one.

This module imports PyTorch only, so that every part of the compiler, and every plugin, can import it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

import torch

from thunder_core.pytorch_internals import (
    EnablePythonDispatcher,
    OpOverload,
    aten_chunk_cat,
    aten_log_softmax_backward_data,
    aten_native_batch_norm_legit,
    aten_native_batch_norm_legit_no_stats,
    aten_pad_packed_sequence,
    dispatch_has_kernel_for_dispatch_key,
    ensure_cuda_device_guard_set,
    pad_packed_sequence,
    schema_of,
)

_aten: Final = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Erratum:
    """An error of PyTorch.

    Attributes:
        name: a unique name, also of the check in the tests.
        error: the behavior of PyTorch, and the correct one if that is not obvious.
        seen: the date on which it was first seen, as YYYY-MM-DD.
        fixed: the first version without the error, of those that the test suites run with; empty if there is none.
    """

    name: str
    error: str
    seen: str
    fixed: str = ""


ERRATA: Final = (
    Erratum(
        "writes of batch norm",
        "schemas of batch normalization do not annotate that running statistics are written (native_functions.yaml "
        "leaves that out for compatibility)",
        "2026-11-21",
    ),
    Erratum(
        "grad mode of mkldnn_rnn_layer",
        "the operator returns None for the workspace if autograd does not record it, so that its results depend on "
        "the grad mode",
        "2026-11-21",
    ),
    Erratum(
        "statistics of mixed norms",
        "normalizations on a CPU of an input narrower than weight and bias return statistics in float32; metadata and "
        "decompositions have the dtype of the input",
        "2026-11-22",
    ),
    Erratum(
        "checks of binary_cross_entropy",
        "the decomposition does not check that input and target are between 0 and 1",
        "2026-11-23",
    ),
    Erratum(
        "indices of max_unpool",
        "the decomposition counts negative indices from the end; the kernel raises an exception",
        "2026-11-23",
    ),
    Erratum(
        "labels of multilabel_margin_loss",
        "the decomposition uses the labels after a -1, which the kernel ignores",
        "2026-11-23",
        fixed="2.15.0",
    ),
    Erratum(
        "symbolic sizes in batched matmul",
        "the kernel of matmul for batches converts sizes to Python integers, which makes symbolic sizes constants",
        "2026-11-25",
        fixed="2.13.0",
    ),
    Erratum(
        "masks that broadcast attention",
        "on a CPU attention rejects a mask that has a larger batch than the scores, as it adds the mask in place; on "
        "fake tensors it adds out of place, and the result has the batch of the mask",
        "2026-11-26",
    ),
    Erratum(
        "copies of dropout",
        "the Python implementation of dropout, which symbolic sizes need, returns a copy where the kernel returns its "
        "argument",
        "2026-11-27",
        fixed="2.15.0",
    ),
    Erratum(
        "symbolic sizes in packed sequences",
        "the kernels of recurrent networks read the batch sizes of a packed sequence; if these have a symbolic size, "
        "they read address 0, which ends the process, where fakes with constant sizes raise an exception",
        "2026-11-28",
    ),
    Erratum(
        "steps of recurrent networks",
        "fake tensors run the steps of `torch.gru`, `lstm` and `rnn_tanh` one after the other, which makes a symbolic "
        "number of steps a constant",
        "2026-11-28",
    ),
    Erratum(
        "batch sizes of packed sequences",
        "the kernels of packed sequences do not check the batch sizes: growing ones are written out of bounds",
        "2026-11-28",
    ),
    Erratum(
        "strides of metadata",
        "results of operators that fake tensors run in Python (`torch.roll`, `copysign`, padding) have other strides "
        "than those of the kernels on a CPU if an argument is permuted or in channels-last order",
        "2026-11-28",
    ),
    Erratum(
        "results that are arguments",
        "operators that fake tensors run in Python (`native_dropout` with a probability of 0) return an argument where "
        "the kernels return a new tensor, as the schemas say",
        "2026-11-30",
    ),
    Erratum(
        "derivative of prod",
        "autograd's formulas of prod and cumprod have branches by the values of the input (its zeros), whose results "
        "differ if some are infinite or NaN; fake tensors take one of the branches",
        "2026-11-28",
    ),
    Erratum(
        "derivative of maxima on a CPU",
        "autograd's formula for the maximum, minimum and median of a whole tensor multiplies a mask on a GPU and for "
        "fake tensors, which gives NaN for an infinite gradient; on a CPU it does not",
        "2026-11-28",
    ),
    Erratum(
        "device guard of fake tensors",
        "PyTorch for CUDA on a machine without a GPU: the first thread that enters a fake mode owns the device guard "
        "of the process, which is freed when the thread ends; the next use of it ends the process",
        "2026-11-28",
        fixed="2.15.0",
    ),
)

# --- threads ----------------------------------------------------------------------------------------------------------


@cache
def keep_device_guard() -> None:
    """Have a thread that does not end own the device guard; called before the first fake mode is entered."""
    if torch.version.cuda is None or torch.cuda.is_available():
        return
    if threading.current_thread() is threading.main_thread():
        ensure_cuda_device_guard_set()
        return
    owned = threading.Event()

    def own() -> None:
        ensure_cuda_device_guard_set()
        owned.set()
        threading.Event().wait()

    threading.Thread(target=own, name="thunder device guard", daemon=True).start()
    owned.wait()


# --- schemas ----------------------------------------------------------------------------------------------------------

_UNANNOTATED_WRITES: Final[Mapping[str, tuple[tuple[int, ...], int]]] = {
    "aten::native_batch_norm": ((3, 4), 5),
    "aten::cudnn_batch_norm": ((3, 4), 5),
    "aten::miopen_batch_norm": ((3, 4), 5),
    "aten::_batch_norm_impl_index": ((3, 4), 5),
}
"""By name of the schema: the positions of the arguments that are written, and of the flag that enables the write."""


def unannotated_writes(schema: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments that a call of the operator ``schema`` writes without an annotation in its schema."""
    positions, training = _UNANNOTATED_WRITES.get(schema, ((), 0))
    return tuple([args[position] for position in positions]) if positions and args[training] else ()


# --- autograd ---------------------------------------------------------------------------------------------------------

_DEPENDS_ON_GRAD_MODE: Final = frozenset({_aten.mkldnn_rnn_layer.default})


def depends_on_grad_mode(operator: Any) -> bool:
    """Whether an ATen operator returns None for some of its results if autograd does not record it."""
    return operator in _DEPENDS_ON_GRAD_MODE


_FORMULAS: Final = frozenset({"CumprodBackward0", "ProdBackward0", "ProdBackward1"})
_FORMULAS_ON_CPU: Final = frozenset({"MaxBackward1", "MedianBackward0", "MinBackward1", "NanmedianBackward0"})


def has_other_formula(node: str, device: torch.device) -> bool:
    """Whether a node of autograd's graph computes gradients by another formula for real tensors than for fake ones."""
    return node in _FORMULAS or (node in _FORMULAS_ON_CPU and device.type == "cpu")


# --- symbolic sizes ---------------------------------------------------------------------------------------------------

_CALLS_MATMUL: Final[Mapping[Any, int | None]] = {
    torch.matmul: None,
    torch.gru_cell: None,
    torch.lstm_cell: None,
    torch.nn.functional.linear: None,
    torch.nn.functional.multi_head_attention_forward: 10,
    torch.nn.functional.scaled_dot_product_attention: 4,
}
"""Functions that may call matmul or unsafe_chunk, with the position of their parameter ``dropout_p``; None without."""


def preserving_symbolic_sizes(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> AbstractContextManager[Any]:
    """The context for a call on fake tensors whose operators are recorded.

    It enables PyTorch's Python implementations of matmul and unsafe_chunk, which call the same operators as the
    kernels, except with dropout: the Python implementation of dropout generates other random numbers.

    Raises:
        RuntimeError: the kernel reads values of its arguments, which fakes do not have, or makes a size a constant.
    """
    if _is_packed(function, args):
        raise RuntimeError("its kernel reads the batch sizes of a packed sequence")
    if counts_steps(function, args):
        raise RuntimeError("its kernel computes one step after the other, for one number of steps")
    if function not in _CALLS_MATMUL:
        return nullcontext()
    position = _CALLS_MATMUL[function]
    dropout = kwargs.get("dropout_p") or (position is not None and any(args[position : position + 1]))
    return nullcontext() if dropout else EnablePythonDispatcher()


_RECURRENT: Final = frozenset(
    {
        *(torch.gru, torch.lstm, torch.rnn_relu, torch.rnn_tanh),
        *(_aten.gru.data, _aten.lstm.data, _aten.rnn_relu.data, _aten.rnn_tanh.data),
    }
)
"""Recurrent networks of which an overload is for packed sequences: ``gru(data, batch_sizes, hx, params, ...)``."""


def _is_packed(function: Any, args: Sequence[Any]) -> bool:
    """Whether a call of a recurrent network is one for packed sequences, or may be one."""
    return function in _RECURRENT and (len(args) < 4 or type(args[3]) is not bool)  # has_biases, or the parameters


_STEP_BY_STEP: Final = frozenset({torch.gru, torch.lstm, torch.rnn_relu, torch.rnn_tanh})
_BATCH_FIRST: Final = 8


def counts_steps(function: Any, args: Sequence[Any]) -> bool:
    """Whether PyTorch runs a call on fakes step by step, and the number of steps varies: it would be a constant."""
    if function not in _STEP_BY_STEP or _is_packed(function, args) or len(args) <= _BATCH_FIRST:
        return False
    return type(args[0].shape[1 if args[_BATCH_FIRST] else 0]) is not int


def trusts_values(function: Any, args: Sequence[Any]) -> bool:
    """Whether the kernel of a call may read or write out of bounds for values that the program would not pass."""
    return function in (pad_packed_sequence, aten_pad_packed_sequence) or _is_packed(function, args)


_DROPOUTS: Final = frozenset({torch.dropout, torch.nn.functional.dropout, _aten.dropout.default})


def returns_argument(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call is a dropout that returns its argument itself: its Python implementation returns a copy."""
    if function not in _DROPOUTS:
        return False
    p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
    training = args[2] if len(args) > 2 else kwargs.get("training", kwargs.get("train", True))
    return bool(p == 0 or not training)


# --- checks that kernels perform and fake tensors omit ----------------------------------------------------------------


def _check_mask(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    *args: Any,
    enable_gqa: bool = False,
    **kwargs: Any,
) -> None:
    """Raise if the scores, ``query @ key.mT``, would have to be broadcast to the shape of the mask."""
    if attn_mask is None:
        return
    batch = query.shape[:-2] if enable_gqa else torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    scores = torch.Size((*batch, query.shape[-2], key.shape[-2]))
    shape = torch.broadcast_shapes(scores, attn_mask.shape)
    if shape != scores:
        raise RuntimeError(f"output with shape {list(scores)} doesn't match the broadcast shape {list(shape)}")


_CHECKS: Final[Mapping[Any, Callable[..., None]]] = {torch.nn.functional.scaled_dot_product_attention: _check_mask}


def check_after_inference(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check the arguments of a call that succeeded on fake tensors.

    Raises:
        RuntimeError: eager PyTorch rejects them, with the same message.
    """
    if function in _CHECKS:
        _CHECKS[function](*args, **kwargs)


# --- strides of metadata ----------------------------------------------------------------------------------------------

_Infer: TypeAlias = Callable[..., Any]
"""Calls an ATen operator on fake tensors."""
_Strides: TypeAlias = Any


def _contiguous(infer: _Infer, args: Sequence[Any], result: torch.Tensor) -> _Strides:
    """Of results that the kernel allocates by their shape alone."""
    return infer(_aten.new_empty.default, result, result.shape).stride()


def _elementwise(infer: _Infer, args: Sequence[Any], result: torch.Tensor) -> _Strides:
    """Of an elementwise function of the tensors among the arguments, as `torch.add` has them."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    return infer(_aten.add.Tensor, tensors[0], tensors[-1]).stride()


def _ldexp(infer: _Infer, args: Sequence[Any], result: torch.Tensor) -> _Strides:
    """Of the first argument times a power of two, which the kernel allocates by the shape of the second alone."""
    power = infer(_aten.new_empty.default, args[1], args[1].shape) if isinstance(args[1], torch.Tensor) else args[1]
    return infer(_aten.mul.Tensor, args[0], power).stride()


def _like(position: int) -> Callable[[_Infer, Sequence[Any], torch.Tensor], _Strides]:
    """Of a result like the argument at a position."""

    def strides(infer: _Infer, args: Sequence[Any], result: torch.Tensor) -> _Strides:
        return infer(_aten.empty_like.default, args[position]).stride()

    return strides


def _in_format_of(position: int) -> Callable[[_Infer, Sequence[Any], torch.Tensor], _Strides]:
    """Of a result in the memory format of the argument at a position, contiguous or channels-last."""

    def strides(infer: _Infer, args: Sequence[Any], result: torch.Tensor) -> _Strides:
        dense = infer(_aten.cat.default, [args[position]])  # in the format of its argument
        if dense.stride() == _contiguous(infer, args, dense):
            return _contiguous(infer, args, result)
        format = torch.channels_last if result.dim() == 4 else torch.channels_last_3d
        return infer(_aten.empty.memory_format, result.shape, device="meta", memory_format=format).stride()

    return strides


def _batch_norm(infer: _Infer, args: Sequence[Any], result: torch.Tensor) -> _Strides:
    """Contiguous for a batch of sequences; metadata is right for images and volumes."""
    return result.stride() if args[0].dim() > 3 else _contiguous(infer, args, result)


def _roll(infer: _Infer, args: Sequence[Any], result: torch.Tensor) -> _Strides:
    """Of the concatenation of two parts, for one dimension after the other; only images and volumes have formats."""
    rolled, shifts, dims = args[0], args[1], args[2] if len(args) > 2 else ()
    if not dims or rolled.dim() not in (4, 5) or not rolled.numel():
        return result.stride()
    for shift, dim in zip(shifts, dims, strict=True):
        size = rolled.shape[dim]
        start = (size - shift) % size
        rest = infer(_aten.slice.Tensor, rolled, dim, start, size)
        rolled = infer(_aten.cat.default, [rest, infer(_aten.slice.Tensor, rolled, dim, 0, start)], dim)
    return rolled.stride()


_STRIDES: Final[Mapping[Any, Callable[[_Infer, Sequence[Any], torch.Tensor], _Strides]]] = {
    **dict.fromkeys(
        (
            _aten.copysign.Tensor,
            _aten.div.Tensor_mode,
            _aten.floor_divide.default,
            _aten.heaviside.default,
            _aten.logaddexp.default,
            _aten.logical_and.default,
            _aten.logical_or.default,
            _aten.logical_xor.default,
            _aten.native_dropout_backward.default,
            _aten.special_xlog1py.default,
            _aten.xlogy.Tensor,
        ),
        _elementwise,
    ),
    **dict.fromkeys(
        (
            aten_chunk_cat,
            aten_log_softmax_backward_data,
            _aten.glu_backward.default,
            _aten.huber_loss_backward.default,
            _aten.isin.Tensor_Tensor,
            _aten.log_sigmoid_forward.default,
            _aten.mse_loss_backward.default,
            _aten.nll_loss2d_forward.default,
            _aten.normal.Tensor_Tensor,
            _aten.pow.Scalar,
            _aten.smooth_l1_loss_backward.default,
        ),
        _contiguous,
    ),
    **dict.fromkeys(
        (
            _aten.channel_shuffle.default,
            _aten.max_unpool2d.default,
            _aten.reflection_pad3d.default,
            _aten.replication_pad3d.default,
        ),
        _in_format_of(0),
    ),
    **dict.fromkeys(
        (
            _aten.reflection_pad2d_backward.default,
            _aten.reflection_pad3d_backward.default,
            _aten.replication_pad2d_backward.default,
            _aten.replication_pad3d_backward.default,
        ),
        _in_format_of(1),
    ),
    **dict.fromkeys(
        (_aten.native_batch_norm.default, aten_native_batch_norm_legit, aten_native_batch_norm_legit_no_stats),
        _batch_norm,
    ),
    _aten.binary_cross_entropy.default: _like(0),
    _aten.ldexp.Tensor: _ldexp,
    _aten.roll.default: _roll,
}
"""By operator: the strides of its results on a CPU. Called for the results that are tensors with dimensions."""


def with_kernel_strides(operator: Any, args: Sequence[Any], result: Any, infer: Callable[..., Any]) -> Any:
    """The result of a call on fake tensors, with the strides that the kernel's result has.

    Args:
        infer: calls an ATen operator on fake tensors.
    """
    rule = _STRIDES.get(operator)
    if rule is None:
        return result
    if isinstance(result, tuple):
        return tuple([_laid_out(rule, args, each, infer) for each in result])
    return _laid_out(rule, args, result, infer)


def _laid_out(rule: Callable[..., _Strides], args: Sequence[Any], result: Any, infer: Callable[..., Any]) -> Any:
    if not isinstance(result, torch.Tensor) or result.dim() < 2 or result.device.type != "cpu":
        return result
    stride = tuple(rule(infer, args, result))
    varies = any(isinstance(each, torch.SymInt) for each in (*stride, *result.stride()))  # comparing would be a guard
    if not varies and stride == tuple(result.stride()):
        return result
    return infer(_aten.new_empty_strided.default, result, result.shape, stride)


_COMPOSITE: Final = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")


@cache
def gives_new_memory(operator: Any) -> bool:
    """Whether an ATen operator has kernels for devices whose results, by its schema, share no memory with arguments.

    A composite one has the same implementation for fake tensors, and may return an argument or a view of it without an
    annotation (`dropout`, `_unsafe_view`).
    """
    if not isinstance(operator, OpOverload) or operator.namespace != "aten":
        return False
    schema = schema_of(operator)
    return not (
        schema.is_mutable
        or any(result.alias_info is not None for result in schema.returns)
        or any(dispatch_has_kernel_for_dispatch_key(operator.name(), key) for key in _COMPOSITE)
    )


# --- decompositions that differ from the operator ---------------------------------------------------------------------

_NEGATIVE_INDICES: Final = "decomposed, it counts negative indices from the end, where PyTorch raises an exception"

# On a GPU the same checks are device-side assertions, after which no kernel runs: no program relies on them.
_WRONG_ON_CPU: Final[Mapping[Any, str]] = {
    _aten.binary_cross_entropy: "decomposed, it does not check that input and target are between 0 and 1",
    _aten.max_unpool2d: _NEGATIVE_INDICES,
    _aten.max_unpool3d: _NEGATIVE_INDICES,
}
_WRONG: Final[Mapping[Any, str]] = {
    _aten.multilabel_margin_loss_forward: "decomposed, it uses the labels after a -1, which PyTorch ignores",
}
# Decomposed, these count negative indices from the end, too. `decomposition_error` does not return that, as an executor
# can replace negative indices by ones that are out of range before it decomposes them.
_WRONG_IF_NEGATIVE: Final = (_aten.index_add, _aten.index_copy)


def decomposition_error(operator: Any, devices: Collection[str]) -> str | None:
    """How the decomposition of an operator (an overload packet) differs from its kernels on these devices.

    None if no difference is known.
    """
    return _WRONG.get(operator) or (_WRONG_ON_CPU.get(operator) if "cpu" in devices else None)


def correct_decompositions(decompositions: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """These decompositions, except that those with an error return NotImplemented.

    Such an operator then stays a single op in core ATen, and no executor decomposes it.
    """
    return {operator: _unless_wrong(operator, function) for operator, function in decompositions.items()}


def _unless_wrong(operator: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition, which returns NotImplemented on devices on which it has an error."""
    packet = getattr(operator, "overloadpacket", None)
    if packet not in _WRONG and packet not in _WRONG_ON_CPU and packet not in _WRONG_IF_NEGATIVE:
        return decomposition

    def decomposed(input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if packet in _WRONG_IF_NEGATIVE or decomposition_error(packet, (input.device.type,)) is not None:
            return NotImplemented
        return decomposition(input, *args, **kwargs)

    return decomposed


# --- normalizations of mixed dtypes, which autocast calls -------------------------------------------------------------

_NARROW: Final = (torch.bfloat16, torch.float16)
_PARAMETERS: Final[Mapping[Any, slice]] = {
    _aten.native_layer_norm.default: slice(2, 4),
    _aten.native_group_norm.default: slice(1, 3),
    _aten.native_batch_norm.default: slice(1, 5),
    aten_native_batch_norm_legit: slice(1, 5),
}
"""By operator: the positions of weight and bias, and of the running statistics."""


def has_wide_statistics(operator: Any, args: tuple[Any, ...]) -> bool:
    """Whether all results of this call but the first are float32, although metadata has the dtype of the input."""
    positions = _PARAMETERS.get(operator)
    if positions is None or args[0].device.type != "cpu" or args[0].dtype not in _NARROW:
        return False
    return any(each is not None and each.dtype is torch.float32 for each in args[positions])


def with_wide_statistics(decompositions: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The normalizations among these decompositions, with statistics in the dtype that the kernels return."""
    return {op: _with_wide_statistics(op, decompositions[op]) for op in _PARAMETERS if op in decompositions}


def _with_wide_statistics(operator: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    def normalized(*args: Any) -> Any:
        if not has_wide_statistics(operator, args):
            return decomposition(*args)
        output, *statistics = decomposition(args[0].float(), *args[1:])
        return (output.to(args[0].dtype), *statistics)

    return normalized
