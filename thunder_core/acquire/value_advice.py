"""What to write instead of a call that needs the values of tensors."""

from __future__ import annotations

from typing import Final

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
