"""The ops that a transform added or changed: PyTorch must accept them, and their effects are computed anew."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any, Final

import torch

from thunder_core.errors import ThunderError
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.context import Context, modes_for_fakes
from thunder_core.ir.effects import Effects, joined
from thunder_core.ir.geometry import StoragePosition
from thunder_core.ir.proxy import PROXY_TYPES, TensorProxy
from thunder_core.ir.result_checks import differences
from thunder_core.ir.size import on_fakes
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace, bodies_of
from thunder_core.ir.tree import map_leaves
from thunder_core.ir.verifier import malformed, verify
from thunder_core.pytorch_internals import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from thunder_core.symbols.registry import registry
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_sharing_fakes
from thunder_core.tracing.outcome import Outcome, Slot, infer

_NEED_VALUES: Final = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
"""Raised by calls that work, but whose results fake tensors do not determine."""
_NOT_ON_FAKES: Final = frozenset(
    {
        Tag.AS_RECORDED, Tag.ASSERTION, Tag.AUTOGRAD, Tag.GUESS, Tag.HIGHER_ORDER, Tag.HOOK, Tag.LOCAL,
        Tag.READS_AUTOGRAD, Tag.REPORT, Tag.RUNS_AUTOGRAD, Tag.UNGUARDED,
    }
)  # fmt: skip
"""Such an op needs autograd, or does something for the user, which must not happen during compilation."""


class _Refused(Exception):
    """Raised if an op is malformed; `checked_ops` adds the position."""


def checked_ops(before: Trace, after: Trace, maker: str) -> Trace:
    """``after``, which a transform computed from ``before``, with the effects of the ops that it added or changed.

    The called function must accept their arguments. Calls of PyTorch are run on fake tensors: their results must have
    the metadata in the trace, and their effects replace those that the op has from the op that it replaces. Effects
    that the transform declared itself are kept, in addition to those of the call. A result that shares storage with an
    argument gets its storage, as do the later values that share the result's.

    Args:
        maker: the transform, for messages.

    Returns:
        The trace; ``after`` itself if no op is new.

    Raises:
        VerificationError: the trace or one of these ops is malformed. The message shows it with the ops around it.
    """
    known = set(map(id, before.symbols))
    if all(id(op) in known for op in after.symbols):
        verify(after, maker)
        return after
    # what they write is computed below: names may be those of values that the transform replaced
    unwritten = [op if id(op) in known else _without_writes(op) for op in after.symbols]
    verify(replace(after, symbols=tuple(unwritten)), maker)
    checker = _Checker(before, after.context, maker)
    ops = []
    for index, op in enumerate(after.symbols):
        changed = id(op) not in known
        if checker.positions:
            op = op.map_leaves(checker.moved)
        try:
            ops.append(checker.checked(op) if changed else op)
        except _Refused as error:
            raise malformed(after, maker, index, str(error)) from error.__cause__
    result = replace(after, symbols=tuple(ops), output=map_leaves(checker.moved, after.output))
    verify(result, maker)
    return result


def _without_writes(op: BoundSymbol) -> BoundSymbol:
    writes = isinstance(op, BoundSymbol) and bool(op.effects.mutates)
    return replace(op, effects=op.effects.without_writes()) if writes else op


class _Checker:
    def __init__(self, before: Trace, ambient: Context, maker: str) -> None:
        self.before = before
        self.ambient = ambient
        self.maker = maker
        self.mode = ObservingFakeMode()
        self.positions: dict[int, StoragePosition] = {}

    def checked(self, op: BoundSymbol) -> BoundSymbol:
        """The op with its effects and the storages of its results. Raises _Refused if it is malformed."""
        replaced = next(
            (found for proxy in op.outputs() if (found := self.before.producer(proxy.name)) is not None), None
        )
        if replaced is not None and Tag.HIGHER_ORDER in op.symbol.tags and op.symbol is replaced.symbol:
            return self.with_checked_bodies(op, replaced)
        outcome = None
        if self.runs_on_fakes(op):
            outcome = self.outcome(op)
        else:
            _check_signature(op)
        if outcome is not None:
            self.share(op, outcome)
        effects = op.effects
        if replaced is not None and _call_of(op) == _call_of(replaced):  # of other values
            names = {old.name: new.name for old, new in zip(replaced.inputs(), op.inputs(), strict=True)}
            effects = replace(effects, mutates=tuple([names.get(name, name) for name in effects.mutates]))
        elif outcome is not None:
            effects = outcome.effects(op.symbol, tensor_inputs_of(op))
            if replaced is None or op.effects != replaced.effects:
                effects = _added(op.effects, effects)
        return replace(op, output=map_leaves(self.moved, op.output), effects=effects)

    def with_checked_bodies(self, op: BoundSymbol, replaced: BoundSymbol) -> BoundSymbol:
        """The op with its traces checked, too: it draws random numbers if one of them does."""
        pairs = zip(bodies_of(replaced), bodies_of(op), strict=True)
        bodies = {id(new): new if new is old else checked_ops(old, new, self.maker) for old, new in pairs}
        op = op.map_arguments(lambda leaf: bodies[id(leaf)] if isinstance(leaf, Trace) else leaf)
        random = op.effects.random and any(one.effects.random for body in bodies.values() for one in body.symbols)
        return replace(op, effects=replace(op.effects, random=random))

    def runs_on_fakes(self, op: BoundSymbol) -> bool:
        """Whether the op is a call of PyTorch, or of a function that the registry resolved, on tensors alone."""
        symbol = op.symbol
        if symbol.executor is not None or not symbol.tags.isdisjoint(_NOT_ON_FAKES):
            return False
        if Tag.OPAQUE not in symbol.tags and registry.row_of(symbol) is None:
            return False
        return all(isinstance(proxy, TensorProxy) for proxy in op.inputs())

    def outcome(self, op: BoundSymbol) -> Outcome | None:
        """The outcome of the call on fake tensors; None if they do not determine it."""
        proxies = tensor_inputs_of(op)
        fakes = make_sharing_fakes(self.mode, {proxy.name: proxy for proxy in proxies}.values())

        def fake(leaf: Any) -> Any:
            return fakes[leaf.name] if isinstance(leaf, TensorProxy) else on_fakes(leaf)

        args, kwargs = map_leaves(fake, op.args), map_leaves(fake, op.kwargs)
        try:
            with (
                torch.random.fork_rng(devices=[]),
                self.mode,
                modes_for_fakes(op.context or self.ambient, grad=False),
                self.mode.observing() as observed,
            ):
                tensors = [fakes[proxy.name] for proxy in proxies]
                outcome, results = infer(op.symbol.target, args, kwargs, tensors, observed)
        except _NEED_VALUES:
            return None
        except ThunderError:
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise _Refused(f"{op.symbol.name} does not accept these arguments: {problem}") from error
        value = map_leaves(lambda leaf: results[leaf.index] if type(leaf) is Slot else leaf, outcome.structure)
        for proxy, problem in differences(op.output, value):
            named = "" if proxy is None else f" for {proxy.name}"
            raise _Refused(f"{op.symbol.name} returns {problem}{named}; the later ops expect what the trace has")
        return outcome

    def share(self, op: BoundSymbol, outcome: Outcome) -> None:
        """Note the results that are in the storage of an argument, but not in the trace.

        Raises:
            _Refused: a result is in a storage of its own, but in the trace in that of an argument.
        """
        arguments, expected = tensor_inputs_of(op), tensor_outputs_of(op)
        if len(expected) != len(outcome.results):  # some have no name in the trace
            return
        for proxy, result in zip(expected, outcome.results, strict=True):
            shared = next((one for one in arguments if one.storage == proxy.storage), None)
            if result.shares >= 0 and shared is None:
                place = replace(proxy, storage=arguments[result.shares].storage, offset=result.offset)
                self.positions.setdefault(proxy.storage, StoragePosition.between(proxy, place))
            elif result.shares < 0 and result.shares_result < 0 and shared is not None:
                words = f"returns a new tensor, but in the trace {proxy.name} shares storage with {shared.name}"
                raise _Refused(f"{op.symbol.name} {words}")

    def moved(self, leaf: Any) -> Any:
        """A tensor in the storage that it is in at run time; other leaves unchanged."""
        known = isinstance(leaf, TensorProxy) and leaf.storage in self.positions
        return self.positions[leaf.storage].moved(leaf) if known else leaf


def _check_signature(op: BoundSymbol) -> None:
    """Raise _Refused if the signature of the op's function does not admit its arguments."""
    try:
        signature = inspect.signature(op.symbol.target)
    except ValueError:  # of a builtin without one
        return
    except TypeError as error:
        raise _Refused(f"{op.symbol.name} has the target {op.symbol.target!r}, which is not a function") from error
    try:
        signature.bind(*op.args, **op.kwargs)
    except TypeError as error:
        raise _Refused(f"{op.symbol.name}{signature} does not accept these arguments: {error}") from error


def _call_of(op: BoundSymbol) -> Any:
    """The call without the names of values: equal for calls of the same function with the same constants."""
    arguments = map_leaves(_without_name, (op.args, op.kwargs))
    return op.symbol, arguments, replace(op.effects, mutates=())


def _without_name(leaf: Any) -> Any:
    return type(leaf) if isinstance(leaf, PROXY_TYPES) else (type(leaf), leaf)


def _added(declared: Effects, found: Effects) -> Effects:
    """Both effects."""
    return joined((declared, found), tuple(dict.fromkeys((*declared.mutates, *found.mutates))))
