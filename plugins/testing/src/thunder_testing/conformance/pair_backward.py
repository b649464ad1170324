"""The backward of a derivative pair: its gradients, from cotangents of any layout, of some or all of the arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder_core.pytorch_internals import FakeTensor, FakeTensorMode
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.differentiation import backward, cancelling, cotangents_for, eager_backward
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.conformance.pair_forward import PairForward, Pieces, called, tensors_in
from thunder_testing.conformance.results import compare_metadata, strides_that_matter
from thunder_testing.conformance.running import Run, run
from thunder_testing.conformance.subject import Subject
from thunder_testing.conformance.tested import Tested
from thunder_testing.conformance.tolerance import same_bits


@dataclass(frozen=True, eq=False)
class PairBackward:
    """One way to call backward.

    Attributes:
        tested, subject, call: what is tested.
        forward: what was called before.
        inputs: positions of the line's tensors among those of the call.
        wanted: for each of these, whether its gradient is.
        layout: of the cotangents.
    """

    tested: Tested
    subject: Subject
    call: Call
    forward: PairForward
    inputs: Sequence[int]
    wanted: tuple[bool, ...]
    layout: str

    def check(self, arguments: Sequence[torch.Tensor], real: Pieces, fake: Pieces, mode: FakeTensorMode) -> None:
        """Raise `Breach` for gradients with wrong values, metadata or strides, or that are not the same twice.

        Raises NotApplicable where eager PyTorch has no gradients to compare with.
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
            found = self._call(real.residuals, cotangents)
            self._compare_metadata(found, cotangents, arguments, fake, mode)
            again = self._call(real.residuals, cotangents)
            if not all(map(same_bits, tensors_in(found), tensors_in(again))):
                raise Breach("determinism", "backward of the pair, called again, gives different bits")
            self._compare_values(found, expected, given, requiring)
        except Breach as breach:
            breach.call, breach.cotangents = self.call.copy(requiring), cotangents
            raise

    def _call(self, residuals: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        given = tensors_in((residuals, cotangents))
        kept = [tensor.clone() for tensor in given]
        found = called("backward of the pair", self.forward.pair.backward, residuals, cotangents, self.wanted)
        if not isinstance(found, tuple) or len(found) != len(self.wanted):
            counted = f"{len(found)} items" if isinstance(found, tuple) else f"a {type(found).__name__}"
            raise Breach("derivative pair", f"backward returns {counted}, not a tuple of {len(self.wanted)} gradients")
        for index, (gradient, want) in enumerate(zip(found, self.wanted, strict=True)):
            if isinstance(gradient, torch.Tensor) != want:
                what = "no tensor for a gradient that is wanted" if want else "a gradient that is not wanted"
                raise Breach("derivative pair", f"backward returns {what}, at position {index}")
        if not any(isinstance(tensor, FakeTensor) for tensor in given) and not all(map(same_bits, given, kept)):
            raise Breach("arguments unchanged", "backward of the pair writes to a residual or to a cotangent")
        return found

    def _compare_metadata(
        self,
        found: Sequence[Any],
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
        for index, (gradient, other) in enumerate(zip(found, expected, strict=True)):
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
        self, found: Sequence[Any], expected: Run, cotangents: Sequence[torch.Tensor], requiring: Sequence[int]
    ) -> None:
        sums: dict[int, torch.Tensor] = {}  # one tensor may be several arguments
        for index, gradient in zip(self.inputs, found, strict=True):
            if gradient is not None:
                sums[index] = sums[index] + gradient if index in sums else gradient
        call = self.call.copy(tuple(requiring))

        def double(wide: Call) -> Sequence[Any]:
            made = run(wide)
            return backward(made, [item.to(out.dtype) for item, out in zip(cotangents, made.differentiable())])

        check_values = self.tested.value_check(
            self.subject, (self.forward.asked,), call, double, scale=cancelling(cotangents, self.layout)
        )
        gradients = eager_backward(expected, cotangents)
        for position, (index, other) in enumerate(zip(requiring, gradients, strict=True)):
            zero = torch.zeros_like(call.tensors()[index]) if other is None else other
            check_values(f"the pair's gradient of tensor {index} among the arguments", position, sums[index], zero)
