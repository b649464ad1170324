"""Where PyTorch's own schemas, metadata and decompositions differ from what its kernels do; the workarounds.

`ERRATA` lists the errors, with the date on which each was seen. ``tests/test_pytorch_errata.py`` has a check for each
row, which fails with the row's name where the installed PyTorch is right. The row then gets the version in which the
error was fixed; row and workaround are removed when that version is the oldest supported one.

This module imports PyTorch only, so that every part of the compiler, and every plugin, can ask it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.pytorch_internals import EnablePythonDispatcher, aten_native_batch_norm_legit

_aten: Final = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Erratum:
    """An error of PyTorch.

    Attributes:
        name: of the row; the check in the tests has the same.
        error: what PyTorch does, and what it should do.
        seen: the date on which it was first seen, as YYYY-MM-DD.
        fixed: the first of the versions that the suites run with which does not have it; empty while there is none.
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
        "the operator returns None for the workspace where no gradients are recorded, so that its results depend on "
        "more than its arguments",
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
        "the decomposition counts negative indices from the end, where the kernel raises",
        "2026-11-23",
    ),
    Erratum(
        "labels of multilabel_margin_loss",
        "the decomposition counts labels that the kernel leaves out, those after a -1",
        "2026-11-23",
        fixed="2.15.0",
    ),
    Erratum(
        "sizes of batched products",
        "the kernel of matmul for batches takes sizes as numbers, which makes those that vary constants",
        "2026-11-25",
        fixed="2.13.0",
    ),
)

# --- schemas ----------------------------------------------------------------------------------------------------------

_UNANNOTATED_WRITES: Final[Mapping[str, tuple[tuple[int, ...], int]]] = {
    "aten::native_batch_norm": ((3, 4), 5),
    "aten::cudnn_batch_norm": ((3, 4), 5),
    "aten::miopen_batch_norm": ((3, 4), 5),
    "aten::_batch_norm_impl_index": ((3, 4), 5),
}
"""By name of a schema: positions of arguments that the operator writes, and that of the flag which enables it."""


def unannotated_writes(schema: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments that a call writes although the operator's schema, of this name, does not say so."""
    positions, training = _UNANNOTATED_WRITES.get(schema, ((), 0))
    return tuple([args[position] for position in positions]) if positions and args[training] else ()


# --- autograd ---------------------------------------------------------------------------------------------------------

_DEPENDS_ON_GRAD_MODE: Final = frozenset({_aten.mkldnn_rnn_layer.default})


def depends_on_grad_mode(operator: Any) -> bool:
    """Whether the kernel of an ATen operator returns less where no gradients are recorded."""
    return operator in _DEPENDS_ON_GRAD_MODE


# --- sizes that vary --------------------------------------------------------------------------------------------------

_BATCHED_PRODUCTS: Final[Mapping[Any, int | None]] = {
    torch.matmul: None,
    torch.nn.functional.linear: None,
    torch.nn.functional.multi_head_attention_forward: 9,
    torch.nn.functional.scaled_dot_product_attention: 4,
}
"""By function that may call matmul: the position of its argument ``dropout_p``, if it has one."""


def keeping_sizes(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """Around a call on fakes whose operators are recorded: PyTorch's Python form of matmul, which has the same ones.

    Not where something is dropped: the Python form of dropout draws other numbers.
    """
    if function not in _BATCHED_PRODUCTS:
        return nullcontext()
    position = _BATCHED_PRODUCTS[function]
    dropped = kwargs.get("dropout_p") or (position is not None and any(args[position : position + 1]))
    return nullcontext() if dropped else EnablePythonDispatcher()


# --- decompositions that leave out what the operator itself does ------------------------------------------------------

_OUT_OF_RANGE: Final = "decomposed, it takes negative indices for such that count from the end, where PyTorch raises"

# On a GPU the same checks are assertions of its kernels, after which no other kernel runs: no program relies on them.
_LOST_ON_CPU: Final[Mapping[Any, str]] = {
    _aten.binary_cross_entropy: "decomposed, it does not check that input and target are between 0 and 1",
    _aten.max_unpool2d: _OUT_OF_RANGE,
    _aten.max_unpool3d: _OUT_OF_RANGE,
}
_LOST: Final[Mapping[Any, str]] = {
    _aten.multilabel_margin_loss_forward: "decomposed, it counts labels that PyTorch leaves out, those after a -1",
}
# Executors that decompose these by themselves can give them indices that are out of range instead of negative ones.
_NEGATIVE: Final = (_aten.index_add, _aten.index_copy)


def loss(operator: Any, devices: Collection[str]) -> str | None:
    """What the decomposition of an operator (without its overload) loses on these devices; None if nothing is known."""
    return _LOST.get(operator) or (_LOST_ON_CPU.get(operator) if "cpu" in devices else None)


def without_loss(decompositions: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """These decompositions, of which those that lose something return NotImplemented.

    A line with such an operator then stays as it is in core ATen, so that nobody runs it in parts.
    """
    return {operator: _or_none(operator, function) for operator, function in decompositions.items()}


def _or_none(operator: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    packet = getattr(operator, "overloadpacket", None)
    if packet not in _LOST and packet not in _LOST_ON_CPU and packet not in _NEGATIVE:
        return decomposition

    def decomposed(input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if packet in _NEGATIVE or loss(packet, (input.device.type,)) is not None:
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
"""Positions of weight and bias, and of running statistics."""


def has_wide_statistics(operator: Any, args: tuple[Any, ...]) -> bool:
    """Whether the results of this call but the first are float32, although metadata says the dtype of the input."""
    positions = _PARAMETERS.get(operator)
    if positions is None or args[0].device.type != "cpu" or args[0].dtype not in _NARROW:
        return False
    return any(each is not None and each.dtype is torch.float32 for each in args[positions])


def with_wide_statistics(decompositions: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Those of the normalizations among these decompositions, with statistics as the kernels give them."""
    return {op: _computed_wide(op, decompositions[op]) for op in _PARAMETERS if op in decompositions}


def _computed_wide(operator: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    def normalized(*args: Any) -> Any:
        if not has_wide_statistics(operator, args):
            return decomposition(*args)
        output, *statistics = decomposition(args[0].float(), *args[1:])
        return (output.to(args[0].dtype), *statistics)

    return normalized
