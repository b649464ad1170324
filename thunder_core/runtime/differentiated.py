"""Differentiated programs: a forward, and backwards for the combinations of cotangents and gradients that calls need.

`thunder_core.runtime.bridge` joins them to PyTorch's autograd.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.autodiff.zero_cotangents import ZeroCotangents
from thunder_core.errors import SizeVariesError
from thunder_core.forking import renew_in_child
from thunder_core.ir.program import compile_sizes, compile_trace
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.result_checks import ResultChecks
from thunder_core.ir.trace import Trace
from thunder_core.pytorch_internals import DisableTorchFunctionSubclass
from thunder_core.runtime.bridge import Backward
from thunder_core.runtime.observed_outputs import dependents
from thunder_core.runtime.own_state import kernel_settings
from thunder_core.runtime.pipeline import LatePrograms
from thunder_core.runtime.second_derivatives import SecondDerivatives


@dataclass(eq=False)
class DifferentiatedProgram:
    """A program as forward and backward. It is called through `bridge.join`.

    Attributes:
        joint, partitioned: the results of differentiation and partition.
        forward_trace: the executable forward.
        backward_trace: the executable backward for all cotangents and all gradients.
        original: the program before differentiation, for second derivatives.
        late: compiles programs that are first needed after the compilation.
        plain: whether to disable ``__torch_function__`` of the classes of inputs: its calls have been recorded.
        checks: the cost so far of comparing results of executors with the trace in first runs.

        default_dtype: the default dtype under which the program was compiled.
        sizes: names of the size symbols that are the last inputs.
        defined: names of the symbols that ops of forward define, with their positions among the outputs.
        symbols: all of these symbols, which are the last inputs of backward.
        forward: the function from the inputs to outputs and saved values.
        outputs: the number of outputs.
        tensors: positions of the tensors among the saved values.
        saved_strides, cotangent_strides: functions from ``symbols`` to the strides of these tensors, of cotangents.
        saved_inputs: positions of the program's inputs among the saved values.
        all_tensors: whether all saved values are tensors.
        gradient_of: for each input the position of its gradient, -1 if it has none.
        edges: for each gradient the position of its input among the inputs that are tensors, as autograd counts them.
        related: the dependents of the outputs.
        second_derivatives: computes gradients with a graph.
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
        renew_in_child(self, "_lock")
        self.default_dtype = torch.get_default_dtype()
        self._settings = kernel_settings()
        self.sizes = () if self.late.sizes is None else tuple(self.late.sizes.hints)
        names = () if self.late.sizes is None else tuple(self.late.sizes.defined)
        outputs = {proxy.name: position for position, proxy in enumerate(self.joint.outputs)}
        self.defined = {name: outputs[name] for name in names}
        self.symbols = (*self.sizes, *self.defined)
        saved, primals = self.partitioned.saved, self.joint.primals
        primal_positions = {proxy.name: position for position, proxy in enumerate(primals)}
        tensors = [position for position, proxy in enumerate(primals) if isinstance(proxy, TensorProxy)]
        self.forward: Callable[..., tuple[Any, ...]] = compile_trace(
            self.forward_trace, costs=self.checks, sizes=self.sizes
        )
        self.outputs = self.partitioned.outputs
        self.tensors = [index for index, proxy in enumerate(saved) if isinstance(proxy, TensorProxy)]
        strides = tuple([proxy.stride for proxy in saved if isinstance(proxy, TensorProxy)])
        self.saved_strides = compile_sizes(strides, self.symbols)
        self.saved_inputs = {index for index, proxy in enumerate(saved) if proxy.name in primal_positions}
        self.all_tensors = len(self.tensors) == len(saved)
        sources = [primal_positions[proxy.name] for proxy in self.joint.differentiable]
        gradients = {position: index for index, position in enumerate(sources)}
        self.gradient_of = [gradients.get(position, -1) for position in range(len(primals))] + [-1] * len(self.sizes)
        self.cotangent_strides = compile_sizes(tuple([proxy.stride for proxy in self.joint.cotangents]), self.symbols)
        self.edges = [tensors.index(position) for position in sources]
        self.related = dependents(self.original) if len(self.original.output) == self.outputs else {}
        self.second_derivatives = SecondDerivatives(self.original, self.joint, saved, self.late)

    def backward(self, present: tuple[bool, ...], wanted: tuple[bool, ...], sizes: tuple[int, ...] = ()) -> Backward:
        """The backward program for these cotangents and gradients, and PyTorch's settings; compiled on first use.

        Args:
            present: for each cotangent in `Joint.cotangent_of`, whether the call has it.
            wanted: for each gradient, whether it is needed.
            sizes: the values of `symbols` in the call.
        """
        settings = kernel_settings()
        variant: tuple[Any, ...] = (present, wanted) if settings == self._settings else (present, wanted, settings)
        known = self._variants.get(variant) or self._variants.get((*variant, sizes))
        if known is None:
            with self._lock:
                known = self._variants.get(variant) or self._variants.get((*variant, sizes))
                if known is None:
                    known, constant = self._compile(present, wanted, sizes)
                    self._variants[(*variant, sizes) if constant else variant] = known
        return known

    def variants(self) -> dict[tuple[tuple[bool, ...], tuple[bool, ...]], Backward]:
        """The backward programs that exist for all sizes and the present settings, by cotangents and gradients."""
        settings = kernel_settings()
        length, rest = (2, ()) if settings == self._settings else (3, (settings,))
        return {key[:2]: one for key, one in self._variants.items() if len(key) == length and key[2:] == rest}

    def _compile(
        self, present: tuple[bool, ...], wanted: tuple[bool, ...], sizes: tuple[int, ...]
    ) -> tuple[Backward, bool]:
        """The program, and whether it is valid for these sizes only."""
        saved = self.partitioned.saved
        if all(present) and all(wanted) and kernel_settings() == self._settings:
            consumed = self._consumed(self.partitioned.backward)
            function = compile_trace(self.backward_trace, boxed=True, costs=self.checks, sizes=self.symbols)
            used = tuple(range(len(saved)))
            return Backward(self._without_torch_function(function), used, consumed, self.backward_trace), False
        cotangents = self.joint.cotangents
        absent = frozenset(proxy.name for proxy, has_value in zip(cotangents, present, strict=True) if not has_value)
        unwanted = frozenset(index for index, needed in enumerate(wanted) if not needed)
        every = frozenset(proxy.name for proxy in cotangents)
        functional, executable, constant = self._late(ZeroCotangents(every, absent, unwanted), sizes)
        read = {proxy.name for proxy in executable.inputs}
        used = tuple([index for index, proxy in enumerate(saved) if proxy.name in read])
        function = compile_trace(executable, boxed=True, costs=self.checks, sizes=self.symbols)
        consumed = self._consumed(functional)
        return Backward(self._without_torch_function(function), used, consumed, executable), constant

    def _late(self, specialization: ZeroCotangents, sizes: tuple[int, ...]) -> tuple[Trace, Trace, bool]:
        """The functional and the executable backward, and whether they are valid for these sizes only.

        They are if the passes need another fact about sizes: the prologue exists already, and does not check it.
        """
        backward = self.partitioned.backward
        if self.symbols and not self._constant:
            assert self.late.sizes is not None
            known = self.late.sizes.fact_count
            try:
                traces = self.late.backward(backward, specialization)
                if self.late.sizes.fact_count == known:
                    return *traces, False
            except SizeVariesError:
                pass  # compiled with constants below
            self._constant = True  # later results may depend on the new fact
        if self.symbols:
            backward = backward.with_constant_sizes(dict(zip(self.symbols, sizes, strict=True)))
        return *self.late.backward(backward, specialization), bool(self.symbols)

    def _without_torch_function(
        self, function: Callable[[list[Any]], Sequence[Any]]
    ) -> Callable[[list[Any]], Sequence[Any]]:
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
                results = [proxy.name for proxy in bound.outputs()]
                dependent.update(results)
                if not inputs <= dependent:
                    consumed.update(results)
        return frozenset(consumed)
