"""Calls whose result needs values that do not exist while a program is recorded, and errors of calls on fakes."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import torch

from thunder_core.acquire.input_fakes import view_like
from thunder_core.acquire.value_advice import OF_DRAWS, advice_of_library, advice_of_read, advice_of_shape, called
from thunder_core.acquire.variable import Variable
from thunder_core.errors import AcquisitionError, DataDependentError, UnsupportedError
from thunder_core.guards.shared_memory import base_of
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.size import from_fake, hint_of
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import (
    DataDependentOutputException,
    DisableTorchFunction,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    disable_current_modes,
    view_base,
)
from thunder_core.tracing.fake_tensors import computed
from thunder_core.tracing.user_frames import library_callers


class ValueNeeded(Exception):
    """Raised in place of running a call that reads a tensor's values."""


class MetadataUnknown(Exception):
    """Raised in place of a meta kernel's failure where the operation itself works."""


_MASKS = (torch.bool, torch.uint8)
EXCEPTIONS = (DataDependentOutputException, DynamicOutputShapeException, ValueNeeded, MetadataUnknown)


def error(
    symbol: Symbol,
    variables: Sequence[Variable],
    location: SourceLocation | None,
    cause: Exception,
    *,
    drawn: bool = False,
) -> AcquisitionError:
    """The error that names the call, the tensor and the ways out.

    Args:
        drawn: random draws alone decide the values.
    """
    if isinstance(cause, MetadataUnknown):
        return UnsupportedError(
            f"PyTorch cannot tell the shape of the result of {symbol.name} without running it: {cause}",
            location=location,
            advice=(
                "for an operator of your own, register a fake implementation with torch.library.register_fake",
                "call it outside of the compiled function",
            ),
        )
    described = ", ".join(dict.fromkeys(str(variable.proxy.name) for variable in variables)) or "its arguments"
    origin = "is drawn at random in each run" if drawn else "depends on the program's inputs"
    known = f"which {origin} and is not known while the program is recorded"
    particular = advice_of_library(library_callers())
    if isinstance(cause, ValueNeeded):
        advice = OF_DRAWS if drawn else advice_of_read(symbol.name)
        what = f"{called(symbol.name)} needs the value of {described}, {known}"
    else:
        advice = advice_of_shape(symbol.name, masked=any(variable.proxy.dtype in _MASKS for variable in variables))
        what = f"the shape of the result of {called(symbol.name)} depends on the value of {described}, {known}"
    return DataDependentError(what, location=location, advice=(*particular, *advice))


# Said before any kernel runs, by `check_inplace` in torch/csrc/autograd/VariableTypeUtils.h. Only the text tells: it is
# a RuntimeError of C++, and other calls that fail before a dispatch, as `Tensor.numpy` of fakes, leave such tracebacks.
_OF_AUTOGRAD = "leaf Variable that requires grad is being used in an in-place operation"
_MATERIALIZE_LIMIT = 1 << 26  # bytes


def as_eager_raises(symbol: Symbol, args: Any, kwargs: Any, raised: Exception) -> Exception:
    """The exception that eager raises for a call that failed on fakes.

    Meta kernels word some errors differently, and a few fail where the operation works, so a small call to a PyTorch
    function is tried on zeros. `MetadataUnknown` is returned when that works.
    """
    unsupported = isinstance(raised, UnsupportedFakeTensorException | UnsupportedOperatorException)
    module = getattr(symbol.target, "__module__", None) or "torch"
    if _OF_AUTOGRAD in str(raised) or any(map(_is_refused, iterate_leaves((args, kwargs)))):
        return raised
    if module.startswith("torch") and is_small(args, kwargs):
        with disable_current_modes(), DisableTorchFunction():
            state = torch.random.get_rng_state()
            try:
                symbol.target(*map_leaves(_zeros, args), **map_leaves(_zeros, kwargs))
            except Exception as eager:  # noqa: BLE001 - whatever eager raises is the answer
                return eager.with_traceback(None)
            finally:
                torch.random.set_rng_state(state)
        return MetadataUnknown(str(raised))
    return MetadataUnknown(str(raised)) if unsupported else raised


def is_small(args: Any, kwargs: Any) -> bool:
    """Whether a call on fakes may be tried on real tensors: on the CPU, and of limited size."""
    tensors = [leaf for leaf in iterate_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
    return all(t.device.type == "cpu" and t.layout is torch.strided for t in tensors) and (
        builtins.sum(hint_of(from_fake(t.untyped_storage().nbytes())) for t in tensors) < _MATERIALIZE_LIMIT
    )


def _is_refused(leaf: Any) -> bool:
    """Whether autograd refuses a view for what the program did to its base: zeros have no such past."""
    if isinstance(leaf, FakeTensor) and view_base(leaf) is not None:
        try:
            leaf.grad_fn  # noqa: B018 - made anew after a write to the base
        except RuntimeError:
            return True
    return False


def _zeros(leaf: Any) -> Any:
    if not isinstance(leaf, FakeTensor):
        return leaf
    size = leaf.untyped_storage().nbytes() // leaf.element_size()
    flat, base = torch.zeros(size, dtype=leaf.dtype), base_of(leaf)
    real = flat.as_strided(base.shape, base.stride(), base.storage_offset()).detach().requires_grad_(base.requires_grad)
    if base.requires_grad and not base.is_leaf:
        real = computed(real)
    return real if base is leaf else view_like(real, leaf)
