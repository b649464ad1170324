"""Symbols: the specifications of operations."""

from __future__ import annotations

import enum
from collections.abc import Callable
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
    """Properties of a symbol that passes test. Effects of a single call are on its `BoundSymbol`."""

    # Enum.__hash__ is a Python function and would run for each test of a tag; members compare by identity anyway
    __hash__ = object.__hash__

    ELEMENTWISE = enum.auto()
    # Floats among its arguments decide the values of its results alone: calls that differ in floats have results with
    # the same metadata, share the same storages and write the same tensors. It is so for elementwise functions, too.
    TAKES_FLOATS = enum.auto()
    REDUCTION = enum.auto()
    MATMUL = enum.auto()
    PRODUCT = enum.auto()  # matrix product of its two arguments, with leading batch dimensions
    LINEAR = enum.auto()  # matrix product of its first and its transposed second argument, plus the third if present
    ACCUMULATION = enum.auto()  # its first argument plus the matrix product of the next two; options scale both
    COMMUTATIVE = enum.auto()  # its two arguments may be swapped
    SUM = enum.auto()  # adds its two arguments; an option scales the second
    COPY = enum.auto()  # the elements of its first argument in order, as a view or in new storage
    FILL = enum.auto()  # overwrites its first argument with its second, or with zeros if that is absent
    CAST = enum.auto()  # a copy of its first argument with the dtype, on the device or in the format of the others
    SHAPE = enum.auto()  # moves or views elements, computes nothing
    DETACH = enum.auto()  # a view of its argument without the argument's autograd history
    UNCOUNTED = enum.auto()  # writes to its result do not change the version counter of its argument
    STORAGE_VIEW = enum.auto()  # a view whose offset counts from the start of the storage, not from its argument
    SAME_OBJECT = enum.auto()  # returns its argument itself, whose autograd history an earlier op changed
    CREATION = enum.auto()
    INDEXING = enum.auto()
    ASSIGNMENT = enum.auto()  # writes the elements of its first argument at the index that is its second
    ATTENTION = enum.auto()
    DISPATCHES = enum.auto()  # its kernels call others through the dispatcher, and autocast acts on these
    CONVOLUTION = enum.auto()  # convolution of its first argument with its second
    MEMORY_FORMAT = enum.auto()  # its results have the memory format of its first argument, channels last or not
    NORMALIZATION = enum.auto()
    LOSS = enum.auto()
    COMPOSITE = enum.auto()  # composed of several torch functions; transforms recognize the composition in programs
    HIGHER_ORDER = enum.auto()  # takes traces as arguments
    # Backward recomputes the trace, its first argument; that run writes the tensors in the option ``again`` instead of
    # the arguments.
    RECOMPUTED = enum.auto()
    REPEATED = enum.auto()  # backward recomputes it instead of saving its results, whatever its effects
    COLLECTIVE = enum.auto()  # starts a communication with other processes, which must all call it in the same order
    WAIT = enum.auto()  # waits for the communication of its first argument and returns the received tensor
    STRAIGHT_THROUGH = enum.auto()  # detaches a part of its result: its operators alone have another derivative
    RANDOM = enum.auto()  # may consume random numbers; whether a call does is in its effects
    # Autograd must record the program while it runs: the call reads or changes the autograd graph, or uses parameters
    # that are not its arguments.
    AUTOGRAD = enum.auto()
    # The program runs op by op as it was recorded: the call reads or changes state that traces do not model, such as
    # the autograd graph, hook handles, the storage of a tensor object, PyTorch's flags.
    AS_RECORDED = enum.auto()
    READS_AUTOGRAD = enum.auto()  # its result depends on autograd state, not on the metadata of its argument
    CHANGES_AUTOGRAD = enum.auto()  # returns its argument after changing its autograd metadata or its storage
    CHANGES_LEAF = enum.auto()  # changes only autograd metadata that a caller can restore
    RUNS_AUTOGRAD = enum.auto()  # runs backward through the autograd graph of earlier calls
    HOOK = enum.auto()  # registers or calls user functions on gradients; takes None for an absent gradient
    REPORT = enum.auto()  # prints, logs or warns; has no result
    ASSERTION = enum.auto()  # does nothing but raise an exception if a condition does not hold
    GUESS = enum.auto()  # stops the run if a value differs from the guess that later ops were recorded with
    # Calls a Python function of the user as eager does. What the function reads is not guarded: the op ends the run if
    # the function does what the program was not compiled for.
    UNGUARDED = enum.auto()
    PARTIAL = enum.auto()  # an op of backward that distinguishes an absent cotangent, None, from zeros
    COMPONENTWISE = enum.auto()  # a hook whose i-th result depends on the i-th item of the second argument only
    BACKWARD = enum.auto()  # an executor's backward; the third argument selects the wanted results, the others are None
    OPAQUE = enum.auto()  # has no row in the tables: its properties are derived from PyTorch
    # Its function runs the compiled trace of its parts. That trace compares the results of executors in its first run,
    # so the results of this op are not compared again.
    RUNS_PARTS = enum.auto()
    LOCAL = enum.auto()  # its target has no importable name and must be an input of the program


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """One operation. Symbols compare by identity: the registry has one for each name.

    Attributes:
        name: the printed dotted name; for methods and attributes the bare name.
        target: the function that the reference executor calls, with the tensor first for methods and attributes.
        style: how the call is printed.
        tags: for passes.
        functional: for in-place symbols, the symbol that computes the same value out of place, if there is one. It
            takes the same arguments. Its result must be cast to the mutated tensor's dtype and expanded to its shape,
            from both of which it can differ.
        decomposition: optional; called like ``target``, written in simpler torch functions.
        executor: for an executor's symbol, the name of that executor, which runs it unqueried; None for all others.
        reference: for an executor's symbol, the symbol that it implements, if there is one: with the same arguments and
            the same result, except for the forward and backward of a pair.
    """

    name: str
    target: Callable[..., Any]
    style: CallStyle = CallStyle.FUNCTION
    tags: frozenset[Tag] = field(default_factory=frozenset)
    functional: Symbol | None = None
    decomposition: Callable[..., Any] | None = None
    executor: str | None = None
    reference: Symbol | None = None

    def __repr__(self) -> str:
        return f"Symbol({self.name})"


def as_recorded(symbol: Symbol) -> Symbol:
    """The variant of ``symbol`` with `Tag.AS_RECORDED`; cached, so that there is one for each symbol."""
    return _new_as_recorded(symbol) if Tag.LOCAL in symbol.tags else _as_recorded(symbol)


def _new_as_recorded(symbol: Symbol) -> Symbol:
    return replace(symbol, tags=symbol.tags | {Tag.AS_RECORDED})


_as_recorded = cache(_new_as_recorded)  # not for local symbols: the cache would keep the user's objects alive
