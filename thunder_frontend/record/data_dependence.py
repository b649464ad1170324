"""Calls whose result needs values that do not exist while a program is recorded: requests to resolvers, and errors."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from thunder_core.checks.shared_memory import base_of
from thunder_core.errors import AcquisitionError, DataDependentError, UnsupportedError
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.size import from_fake, hint_of
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_errata import trusts_values
from thunder_core.pytorch_internals import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    view_base,
)
from thunder_core.recording.input_fakes import view_like
from thunder_core.tracing.fake_tensors import computed
from thunder_core.tracing.frames import library_callers
from thunder_frontend.record.prefix import real_calls
from thunder_frontend.record.traced_tensor import Variable

if TYPE_CHECKING:
    from thunder_frontend.record.arguments import CallArguments
    from thunder_frontend.record.recorder import Recorder

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
    "use the function of torch instead of NumPy's, or wrap the NumPy part in an operator with torch.library.custom_op",
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
"""By the last part of a symbol's name, for calls that return a value to Python."""
_OF_SHAPES: Final[dict[str, tuple[str, ...]]] = {
    "masked_select": _MASK,
    **dict.fromkeys(("nonzero", "argwhere", "where"), _PLACES),
    "repeat_interleave": ("give the length of the result as a Python number: output_size=...",),
    "bincount": ("torch.zeros(size).scatter_add(0, index, ones) counts into a fixed number of bins",),
    "one_hot": ("give num_classes as a Python number",),
    **dict.fromkeys(
        ("unique", "unique_consecutive"),
        ("torch.sort has a fixed shape, and equal neighbors of its result can be masked",),
    ),
}
"""By the last part of a symbol's name, for calls with a data-dependent shape."""
_ANYWAY: Final = (
    "compute the value outside of the compiled function and pass it as a Python argument: each value gets a compiled "
    "program",
    "or compile the parts before and after this line, each with its thunder.jit",
)
_OUTSIDE: Final = (
    "or make this call outside of the compiled function, and compile the parts before and after it, each with its "
    "thunder.jit",
)
_OF_RANDOM_NUMBERS: Final = (
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
"""Advice for reads of values in PyTorch's own modules, by the prefix of the modules' names."""
_CREATION: Final = frozenset(
    {"arange", "zeros", "ones", "full", "empty", "rand", "randn", "randint", "linspace", "eye"}
)


def _advice_of_read(name: str) -> tuple[str, ...]:
    """Advice for a call that returns a value to Python, by the name of its symbol."""
    specific = _OF_READS.get(_last(name), _BRANCH)
    return (*specific, *(_OUTSIDE if specific in (_LIST, _NUMPY, _TEXT) else _ANYWAY))


def _advice_of_shape(name: str, *, masked: bool) -> tuple[str, ...]:
    """Advice for a call with a data-dependent shape, by the name of its symbol.

    Args:
        masked: whether the call is indexing with a mask.
    """
    last = _last(name)
    if last in _CREATION:
        return (*_SIZE, *_ANYWAY)
    if last in ("getitem", "setitem"):
        return (*_MASK, *_OUTSIDE) if masked else (*_COUNT, *_ANYWAY)
    return (*_OF_SHAPES.get(last, _FIXED_SHAPE), *_OUTSIDE)


def _advice_of_library(callers: frozenset[str]) -> tuple[str, ...]:
    """Advice for a read in PyTorch's own modules: ``callers`` are those between the user's line and the call."""
    return tuple(
        sentence
        for prefix, advice in _OF_LIBRARY.items()
        if any(name.startswith(prefix) for name in callers)
        for sentence in advice
    )


def _called(name: str) -> str:
    """The call of a symbol as users write it: ``bool()`` for ``__bool__``, ``x[...]`` for ``getitem``."""
    if name == "getitem":
        return "x[...]"
    return f"{name.strip('_')}()" if name.startswith("__") else name


def _last(name: str) -> str:
    return name.rpartition(".")[2]


class ValueNeeded(Exception):
    """Raised instead of running a call that reads a tensor's values."""


class MetadataUnknown(Exception):
    """Raised where a meta kernel fails although the operation itself works."""


_MASKS = (torch.bool, torch.uint8)
EXCEPTIONS = (DataDependentOutputException, DynamicOutputShapeException, ValueNeeded, MetadataUnknown)


def error(
    symbol: Symbol,
    variables: Sequence[Variable],
    location: SourceLocation | None,
    cause: Exception,
    *,
    random: bool = False,
    reasons: Sequence[str] = (),
) -> AcquisitionError:
    """The error about a data-dependent call, with the call, the tensor and advice.

    Args:
        random: whether only random draws decide the values.
        reasons: why the values cannot be read while the program is recorded.
    """
    if isinstance(cause, MetadataUnknown):
        return UnsupportedError(
            f"PyTorch cannot infer the shape of the result of {symbol.name} without running it: {cause}",
            location=location,
            advice=(
                "for an operator of your own, register a fake implementation with torch.library.register_fake",
                "call it outside of the compiled function",
            ),
        )
    described = ", ".join(dict.fromkeys(str(variable.proxy.name) for variable in variables)) or "its arguments"
    origin = "is drawn at random in each run" if random else "depends on the program's inputs"
    known = f"which {origin} and is not known while the program is recorded"
    specific = _advice_of_library(library_callers())
    if isinstance(cause, ValueNeeded):
        advice = _OF_RANDOM_NUMBERS if random else _advice_of_read(symbol.name)
        what = f"{_called(symbol.name)} needs the value of {described}, {known}"
    else:
        advice = _advice_of_shape(symbol.name, masked=any(variable.proxy.dtype in _MASKS for variable in variables))
        what = f"the shape of the result of {_called(symbol.name)} depends on the value of {described}, {known}"
    return DataDependentError("; ".join([what, *reasons]), location=location, advice=(*specific, *advice))


@dataclass(frozen=True)
class ValueRequest:
    """A call whose result needs values that do not exist while a program is recorded.

    Attributes:
        symbol, args, kwargs: the call, with the program's tensors.
        call: the same call with proxies, with its tensors' variables.
        cause: why the result cannot be inferred on fakes: `ValueNeeded` for a call that returns a value to Python,
            another of `thunder_frontend.record.data_dependence.EXCEPTIONS` for a call with data-dependent metadata.
    """

    symbol: Symbol
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    call: CallArguments
    cause: Exception

    @property
    def reads(self) -> bool:
        """Whether the call returns a value to Python."""
        return isinstance(self.cause, ValueNeeded)

    def recorded_with(self, recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Resolved | None:
        """Record the call with other arguments: numbers in place of tensors.

        None if no argument differs, or if the call takes a tensor in place of a number.
        """
        before, after = [list(map(id, iterate_leaves(values))) for values in ((self.args, self.kwargs), (args, kwargs))]
        if before == after:
            return None
        try:
            return Resolved(recorder.call_symbol(self.symbol, args, kwargs))
        except TypeError:  # it takes a tensor there
            self.cause.__traceback__ = None
            return None


@dataclass(frozen=True)
class Resolved:
    """The result of a call, as the program gets it."""

    result: Any


@dataclass(frozen=True)
class Declined:
    """A resolver cannot resolve the result.

    Attributes:
        reason: why not.
        blocking: whether the error mentions the reason: the resolver would resolve such a result otherwise.
    """

    reason: str
    blocking: bool = False


class Resolver(Protocol):
    """Resolves the result of a call that needs values of tensors while a program is recorded.

    A resolver must not store requests, as their tensors must not outlive the recording.
    """

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """The result, after recording the ops that it needs; or the reason why it cannot be resolved.

        Raises:
            AcquisitionError: no other resolver may be tried.
        """


# Raised before any kernel runs, by `check_inplace` in torch/csrc/autograd/VariableTypeUtils.h. Only the text identifies
# it: it is a RuntimeError from C++, and other calls that fail before dispatch, as `Tensor.numpy` of fakes, have similar
# tracebacks.
_OF_AUTOGRAD = "leaf Variable that requires grad is being used in an in-place operation"
_READS_MEMORY = (
    "data is not allocated yet"  # a kernel reads values of a fake: zeros may be invalid (lengths of sequences)
)
_MATERIALIZE_LIMIT = 1 << 26  # bytes


def as_eager_raises(symbol: Symbol, args: Any, kwargs: Any, raised: Exception) -> Exception:
    """The exception that eager raises for a call that failed on fakes.

    Some meta kernels raise other messages, and a few fail where the operation works. So a small call of a PyTorch
    function is tried on zeros; `MetadataUnknown` is returned if that works.
    """
    unsupported = isinstance(raised, UnsupportedFakeTensorException | UnsupportedOperatorException)
    module = getattr(symbol.target, "__module__", None) or "torch"
    if _OF_AUTOGRAD in str(raised) or any(map(_is_refused, iterate_leaves((args, kwargs)))):
        return raised
    if _READS_MEMORY in str(raised):
        return MetadataUnknown(str(raised).partition("\n")[0])
    if trusts_values(symbol.target, args):
        return MetadataUnknown(str(raised))
    fakes = [leaf for leaf in iterate_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
    if any(isinstance(size, torch.SymInt) for leaf in fakes for size in leaf.shape):
        return raised  # zeros have no sizes that vary; the program is recorded again with constant ones
    if module.startswith("torch") and is_small(args, kwargs, devices=("cpu", "meta")):
        with real_calls():
            try:
                symbol.target(*map_leaves(_zeros, args), **map_leaves(_zeros, kwargs))
            except Exception as eager:  # noqa: BLE001 - any exception of eager is the result
                return eager.with_traceback(None)
        unsupported = unsupported or is_small(args, kwargs)
    return MetadataUnknown(str(raised)) if unsupported else raised


def is_small(args: Any, kwargs: Any, devices: tuple[str, ...] = ("cpu",)) -> bool:
    """Whether a call on fakes may be tried on real tensors: on these types of devices, and of limited size."""
    tensors = [leaf for leaf in iterate_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
    return all(t.device.type in devices and t.layout is torch.strided for t in tensors) and (
        builtins.sum(hint_of(from_fake(t.untyped_storage().nbytes())) for t in tensors) < _MATERIALIZE_LIMIT
    )


def _is_refused(leaf: Any) -> bool:
    """Whether autograd refuses a view because of a write to its base, which a call on zeros would not show."""
    if isinstance(leaf, FakeTensor) and view_base(leaf) is not None:
        try:
            leaf.grad_fn  # noqa: B018 - regenerated after a write to the base
        except RuntimeError:
            return True
    return False


def _zeros(leaf: Any) -> Any:
    if not isinstance(leaf, FakeTensor):
        return leaf
    size = leaf.untyped_storage().nbytes() // leaf.element_size()
    flat, base = torch.zeros(size, dtype=leaf.dtype, device=leaf.device), base_of(leaf)
    real = flat.as_strided(base.shape, base.stride(), base.storage_offset()).detach().requires_grad_(base.requires_grad)
    if base.requires_grad and not base.is_leaf:
        real = computed(real)
    return real if base is leaf else view_like(real, leaf)
