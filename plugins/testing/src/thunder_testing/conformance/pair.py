"""Checks of an executor's derivative pair, called as in compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from thunder_core.executors import Claimed, DerivativePair
from thunder_core.executors.states import Stateful
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import iterate_leaves, map_leaves, tensors_in
from thunder_core.pytorch_internals import FakeTensor, FakeTensorMode
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.differentiation import (
    LAYOUTS,
    cotangents_for,
    differentiates,
    eager_backward,
)
from thunder_testing.conformance.failure import Breach, NotApplicable, check_applicable
from thunder_testing.conformance.gradient import gradient_check
from thunder_testing.conformance.queries import Query, query, watched
from thunder_testing.conformance.results import compare_metadata, strides_that_matter
from thunder_testing.conformance.running import Run, quietly, run
from thunder_testing.conformance.subject import Subject
from thunder_testing.conformance.tested import Tested, raised
from thunder_testing.conformance.tolerance import same_bits
from thunder_testing.snapshot import storage_key


def check_pair(tested: Tested, subject: Subject, call: Call, others: Sequence[Call] = ()) -> None:
    """Check that forward and backward satisfy the contract of `DerivativePair`."""
    positions = tuple(call.differentiable())
    if not positions or not differentiates(call):
        raise NotApplicable("eager PyTorch has no gradients for this call")
    for one in query(tested.executor, subject, call.copy(positions)):
        if not isinstance(one.decision, Claimed) or one.decision.rewrite is not None:
            continue
        pair = watched("derivative", tested.executor.derivative, one.op)
        if pair is not None:
            forward = PairForward(_with_new_state(pair, one.op), one)
            inputs = [one.positions[proxy.name] for proxy in tensor_inputs_of(one.op)]
            _check(tested, subject, call, forward, inputs)
            return
    raise NotApplicable("the executor has no derivative of its own for this call")


def _with_new_state(pair: DerivativePair, op: BoundSymbol) -> DerivativePair:
    """The pair, with a new state if it needs one per operation."""
    if not isinstance(pair.forward, Stateful):
        return pair
    function, state = pair.forward.function, pair.forward.make(op)

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


@dataclass(frozen=True, slots=True)
class Pieces:
    """The results of forward.

    Attributes:
        outputs: the tensors among its outputs.
        residuals: as returned.
    """

    outputs: list[torch.Tensor]
    residuals: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class PairForward:
    """Calls of forward.

    Attributes:
        pair: forward and backward.
        query: the operation that they replace.
    """

    pair: DerivativePair
    query: Query

    def run(self, tensors: Sequence[torch.Tensor], *, fake: bool = False) -> Pieces:
        """Call forward, or its fake implementation if ``fake``, with ``tensors`` for those of the operation's call."""

        def value(leaf: Any) -> Any:
            return tensors[self.query.positions[leaf.name]] if isinstance(leaf, TensorProxy) else leaf

        function = (self.pair.fake or self.pair.forward) if fake else self.pair.forward
        name = ("fake" if self.pair.fake is not None else "forward on fake tensors") if fake else "forward"
        args, kwargs = map_leaves(value, self.query.op.args), map_leaves(value, self.query.op.kwargs)
        result = called(f"{name} of the pair", function, *args, **kwargs)
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], tuple)):
            raise Breach("derivative pair", f"{name} returns {_kind(result)}, not (outputs, tuple of residuals)")
        return Pieces(tensors_in(result[0]), result[1])


