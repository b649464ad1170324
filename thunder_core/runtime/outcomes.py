"""Programs whose Python reads values of tensors: each outcome has a cache entry, whose lines check the values.

A program that takes a branch of ``if x.sum() > 0`` has a line that raises `WrongGuess` where the sum says otherwise.
Nothing that others see has happened by then: writes to memory of the caller and what the program prints come after the
last check, and random generators get their states back. So the entry of the other branch starts anew.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from thunder_core.acquire.attempt import Guesses
from thunder_core.errors import DataDependentError, WrongGuess
from thunder_core.ir.bound_symbol import BoundSymbol, tensors_written_by
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import SizeExpr, as_constant, symbols_of, with_size
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace, bodies_of
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import accumulation_hooks_of, backward_hooks_of
from thunder_core.symbols import functions
from thunder_core.symbols.checks import SHAPES, are_alike, checked_value, is_same, unmet
from thunder_core.symbols.generators import generator_states, set_generator_states
from thunder_core.symbols.opaque import ASKS_AUTOGRAD, CHANGES_AUTOGRAD

if TYPE_CHECKING:
    from thunder_core.guards.sizes import SizeFact
    from thunder_core.runtime.entry import Entry
    from thunder_core.tracing.sizes import Sizes


_LASTING: Final = frozenset({torch.Tensor.detach_, functions.set_data})


@dataclass(frozen=True)
class Guess:
    """What a program was recorded with, and checks.

    Attributes:
        reader: how it is read: `thunder_core.symbols.checks.READERS`.
        text: what it is: ``bool(t3)``, ``the shape of t4``.
        value: what it was, with symbols for sizes that are those of inputs.
        location: the user's line.
        conditions: what has to hold of the symbols that the value defines, as Python.
        asked: those of them that the program decides by.
    """

    reader: str
    text: str
    value: Any
    location: SourceLocation | None
    conditions: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()

    def describe(self) -> str:
        """For people."""
        where = "" if self.location is None else f", at {self.location.describe()}"
        value = ", ".join([str(shape) for shape, _ in self.value]) if self.reader == SHAPES else _short(self.value)
        only = f" ({', '.join(self.asked)})" if self.asked else ""
        return f"{self.text} is {value}{only}{where}"

    def symbols_of(self, value: Any, known: Mapping[str, int]) -> dict[str, int] | None:
        """The symbols with those that a value of a call defines; None where it is not what the program checks.

        Args:
            known: the symbols of inputs and of values before.
        """
        symbols = dict(known)

        def bound(leaf: Any, actual: Any) -> None:
            if type(leaf) is SizeExpr and type(actual) is int and str(leaf) in leaf.symbols:
                symbols.setdefault(str(leaf), actual)

        _pairwise(bound, self.value, value)
        if _undefined(self.value, symbols):
            return None
        expected = _with_symbols(self.value, symbols)
        same = are_alike(value, expected) if self.reader == SHAPES else is_same(value, expected)
        return symbols if same and unmet(self.conditions, symbols) is None else None


def _pairwise(function: Callable[[Any, Any], None], one: Any, other: Any) -> None:
    """Call a function with each leaf of nested tuples and what stands in its place in another value."""
    if not isinstance(one, tuple | list):
        function(one, other)
    elif isinstance(other, tuple | list) and len(one) == len(other):
        for left, right in zip(one, other, strict=True):
            _pairwise(function, left, right)


def _undefined(value: Any, symbols: Mapping[str, int]) -> bool:
    """Whether a value has symbols that are not known: another value stands in their place."""
    return any(name not in symbols for name in symbols_of(iterate_leaves(value)))


def _with_symbols(value: Any, symbols: Mapping[str, int]) -> Any:
    return map_leaves(lambda leaf: with_size(leaf, partial(as_constant, values=symbols)), value)


def guesses_of(trace: Trace, sizes: Sizes | None = None) -> tuple[Guess, ...]:
    """The values that a program checks, in order.

    Args:
        sizes: the symbols in it.
    """
    facts = {} if sizes is None else sizes.facts_of_lines()
    return tuple([_guess(bound, facts) for bound in sorted(_checks(trace), key=lambda bound: bound.args[0])])


def _checks(trace: Trace) -> Iterator[BoundSymbol]:
    """The lines that check values, also those of checkpoint regions."""
    for bound in trace.symbols:
        if Tag.GUESS in bound.symbol.tags:
            yield bound
        elif Tag.HIGHER_ORDER in bound.symbol.tags:
            for body in bodies_of(bound):
                yield from _checks(body)


def _guess(bound: BoundSymbol, facts: Mapping[str, Sequence[SizeFact]]) -> Guess:
    """What a line checks, and the facts about the sizes that it defines."""
    reader, args, value = checked_value(bound)
    names = ", ".join([getattr(arg, "name", repr(arg)) for arg in args])
    text = {SHAPES: f"the shape of {names}", "number": names}.get(reader, f"{reader}({names})")
    names_of_sizes = dict.fromkeys(symbols_of(iterate_leaves(value)))
    own = [fact for name in names_of_sizes for fact in facts.get(name, ())]
    conditions = tuple(dict.fromkeys([fact.condition for fact in own]))
    asked = tuple(dict.fromkeys([fact.condition for fact in own if fact.location is not None]))
    return Guess(reader, text, value, bound.location, conditions, asked)


def known_after(entry: Entry, wrong: WrongGuess, inputs: tuple[Any, ...]) -> Guesses:
    """What a run of an entry with these inputs tells about the values of a call."""
    symbols = _symbols(entry, inputs)
    if entry.sizes is not None:
        symbols.update(zip(entry.sizes.defined, wrong.sizes, strict=False))
    before = [(guess.reader, _with_symbols(guess.value, symbols)) for guess in entry.guesses[: wrong.position]]
    return Guesses((*before, (entry.guesses[wrong.position].reader, wrong.actual)), entry.keeps_numbers)


def _symbols(entry: Entry, inputs: tuple[Any, ...]) -> dict[str, int]:
    """The symbols of the inputs of an entry in a call with these inputs."""
    return {} if entry.sizes is None else dict(zip(entry.sizes.hints, entry.symbols(inputs), strict=True))


def fits(entry: Entry, known: Guesses, inputs: tuple[Any, ...]) -> bool:
    """Whether an entry was recorded with these values, as far as they are known, for a call with these inputs."""
    if entry.keeps_numbers is not known.numbers or len(entry.guesses) < len(known.values):
        return False
    symbols: dict[str, int] | None = _symbols(entry, inputs)
    for guess, (reader, value) in zip(entry.guesses, known.values, strict=False):
        symbols = guess.symbols_of(value, symbols or {}) if guess.reader == reader else None
        if symbols is None:
            return False
    return True


@dataclass(frozen=True)
class Undo:
    """What a run has changed when it ends with `WrongGuess`, and gets back.

    Attributes:
        draws: the states of the random generators.
        written: the memory of inputs, by their positions.
        recorded: inputs whose gradient, and whether they require one, by their positions.
    """

    draws: bool
    written: tuple[int, ...] = ()
    recorded: tuple[int, ...] = ()

    @classmethod
    def of(cls, trace: Trace) -> Undo:
        """For a program whose lines change tensors of its caller after the last check only."""
        return cls(any(bound.effects.random for bound in trace.symbols))

    @classmethod
    def of_recorded(cls, trace: Trace, objects: Sequence[Any]) -> Undo:
        """For a program whose lines run as they were recorded.

        Args:
            objects: its inputs in this call.

        Raises:
            DataDependentError: a line before the last check has an effect that cannot be taken back.
        """
        last = max([index for index, bound in enumerate(trace.symbols) if _checks_value(bound)], default=-1)
        before = trace.symbols[: max(last, 0)]
        inputs = {proxy.name: index for index, proxy in enumerate(trace.inputs)}
        tensors = [(index, proxy) for index, proxy in enumerate(trace.inputs) if isinstance(proxy, TensorProxy)]
        for bound in before:
            _check_reversible(bound, inputs, trace.symbols[last])
            if bound.symbol.target in ASKS_AUTOGRAD and any(map(_leads_out, objects)):
                raise _irreversible(bound, "goes through a graph or hooks of the caller", trace.symbols[last])
        storages = {proxy.storage for bound in before for proxy in tensors_written_by(bound)}
        written = tuple([index for index, proxy in tensors if proxy.storage in storages])
        asks = any(bound.symbol.target in ASKS_AUTOGRAD or bound.symbol.target in CHANGES_AUTOGRAD for bound in before)
        recorded = tuple([index for index, proxy in tensors if proxy.dtype.is_floating_point]) if asks else ()
        return cls(any(bound.effects.random for bound in before), written, recorded)

    def around(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """A program that takes its changes back where it ends with `WrongGuess`."""
        if not (self.draws or self.written or self.recorded):
            return run

        def call(inputs: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            states = generator_states() if self.draws else None
            contents = [inputs[index].untyped_storage().clone() for index in self.written]
            leaves = [inputs[index] for index in self.recorded if inputs[index].is_leaf]
            gradients = [(leaf, leaf.requires_grad, leaf.grad, _copy(leaf.grad)) for leaf in leaves]
            try:
                return run(inputs, args, kwargs)
            except WrongGuess:
                if states is not None:
                    set_generator_states(states)
                for index, content in zip(self.written, contents, strict=True):
                    inputs[index].untyped_storage().copy_(content)
                for leaf, requires_grad, gradient, content in gradients:
                    _give_back(leaf, requires_grad, gradient, content)
                raise

        return call


def _copy(gradient: torch.Tensor | None) -> torch.Tensor | None:
    return None if gradient is None else gradient.detach().clone()


def _give_back(
    leaf: torch.Tensor, requires_grad: bool, gradient: torch.Tensor | None, content: torch.Tensor | None
) -> None:
    """Give a leaf its gradient, with what this contained, and whether it requires one."""
    if leaf.requires_grad != requires_grad:
        leaf.requires_grad_(requires_grad)
    if leaf.grad is not gradient:
        leaf.grad = gradient
    if gradient is not None and content is not None:
        with torch.no_grad():
            gradient.copy_(content)


def _checks_value(bound: BoundSymbol) -> bool:
    """Whether a line is a check of a value, or a checkpoint region with one."""
    if Tag.HIGHER_ORDER not in bound.symbol.tags:
        return Tag.GUESS in bound.symbol.tags
    return any(True for body in bodies_of(bound) for _ in _checks(body))


def _check_reversible(bound: BoundSymbol, inputs: Container[str], guess: BoundSymbol) -> None:
    """Raise DataDependentError for a line that `Undo` cannot take back."""
    target = bound.symbol.target
    if target in _LASTING and any(proxy.name in inputs for proxy in bound.inputs()):
        reason = "changes a tensor of the caller"
    elif Tag.COLLECTIVE in bound.symbol.tags:
        reason = "communicates"
    elif target in ASKS_AUTOGRAD or target in CHANGES_AUTOGRAD or not bound.happens_once() or _checks_value(bound):
        return
    else:
        reason = "has an effect"
    raise _irreversible(bound, reason, guess)


def _leads_out(value: Any) -> bool:
    """Whether backward, when it reaches an input, goes on to what the program does not know."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        return False
    return not value.is_leaf or bool(backward_hooks_of(value) or accumulation_hooks_of(value))


