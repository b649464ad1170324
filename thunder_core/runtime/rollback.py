"""Restore the state that a run changed before a check found a value that differs from the recorded one."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.errors import DataDependentError, RunEnds
from thunder_core.ir.bound_symbol import BoundSymbol, tensors_written_by
from thunder_core.ir.location import at
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.switches import read_between_ops, set_between_ops, set_switch
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace, bodies_of
from thunder_core.pytorch_internals import accumulation_hooks_of, backward_hooks_of
from thunder_core.runtime.guesses import value_checks
from thunder_core.symbols.captured import CAPTURE
from thunder_core.symbols.generators import RESTORED, generator_states, set_generator_states

_USES_AUTOGRAD: Final = frozenset({Tag.RUNS_AUTOGRAD, Tag.CHANGES_AUTOGRAD})
_RESTORED: Final = frozenset({Tag.RUNS_AUTOGRAD, Tag.CHANGES_LEAF, Tag.ASSERTION, Tag.UNGUARDED})
"""Tags of ops whose effects `Rollback` undoes, or have none; or a repetition has no further effect."""
_MAY_END: Final = frozenset({Tag.GUESS, Tag.UNGUARDED})
"""Tags of ops that may end a run."""


@dataclass(frozen=True)
class Rollback:
    """Restores the state that a run has changed before it raises `RunEnds`.

    Attributes:
        random: whether to restore the states of the random generators.
        written: positions of the inputs whose storages are restored.
        leaves: positions of the inputs whose ``grad`` and ``requires_grad`` are restored if they are leaves.
        switches: whether to restore PyTorch's switches.
    """

    random: bool
    written: tuple[int, ...] = ()
    leaves: tuple[int, ...] = ()
    switches: bool = False

    @classmethod
    def of(cls, trace: Trace) -> Rollback:
        """For a program that changes tensors of the caller only after the last check."""
        return cls(any(bound.effects.random for bound in trace.symbols))

    @classmethod
    def of_recorded(cls, trace: Trace, objects: Sequence[Any]) -> Rollback:
        """For a program whose ops run as they were recorded.

        Args:
            trace: the acquired trace.
            objects: its inputs in this call.

        Raises:
            DataDependentError: an op before the last check has an effect that cannot be undone.
        """
        ops = list(_with_opened_regions(trace))
        checks = [index for index, bound in enumerate(ops) if bound.symbol.tags & _MAY_END]
        if not checks:
            return cls(random=False)
        check = ops[checks[-1]]
        before = [bound for bound in ops[: checks[-1]] if Tag.GUESS not in bound.symbol.tags]
        inputs = {proxy.name: index for index, proxy in enumerate(trace.inputs)}
        tensors = [(index, proxy) for index, proxy in enumerate(trace.inputs) if isinstance(proxy, TensorProxy)]
        for bound in before:
            _check_reversible(bound, inputs, check)
            if Tag.RUNS_AUTOGRAD in bound.symbol.tags and any(map(_has_outer_graph, objects)):
                raise _irreversible(bound, "goes through a graph or hooks of the caller", check)
        storages = {proxy.storage for bound in before for proxy in tensors_written_by(bound)}
        written = tuple([index for index, proxy in tensors if proxy.storage in storages])
        uses = any(bound.symbol.tags & _USES_AUTOGRAD for bound in before)
        leaves = tuple([index for index, proxy in tensors if proxy.dtype.is_floating_point]) if uses else ()
        switches = any(bound.symbol.target is set_switch for bound in before)
        return cls(any(bound.effects.random for bound in before), written, leaves, switches)

    def around(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """A function that calls ``run``, and restores the state if it raises `RunEnds`."""
        if not (self.random or self.written or self.leaves or self.switches):
            return run

        def call(inputs: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            states = generator_states() if self.random else None
            given = [each for each in inputs if isinstance(each, torch.Generator)] if self.random else []
            own_states = [(generator, generator.get_state()) for generator in given]
            switches = read_between_ops() if self.switches else None
            contents = [inputs[index].untyped_storage().clone() for index in self.written]
            leaves = [inputs[index] for index in self.leaves if inputs[index].is_leaf]
            gradients = [(leaf, leaf.requires_grad, leaf.grad, _copy(leaf.grad)) for leaf in leaves]
            try:
                return run(inputs, args, kwargs)
            except RunEnds:
                if states is not None:
                    set_generator_states(states)
                for generator, state in own_states:
                    generator.set_state(state)
                if switches is not None:
                    set_between_ops(switches)
                for index, content in zip(self.written, contents, strict=True):
                    inputs[index].untyped_storage().copy_(content)
                for leaf, requires_grad, gradient, content in gradients:
                    _restore_leaf(leaf, requires_grad, gradient, content)
                raise

        return call


def _copy(gradient: torch.Tensor | None) -> torch.Tensor | None:
    return None if gradient is None else gradient.detach().clone()


def _restore_leaf(
    leaf: torch.Tensor, requires_grad: bool, gradient: torch.Tensor | None, content: torch.Tensor | None
) -> None:
    """Restore ``requires_grad`` and ``grad`` of a leaf, and the content of its gradient."""
    if leaf.requires_grad != requires_grad:
        leaf.requires_grad_(requires_grad)
    if leaf.grad is not gradient:
        leaf.grad = gradient
    if gradient is not None and content is not None:
        with torch.no_grad():
            gradient.copy_(content)


def _with_opened_regions(trace: Trace) -> Iterator[BoundSymbol]:
    """The ops of a trace in order, with the ops of its body in place of each checkpoint region that checks values."""
    for bound in trace.symbols:
        bodies = bodies_of(bound) if Tag.HIGHER_ORDER in bound.symbol.tags else []
        if any(True for body in bodies for _ in value_checks(body)):
            for body in bodies:
                yield from _with_opened_regions(body)
        else:
            yield bound


def _check_reversible(bound: BoundSymbol, inputs: Container[str], guess: BoundSymbol) -> None:
    """Raise DataDependentError for an op that `Rollback` cannot undo."""
    tags = bound.symbol.tags
    if tags & _RESTORED or bound.symbol in {CAPTURE, *RESTORED} or bound.symbol.target is set_switch:
        return
    if Tag.CHANGES_AUTOGRAD in tags:
        if not any(proxy.name in inputs for proxy in bound.inputs()):
            return
        reason = "changes a tensor of the caller"
    elif Tag.COLLECTIVE in tags:
        reason = "communicates"
    elif not bound.happens_once():
        return
    else:
        reason = "has an effect"
    raise _irreversible(bound, reason, guess)


def _has_outer_graph(value: Any) -> bool:
    """Whether backward through an input runs code outside of the program: a graph of the caller, or hooks."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        return False
    return not value.is_leaf or bool(backward_hooks_of(value) or accumulation_hooks_of(value))


def _irreversible(bound: BoundSymbol, reason: str, guess: BoundSymbol) -> DataDependentError:
    """The error for an op that cannot be undone, before the check ``guess``."""
    place = at(guess.location, " at ")
    return DataDependentError(
        f"{bound.symbol.name} {reason} before the value is known that the program reads{place}, and PyTorch runs its "
        "lines as they were recorded",
        location=bound.location,
        advice=("read the value before", "compile the two parts of the function by themselves"),
    )