def called(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a function of the pair. Raises Breach if it raises."""
    __tracebackhide__ = True
    with quietly(), torch.no_grad():
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise raised(what, error) from error


def compare_with_fake(
    real: Pieces, arguments: Sequence[torch.Tensor], fake: Pieces, fakes: Sequence[torch.Tensor]
) -> None:
    """Raise `Breach` if the results of forward differ from those on fake tensors, for which programs are compiled."""
    of_real, of_fake = _leaves(real), _leaves(fake)
    if len(of_real) != len(of_fake) or len(real.outputs) != len(fake.outputs):
        raise Breach("fake", f"forward returns {len(of_real)} values, and {len(of_fake)} on fake tensors")
    names = [f"output {index}" for index in range(len(real.outputs))]
    names += [f"residual {index}" for index in range(len(of_real) - len(names))]
    for name, one, other in zip(names, of_real, of_fake, strict=True):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            _compare_tensors(name, one, other)
            shared = _owner(one, arguments)
            if shared is not None and shared != _owner(other, fakes):
                problem = f"{name} of forward shares memory with tensor {shared} among the arguments"
                raise Breach("memory sharing", f"{problem}; on fake tensors it does not")
        elif isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor) or _differ(one, other):
            raise Breach("fake", f"{name} of forward is {_kind(one)} {_short(one)}; on fake tensors {_short(other)}")


def _compare_tensors(name: str, real: torch.Tensor, fake: torch.Tensor) -> None:
    for rule in ("shape", "dtype", "device"):
        if getattr(real, rule) != getattr(fake, rule):
            one, other = getattr(real, rule), getattr(fake, rule)
            raise Breach("fake", f"{name} of forward has the {rule} {one}; on fake tensors {other}")
    if strides_that_matter(real) != strides_that_matter(fake):
        raise Breach("fake", f"{name} of forward has the strides {real.stride()}; on fake tensors {fake.stride()}")


def _leaves(pieces: Pieces) -> list[Any]:
    return [*pieces.outputs, *iterate_leaves(pieces.residuals)]


def _differ(real: Any, fake: Any) -> bool:
    return isinstance(real, int | float | str | None) and real != fake and real == real


def _owner(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> int | None:
    key = storage_key(tensor)
    return next((index for index, other in enumerate(others) if storage_key(other) == key), None)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"


def _short(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else f"{value!r:.80}"


@dataclass(frozen=True, eq=False)
class PairBackward:
    """One way to call backward.

    Attributes:
        tested, subject, call: the executor, the operation and its call.
        forward: the preceding call of forward.
        inputs: positions of the operation's tensors among those of the call.
        wanted: for each of these, whether its gradient is needed.
        layout: layout of the cotangents.
    """

    tested: Tested
    subject: Subject
    call: Call
    forward: PairForward
    inputs: Sequence[int]
    wanted: tuple[bool, ...]
    layout: str

    def check(self, arguments: Sequence[torch.Tensor], real: Pieces, fake: Pieces, mode: FakeTensorMode) -> None:
        """Raise `Breach` for gradients with wrong values, metadata or strides, or that differ between two calls.

        Raises NotApplicable if eager PyTorch has no gradients to compare with.
        """
        requiring = tuple(sorted({index for index, want in zip(self.inputs, self.wanted) if want}))
        expected = run(self.call.copy(requiring))
        results = expected.tensors()
        if len(results) != len(real.outputs) or not expected.differentiable():
            raise NotApplicable("eager PyTorch has no gradients for these tensors")
        given = cotangents_for(expected.differentiable(), self.layout)
        left = iter(given)
        cotangents = tuple([next(left) if tensor.requires_grad else None for tensor in results])
        try:
            gradients_ = self._call(real.residuals, cotangents)
            self._compare_metadata(gradients_, cotangents, arguments, fake, mode)
            again = self._call(real.residuals, cotangents)
            if not all(map(same_bits, tensors_in(gradients_), tensors_in(again))):
                raise Breach("determinism", "backward of the pair, called again, gives different bits")
            self._compare_values(gradients_, expected, given, requiring)
        except Breach as breach:
            breach.call, breach.cotangents = self.call.copy(requiring), cotangents
            raise

    def _call(self, residuals: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        given = tensors_in((residuals, cotangents))
        copies = [tensor.clone() for tensor in given]
        gradients_ = called("backward of the pair", self.forward.pair.backward, residuals, cotangents, self.wanted)
        if not isinstance(gradients_, tuple) or len(gradients_) != len(self.wanted):
            counted = f"{len(gradients_)} items" if isinstance(gradients_, tuple) else f"a {type(gradients_).__name__}"
            raise Breach("derivative pair", f"backward returns {counted}, not a tuple of {len(self.wanted)} gradients")
        for index, (gradient, want) in enumerate(zip(gradients_, self.wanted, strict=True)):
            if isinstance(gradient, torch.Tensor) != want:
                what = "no tensor for a gradient that is wanted" if want else "a gradient that is not wanted"
                raise Breach("derivative pair", f"backward returns {what}, at position {index}")
        if not any(isinstance(tensor, FakeTensor) for tensor in given) and not all(map(same_bits, given, copies)):
            raise Breach("arguments unchanged", "backward of the pair writes to a residual or to a cotangent")
        return gradients_

    def _compare_metadata(
        self,
        gradients_: Sequence[Any],
        cotangents: Sequence[Any],
        arguments: Sequence[torch.Tensor],
        fake: Pieces,
        mode: FakeTensorMode,
    ) -> None:
        promised = self.forward.pair.fake is not None
        if promised:
            expected: Sequence[Any] = [torch.empty_like(arguments[index], device="meta") for index in self.inputs]
        else:
            with mode:
                fakes = [None if item is None else mode.from_tensor(item) for item in cotangents]
                expected = self._call(fake.residuals, tuple(fakes))
        for index, (gradient, other) in enumerate(zip(gradients_, expected, strict=True)):
            if gradient is None:
                continue
            name = f"gradient {index} of the pair"
            compare_metadata(name, gradient, arguments[self.inputs[index]], strides=False)
            if strides_that_matter(gradient) != strides_that_matter(other):
                source = "torch.empty_like of the argument" if promised else "what it returns on fake tensors"
                raise Breach(
                    "gradient strides",
                    f"{name} has the strides {gradient.stride()} from a cotangent that is {self.layout}; {source} has "
                    f"{other.stride()}, and programs are compiled for these",
                )

    def _compare_values(
        self, gradients_: Sequence[Any], expected: Run, cotangents: Sequence[torch.Tensor], requiring: Sequence[int]
    ) -> None:
        sums: dict[int, torch.Tensor] = {}  # one tensor may be several arguments
        for index, gradient in zip(self.inputs, gradients_, strict=True):
            if gradient is not None:
                sums[index] = sums[index] + gradient if index in sums else gradient
        call = self.call.copy(tuple(requiring))
        check_values = gradient_check(self.tested, self.subject, (self.forward.query,), call, cotangents, self.layout)
        gradients = eager_backward(expected, cotangents)
        for position, (index, other) in enumerate(zip(requiring, gradients, strict=True)):
            zero = torch.zeros_like(call.tensors()[index]) if other is None else other
            check_values(f"the pair's gradient of tensor {index} among the arguments", position, sums[index], zero)
