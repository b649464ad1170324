"""A symbol: the specification of one operation, one row."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any


class CallStyle(enum.Enum):
    """How a call is written in Python."""

    FUNCTION = "torch.add(a, b)"
    METHOD = "a.view(2, 3)"
    ATTRIBUTE = "a.T"
    GETITEM = "a[0, :]"


class Tag(enum.Enum):
    """What passes may ask about a symbol. Effects of one call are on its `BoundSymbol`, not here."""

    # Enum's is a function in Python, which each question about a tag would run; members are equal by identity anyway
    __hash__ = object.__hash__

    ELEMENTWISE = enum.auto()
    REDUCTION = enum.auto()
    MATMUL = enum.auto()
    PRODUCT = enum.auto()  # of its two arguments, as matrices, with batches before
    LINEAR = enum.auto()  # product of its first argument and its transposed second, plus the third if there is one
    ACCUMULATION = enum.auto()  # its first argument plus the product of the next two; options scale them
    COMMUTATIVE = enum.auto()  # its two arguments may change places
    SUM = enum.auto()  # of its two arguments; an option scales the second
    COPY = enum.auto()  # the elements of its first argument in their order, in its memory or a new one
    FILL = enum.auto()  # writes its second argument over all of its first, zero without one
    CAST = enum.auto()  # a copy of its first argument with the dtype, on the device or in the format of the others
    SHAPE = enum.auto()  # moves or views elements, computes nothing
    SAME_OBJECT = enum.auto()  # its result is its argument under a new name, as autograd knows it since an earlier line
    CREATION = enum.auto()
    INDEXING = enum.auto()
    ATTENTION = enum.auto()
    DISPATCHES = enum.auto()  # its kernels call others through the dispatcher: autocast acts on these, unseen
    CONVOLUTION = enum.auto()  # of its first argument with its second
    MEMORY_FORMAT = enum.auto()  # its results have the memory format of its first argument, channels last or not
    NORMALIZATION = enum.auto()
    LOSS = enum.auto()
    COMPOSITE = enum.auto()  # of several torch functions; transforms recognize it in programs
    HIGHER_ORDER = enum.auto()  # takes traces as arguments
    # Backward runs the trace, its first argument, again; then it writes the option ``again`` in place of its arguments.
    RECOMPUTED = enum.auto()
    REPEATED = enum.auto()  # backward calls it again rather than keep its results, whatever its effects
    COLLECTIVE = enum.auto()  # starts to communicate with other processes, which all do so in the same order
    WAIT = enum.auto()  # ends the communication that its first argument is from: its result is what has arrived
    RANDOM = enum.auto()  # may consume random numbers; what one call does is in its effects
    # Autograd must record the program while it runs: the call reads or changes the autograd graph, or uses parameters
    # that are not its arguments.
    AUTOGRAD = enum.auto()
    # The program runs line by line as it was recorded: the call reads or changes what no value of a trace shows, as the
    # autograd graph, handles of hooks, the memory of a tensor object, PyTorch's flags.
    AS_RECORDED = enum.auto()
    HOOK = enum.auto()  # has the user's functions called with gradients, or calls them; takes None for an absent one
    REPORT = enum.auto()  # tells the user something, and gives nothing: it prints, logs or warns
    GUESS = enum.auto()  # ends the run unless a value is the one that the lines after it were recorded with
    PARTIAL = enum.auto()  # a line of backward that tells an absent cotangent, None, from zeros
    COMPONENTWISE = enum.auto()  # of a hook: the i-th result comes from the i-th item of the second argument
    BACKWARD = enum.auto()  # an executor's; the third argument says which results are wanted, the others are None
    OPAQUE = enum.auto()  # not in the tables: everything about it is derived from PyTorch
    LOCAL = enum.auto()  # no importable name stands for the target: it must be handed to the program


class Autocast(enum.Enum):
    """What autocast does to the floating-point arguments of a symbol, where it is enabled."""

    LOWER_PRECISION = enum.auto()  # cast to the autocast dtype
    FLOAT32 = enum.auto()  # cast to float32
    PROMOTE = enum.auto()  # cast to the widest dtype among them
    REFUSE = enum.auto()  # raises, because the result would be unsafe


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """One operation. What is absent is derived from PyTorch. Identity is equality: the registry keeps one per name.

    Attributes:
        name: the dotted name that is printed; for methods and attributes the bare name.
        target: what the reference executor calls, with the tensor first for methods and attributes.
        style: how the call is printed.
        tags: for passes.
        functional: for in-place symbols, the symbol that computes the same value out of place, if there is one. It
            takes the same arguments. Its result may have another dtype or a smaller shape than the mutated tensor's; it
            is right once converted to that tensor's dtype and expanded to its shape.
        decomposition: optional; called like ``target``, written in simpler torch functions.
        autocast: by device type ("cpu", "cuda"), what autocast does; absent device types are left alone.
        executor: name of the executor that it belongs to, which runs it and is not queried; None for all others.
        reference: of an executor's: the symbol whose work it does, if there is one. It takes the same arguments and
            gives the same result, except for forward and backward of a pair.
    """

    name: str
    target: Callable[..., Any]
    style: CallStyle = CallStyle.FUNCTION
    tags: frozenset[Tag] = field(default_factory=frozenset)
    functional: Symbol | None = None
    decomposition: Callable[..., Any] | None = None
    autocast: Mapping[str, Autocast] = field(default_factory=dict)
    executor: str | None = None
    reference: Symbol | None = None

    def __repr__(self) -> str:
        return f"Symbol({self.name})"


def as_recorded(symbol: Symbol) -> Symbol:
    """The symbol of a call whose program has to run line by line, one for each symbol; see `Tag.AS_RECORDED`."""
    return _made_as_recorded(symbol) if Tag.LOCAL in symbol.tags else _as_recorded(symbol)


def _made_as_recorded(symbol: Symbol) -> Symbol:
    return replace(symbol, tags=symbol.tags | {Tag.AS_RECORDED})


_as_recorded = cache(_made_as_recorded)  # not of local symbols, whose targets are the user's objects