def _irreversible(bound: BoundSymbol, reason: str, guess: BoundSymbol) -> DataDependentError:
    place = "" if guess.location is None else f" at {guess.location.describe()}"
    return DataDependentError(
        f"{bound.symbol.name} {reason} before the value is known that the program reads{place}, and PyTorch runs its "
        "lines as they were recorded",
        location=bound.location,
        advice=("read the value before", "compile the two parts of the function by themselves"),
    )


def entries_for(
    entries: Sequence[Entry], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[Entry, tuple[Any, ...]]]:
    """The entries that check values and whose guards hold for a call, with its inputs."""
    for entry in entries:
        if entry.guesses:
            inputs = entry.prologue.function(args, kwargs)
            if inputs is not None:
                yield entry, inputs


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


_PATIENCE: Final = 2
"""How many calls in a row have to run another entry before that is the first: values may alternate."""
_MOST: Final = 4096
Key = tuple["Entry", tuple[int, ...]]


class LikelyOutcomes:
    """Remembers, for the entry that guards lead to and for its sizes, which one had the values of the last calls.

    A wrong guess costs a run up to the check: values that stay the same, or depend on sizes alone, should not pay it
    in each call.
    """

    def __init__(self) -> None:
        self._first: dict[Key, Entry] = {}
        self._missed: dict[Key, int] = {}

    def entry(self, key: Key) -> Entry:
        """The entry to run first: that for the sizes, or else that of the last calls of any size."""
        return self._first.get(key) or self._first.get((key[0], ()), key[0])

    def learn(self, key: Key, entry: Entry) -> None:
        """Take note of the entry that had the values of a call."""
        likely = entry is self.entry(key)
        if likely and not self._missed:
            return
        keys = {key, (key[0], ())}
        if likely:
            for one in keys:
                self._missed.pop(one, None)
            return
        if len(self._first) >= _MOST or len(self._missed) >= _MOST:  # a number that is another in each call
            self._first.clear()
            self._missed.clear()
        for one in keys:
            self._missed[one] = self._missed.get(one, 0) + 1
            if self._missed[one] >= _PATIENCE:
                del self._missed[one]
                self._first[one] = entry
