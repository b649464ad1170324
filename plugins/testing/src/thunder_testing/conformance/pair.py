"""Checks of a derivative that an executor gives: its two calls, made as compiled programs make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from thunder_core.executors import Claimed, DerivativePair
from thunder_core.executors.states import Stateful
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.passes.proxies import tensor_inputs_of
from thunder_core.pytorch_internals import FakeTensorMode
from thunder_testing.conformance.asking import ask, watched
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.differentiation import LAYOUTS, differentiates
from thunder_testing.conformance.failure import Breach, NotApplicable, check_applicable
from thunder_testing.conformance.pair_backward import PairBackward
from thunder_testing.conformance.pair_forward import PairForward, compare_with_fake
from thunder_testing.conformance.subject import Subject
from thunder_testing.conformance.tested import Tested
from thunder_testing.conformance.tolerance import same_bits


def check_pair(tested: Tested, subject: Subject, call: Call, others: Sequence[Call] = ()) -> None:
    """Forward and backward keep the contract of `DerivativePair`."""
    positions = tuple(call.differentiable())
    if not positions or not differentiates(call):
        raise NotApplicable("eager PyTorch has no gradients for this call")
    for asked in ask(tested.executor, subject, call.copy(positions)):
        if not isinstance(asked.answer, Claimed) or asked.answer.rewrite is not None:
            continue
        pair = watched("derivative", tested.executor.derivative, asked.line)
        if pair is not None:
            forward = PairForward(_with_own_state(pair, asked.line), asked)
            inputs = [asked.positions[proxy.name] for proxy in tensor_inputs_of(asked.line)]
            _check(tested, subject, call, forward, inputs)
            return
    raise NotApplicable("the executor has no derivative of its own for this call")


def _with_own_state(pair: DerivativePair, line: BoundSymbol) -> DerivativePair:
    """A pair that needs a state for each line, with one."""
    if not isinstance(pair.forward, Stateful):
        return pair
    function, state = pair.forward.function, pair.forward.make(line)

    def forward(*args: Any, **kwargs: Any) -> Any:
        return function(state, *args, **kwargs)

    return replace(pair, forward=forward)


def _check(tested: Tested, subject: Subject, call: Call, forward: PairForward, inputs: list[int]) -> None:
    arguments = call.copy().tensors()
    originals = [tensor.clone() for tensor in arguments]
    real = forward.run(arguments)
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(tensor) for tensor in arguments]
    with mode:
        fake = forward.run(fakes, fake=True)
    compare_with_fake(real, arguments, fake, fakes)
    possible = call.differentiable()
    alone = [tuple([index == one for index in inputs]) for one in possible]
    ways = [
        PairBackward(tested, subject, call, forward, inputs, wanted, layout)
        for wanted in dict.fromkeys([tuple([index in possible for index in inputs]), *alone])
        for layout in LAYOUTS
    ]
    check_applicable([partial(way.check, arguments, real, fake, mode) for way in ways])
    if not all(map(same_bits, arguments, originals)):
        raise Breach("arguments unchanged", "forward or backward of the pair writes to an argument")
