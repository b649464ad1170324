"""A program as forward and backward: what `thunder_core.runtime.bridge` joins to PyTorch's autograd.

Their gradients, as hooks and ``retain_grad`` of the caller see them, lack what they have in eager by way of the others.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.autodiff.zero_cotangents import ZeroCotangents
from thunder_core.errors import SizeVariesError, UnsupportedError
from thunder_core.ir.program import compile_sizes, compile_trace
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.result_checks import ResultChecks
from thunder_core.ir.trace import Trace
from thunder_core.pytorch_internals import DisableTorchFunctionSubclass, backward_hooks_of
from thunder_core.runtime.late_programs import LatePrograms
from thunder_core.runtime.second_derivatives import SecondDerivatives

Dependents = dict[int, tuple[int, ...]]
"""For positions of outputs those of the others that are computed from them, where there are such."""


def dependents(trace: Trace) -> Dependents:
    """The outputs of a functional trace that others get gradients through."""
    outputs = [proxy.name if isinstance(proxy, TensorProxy) and proxy.requires_grad else None for proxy in trace.output]
    places: dict[str, int] = {}  # a set of outputs as the bits of a number: those that a value is computed from
    for place, name in enumerate(outputs):
        if name is not None:
            places[name] = places.get(name, 0) | 1 << place
    if len(places) < 2:
        return {}
    sources: dict[str, int] = {}
    for line in trace.symbols:
        read = 0
        for proxy in line.inputs():
            read |= sources.get(proxy.name, 0) | places.get(proxy.name, 0)
        if read:
            made = [proxy for proxy in line.outputs() if isinstance(proxy, TensorProxy) and proxy.requires_grad]
            sources.update((proxy.name, read) for proxy in made)
    found: dict[int, list[int]] = {}
    for later, name in enumerate(outputs):
        for earlier in _bits(sources.get(name, 0) if name is not None else 0):
            found.setdefault(earlier, []).append(later)
    return {earlier: tuple(others) for earlier, others in found.items()}


def watch(outputs: Sequence[Any], related: Dependents) -> dict[int, weakref.ref[torch.Tensor]]:
    """The outputs that `check_unobserved` looks at."""
    return {place: weakref.ref(outputs[place]) for place in related}


def check_unobserved(
    node: Any,
    watched: Mapping[int, weakref.ref[torch.Tensor]],
    related: Dependents,
    cotangents: Sequence[torch.Tensor | None],
) -> None:
    """Refuse a backward in which the caller sees a gradient of an output that lacks a part.

    Args:
        node: of the program in the autograd graph.

    Raises:
        UnsupportedError: an output has a hook or retains its gradient, and there is a cotangent for another one that
            was computed from it.
    """
    for place, reference in watched.items():
        output = reference()
        if output is None or output.grad_fn is not node or not (backward_hooks_of(output) or output.retains_grad):
            continue
        missing = next((other for other in related[place] if cotangents[other] is not None), None)
        if missing is not None:
            raise UnsupportedError(
                f"an output of shape {tuple(output.shape)} of the compiled program has a hook or retains its gradient, "
                "which would lack what comes by way of another output that is computed from it",
                advice=("call register_hook or retain_grad inside of the compiled function",),
            )


def _bits(number: int) -> list[int]:
    return [place for place in range(number.bit_length()) if number >> place & 1]


@dataclass(frozen=True, slots=True)
class Backward:
    """One backward program.

    Attributes:
        function: takes a list of saved values and cotangents, which it empties, and returns gradients.
        used: positions of the saved values that it takes.
        consumed: names of the values that it computes from cotangents and saved values: in eager, of the nodes of the
            graph whose saved tensors are freed.
    """

    function: Callable[[list[Any]], Sequence[Any]]
    used: tuple[int, ...]
    consumed: frozenset[str]


@dataclass(eq=False)
class DifferentiatedProgram:
    """A program as forward and backward. It is called through `bridge.join`.

    Attributes:
        joint, partitioned: what it was made from.
        forward_trace: as executed.
        backward_trace: as executed when all outputs have cotangents and all gradients are wanted.
        original: the program before differentiation, for second derivatives.
        late: makes the programs that are first needed after the compilation.
        plain: inputs are of classes with a ``__torch_function__``, which must not act again in backward.
        checks: what it costs to check, in first runs, what executors return.

        sizes: names of the symbols for sizes that vary between calls: the last inputs.
        defined: names of the symbols that lines of forward define, each with its place among the outputs.
        symbols: both, which backward takes behind its other inputs.
        forward: from the inputs to outputs and saved values.
        outputs: number of outputs.
        tensors: positions of the tensors among the saved values.
        saved_strides, cotangent_strides: of those tensors and of cotangents, by the sizes of a call.
        saved_inputs: positions of the program's inputs among the saved values.
        all_tensors: whether all saved values are tensors.
        gradient_of: for each input the position of its gradient, -1 if it has none.
        edges: likewise, among the tensors of the inputs: the others are unknown to autograd.
        related: outputs that others are computed from.
        again: computes gradients that can be differentiated themselves.
    """

    joint: Joint
    partitioned: Partitioned
    forward_trace: Trace
    backward_trace: Trace
    original: Trace
    late: LatePrograms
    plain: bool = False
    checks: ResultChecks = field(default_factory=ResultChecks)
    _variants: dict[Any, Backward] = field(default_factory=dict)
    _constant: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.sizes = () if self.late.sizes is None else tuple(self.late.sizes.hints)
        names = () if self.late.sizes is None else tuple(self.late.sizes.defined)
        outputs = {proxy.name: place for place, proxy in enumerate(self.joint.outputs)}
        self.defined = {name: outputs[name] for name in names}
        self.symbols = (*self.sizes, *self.defined)
        saved, primals = self.partitioned.saved, self.joint.primals
        places = {proxy.name: place for place, proxy in enumerate(primals)}
        tensors = [place for place, proxy in enumerate(primals) if isinstance(proxy, TensorProxy)]
        self.forward: Callable[..., tuple[Any, ...]] = compile_trace(
            self.forward_trace, costs=self.checks, sizes=self.sizes
        )
        self.outputs = self.partitioned.outputs
        self.tensors = [index for index, proxy in enumerate(saved) if isinstance(proxy, TensorProxy)]
        strides = tuple([proxy.stride for proxy in saved if isinstance(proxy, TensorProxy)])
        self.saved_strides = compile_sizes(strides, self.symbols)
        self.saved_inputs = {index for index, proxy in enumerate(saved) if proxy.name in places}
        self.all_tensors = len(self.tensors) == len(saved)
        sources = [places[proxy.name] for proxy in self.joint.differentiable]
        found = {place: index for index, place in enumerate(sources)}
        self.gradient_of = [found.get(place, -1) for place in range(len(primals))] + [-1] * len(self.sizes)
        self.cotangent_strides = compile_sizes(tuple([proxy.stride for proxy in self.joint.cotangents]), self.symbols)
        self.edges = [tensors.index(place) for place in sources]
        self.related = dependents(self.original) if len(self.original.output) == self.outputs else {}
        self.again = SecondDerivatives(self.original, self.joint, saved, self.late)

    def backward(self, present: tuple[bool, ...], wanted: tuple[bool, ...], sizes: tuple[int, ...] = ()) -> Backward:
        """The backward program for these cotangents and gradients; made when it is first asked for.

        Args:
            sizes: of the call.
        """
        variant = (present, wanted)
        known = self._variants.get(variant) or self._variants.get((*variant, sizes))
        if known is None:
            with self._lock:
                known = self._variants.get(variant) or self._variants.get((*variant, sizes))
                if known is None:
                    known, constant = self._compile(present, wanted, sizes)
                    self._variants[(*variant, sizes) if constant else variant] = known
        return known

    def _compile(
        self, present: tuple[bool, ...], wanted: tuple[bool, ...], sizes: tuple[int, ...]
    ) -> tuple[Backward, bool]:
        """The program, and whether it is for these sizes alone."""
        saved = self.partitioned.saved
        if all(present) and all(wanted):
            consumed = self._consumed(self.partitioned.backward)
            function = compile_trace(self.backward_trace, boxed=True, costs=self.checks, sizes=self.symbols)
            return Backward(self._plainly(function), tuple(range(len(saved))), consumed), False
        cotangents = self.joint.cotangents
        absent = frozenset(proxy.name for proxy, given in zip(cotangents, present, strict=True) if not given)
        unwanted = frozenset(index for index, asked in enumerate(wanted) if not asked)
        every = frozenset(proxy.name for proxy in cotangents)
        functional, executable, constant = self._late(ZeroCotangents(every, absent, unwanted), sizes)
        read = {proxy.name for proxy in executable.inputs}
        used = tuple([index for index, proxy in enumerate(saved) if proxy.name in read])
        function = compile_trace(executable, boxed=True, costs=self.checks, sizes=self.symbols)
        return Backward(self._plainly(function), used, self._consumed(functional)), constant

    def _late(self, specialise: ZeroCotangents, sizes: tuple[int, ...]) -> tuple[Trace, Trace, bool]:
        """A backward as specialised and as executed, and whether it is for these sizes alone.

        The prologue was made before: where the passes need another fact about sizes, it cannot check that any more.
        """
        backward = self.partitioned.backward
        if self.symbols and not self._constant:
            assert self.late.sizes is not None
            known = self.late.sizes.fact_count
            try:
                made = self.late.backward(backward, specialise)
                if self.late.sizes.fact_count == known:
                    return *made, False
            except SizeVariesError:
                pass
            self._constant = True  # what it computes with sizes may rest on such a fact from now on
        if self.symbols:
            backward = backward.with_constant_sizes(dict(zip(self.symbols, sizes, strict=True)))
        return *self.late.backward(backward, specialise), bool(self.symbols)

    def _plainly(self, function: Callable[[list[Any]], Sequence[Any]]) -> Callable[[list[Any]], Sequence[Any]]:
        if not self.plain:
            return function

        def run(values: list[Any]) -> Sequence[Any]:
            with DisableTorchFunctionSubclass():
                return function(values)

        return run

    def _consumed(self, trace: Trace) -> frozenset[str]:
        dependent = {proxy.name for proxy in self.joint.cotangents}
        consumed = set()
        for bound in trace.symbols:
            inputs = {proxy.name for proxy in bound.inputs()}
            if inputs & dependent:
                made = [proxy.name for proxy in bound.outputs()]
                dependent.update(made)
                if not inputs <= dependent:
                    consumed.update(made)
        return frozenset(consumed)
