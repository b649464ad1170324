"""Calls whose result needs values that do not exist while a program is recorded, and errors of calls on fakes."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, Final

import torch

from thunder_core.acquire.inputs import view_like
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

_BRANCH: Final = ("choose between tensors with torch.where, or between programs with torch.cond",)
_NUMBER: Final = (
    "use the tensor itself in place of the number: operators take tensors without dimensions, and torch.sqrt, "
    "torch.exp and the like do what `math` does",
    *_BRANCH,
)
_COUNT: Final = (
    "sizes, numbers of rounds and bounds of slices are Python numbers: pass them as arguments; where a tensor tells "
    "how much counts, use a mask of fixed shape: torch.arange(size) < bound",
)
_LIST: Final = (
    "work on the tensor instead of a list: iterate over its first dimension, index with it, or use torch.where",
)
_NUMPY: Final = (
    "use the function of torch instead of NumPy's, or make the NumPy part an operator with torch.library.custom_op",
)
_TEXT: Final = (
    "return the tensor, and print or format it outside of the compiled function",
    "give print() or a logger the tensor itself, not its text: print('loss', loss), logger.info('%s', loss)",
)
_MASK: Final = (
    "keep the shape: torch.where(mask, x, 0) instead of x[mask], and (x * mask).sum() instead of x[mask].sum(); "
    "assigning to x[mask] has a fixed shape already",
)
_PLACES: Final = (
    "use the mask itself with torch.where, or a fixed number of places: torch.nonzero_static(x, size=...), torch.topk",
)
_SIZE: Final = ("pass sizes, starts and ends as Python numbers",)
_FIXED_SHAPE: Final = ("keep fixed shapes: mask what does not count, or take a fixed number of items with torch.topk",)
_OF_READS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("__bool__", "is_nonzero", "equal", "allclose", "max", "min"), _BRANCH),
    "__contains__": ("compare as tensors, (x == value).any(), and choose with torch.where",),
    **dict.fromkeys(("item", "__float__", "__int__", "__complex__"), _NUMBER),
    **dict.fromkeys(("__index__", "getitem", "setitem"), _COUNT),
    "tolist": _LIST,
    **dict.fromkeys(("numpy", "__array__"), _NUMPY),
    **dict.fromkeys(("__format__", "__repr__", "__str__"), _TEXT),
}
"""By the last part of a symbol's name, for calls that give Python a value."""
_OF_SHAPES: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("masked_select",), _MASK),
    **dict.fromkeys(("nonzero", "argwhere", "where"), _PLACES),
    "repeat_interleave": ("give the length of the result as a Python number: output_size=...",),
    "bincount": ("torch.zeros(size).scatter_add(0, index, ones) counts into a fixed number of bins",),
    "one_hot": ("give num_classes as a Python number",),
    **dict.fromkeys(
        ("unique", "unique_consecutive"),
        ("torch.sort has a fixed shape, and equal neighbors of its result can be masked",),
    ),
}
"""By the last part of a symbol's name, for calls whose result's shape depends on values."""
_ANYWAY: Final = (
    "compute the value outside of the compiled function and pass it as a Python argument, which gets a compiled "
    "program for each value",
    "or compile the parts before and after this line, each with its thunder.jit",
)
_OUTSIDE: Final = (
    "or make this call outside of the compiled function, and compile the parts before and after it, each with its "
    "thunder.jit",
)
OF_DRAWS: Final = (
    "set a probability of 0, which needs no draw to decide (the `layerdrop` of a model that skips layers at random)",
    "draw outside the compiled function and pass the decision as a Python argument: each gets a program of its own",
    "leave the branch to eager and compile what is called in it: `model.layers[i] = thunder.jit(model.layers[i])`",
    *_BRANCH,
)
_OF_LIBRARY: Final = {
    "torch.distributions": (
        "skip the validation that reads it: validate_args=False, "
        "or torch.distributions.Distribution.set_default_validate_args(False) outside the compiled function",
    ),
    "torch.nn.modules.batchnorm": (
        "give the module a momentum; with momentum=None it divides by the number of batches as a Python number",
        "call the module instead of its forward, or compile the model that it is part of: the program then calls the "
        "module as eager does",
    ),
}
"""What PyTorch's own modules read for, by the prefix of their names."""
_CREATION: Final = frozenset(
    {"arange", "zeros", "ones", "full", "empty", "rand", "randn", "randint", "linspace", "eye"}
)


def advice_of_read(name: str) -> tuple[str, ...]:
    """For a call that gives Python a value: the name of its symbol."""
    particular = _OF_READS.get(_last(name), _BRANCH)
    return (*particular, *(_OUTSIDE if particular in (_LIST, _NUMPY, _TEXT) else _ANYWAY))


def advice_of_shape(name: str, *, masked: bool) -> tuple[str, ...]:
    """For a call whose result's shape depends on values.

    Args:
        masked: it is indexing with a mask.
    """
    last = _last(name)
    if last in _CREATION:
        return (*_SIZE, *_ANYWAY)
    if last in ("getitem", "setitem"):
        return (*_MASK, *_OUTSIDE) if masked else (*_COUNT, *_ANYWAY)
    return (*_OF_SHAPES.get(last, _FIXED_SHAPE), *_OUTSIDE)


def advice_of_library(callers: frozenset[str]) -> tuple[str, ...]:
    """For what PyTorch's own modules read, of which these are between the user's line and the call."""
    return tuple(
        line
        for prefix, lines in _OF_LIBRARY.items()
        if any(name.startswith(prefix) for name in callers)
        for line in lines
    )


def called(name: str) -> str:
    """A symbol's name as people write the call: ``bool()`` for ``__bool__``, ``x[...]`` for ``getitem``."""
    if name == "getitem":
        return "x[...]"
    return f"{name.strip('_')}()" if name.startswith("__") else name


def _last(name: str) -> str:
    return name.rpartition(".")[2]


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
    reasons: Sequence[str] = (),
) -> AcquisitionError:
    """The error that names the call, the tensor and the ways out.

    Args:
        drawn: random draws alone decide the values.
        reasons: what keeps the values from being read while the program is recorded.
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
    return DataDependentError("; ".join([what, *reasons]), location=location, advice=(*particular, *advice))


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
