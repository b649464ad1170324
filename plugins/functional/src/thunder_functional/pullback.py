"""Gradients of a part of the program that is being recorded, as ops of that program.

The part is recorded as a separate trace and differentiated; then the ops of the joint trace are recorded into the
program as ordinary calls. So another transformation, or the user's backward, can differentiate the gradients again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.pytorch_internals import DisableTorchFunction, disable_current_modes
from thunder_core.tracing.fake_tensors import make_alias
from thunder_core.tracing.frames import user_location
from thunder_frontend.record.open_trace import Region
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.traced_tensor import Variable, variable_of
from thunder_functional.function_joint import FunctionJoint, function_trace, registers_inside
from thunder_functional.joint_recorder import JointRecorder


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The program around a function that is differentiated.

    Attributes:
        recorder: the recorder of the program.
        operands: the program's tensors, by their names in the function's trace.
        location: the location of the user's call.
    """

    recorder: Recorder
    operands: Mapping[str, torch.Tensor]
    location: SourceLocation | None

    def objects(self, trace: Trace) -> dict[str, Any]:
        """The program's object for each input of the function's trace.

        Raises:
            UnsupportedError: the function uses a number whose value is only available at run time.
        """
        inputs = self.recorder.inputs
        known = inputs.objects_of_ops()
        for item in inputs:
            known[item.proxy.name] = item.value
            if isinstance(item.value, torch.Tensor):
                known[self.recorder.tensors.proxy_of(item.value).name] = item.value
        for tensor in self.recorder.tensors.alive():
            known.setdefault(self.recorder.tensors.proxy_of(tensor).name, tensor)
        known.update(self.operands)
        return {proxy.name: known[proxy.name] if proxy.name in known else self._absent(proxy) for proxy in trace.inputs}

    def names(self, function: FunctionJoint, defined: set[str]) -> dict[str, str]:
        """Names for the results of the ops: ``defined`` ones are unchanged, gradients are named after their values."""
        renamed: dict[str, str] = {}
        outer = {name: self.recorder.tensors.proxy_of(operand).name for name, operand in self.operands.items()}
        for op in function.joint.trace.symbols:
            for proxy in op.outputs():
                stem, separator, rest = proxy.name.partition("_cotangent")
                if proxy.name in defined:
                    renamed[proxy.name] = proxy.name
                elif separator or "_" in stem:
                    renamed[proxy.name] = self.recorder.trace.names.for_input(outer.get(stem, stem) + separator + rest)
        return renamed

    def _absent(self, proxy: Proxy) -> torch.Tensor:
        """The tensor for a value whose object the program has deleted since it was recorded."""
        if not isinstance(proxy, TensorProxy):
            raise UnsupportedError(
                f"a function that uses {proxy.name}, which is known when the program runs, cannot be differentiated by "
                "a functional transformation",
                location=self.location,
                advice=("compute with tensors instead of Python numbers",),
            )
        return self.recorder.tensors.traced(Variable(proxy, location=self.location))


def sum_of_cotangents(recording: JointRecorder, proxy: TensorProxy, given: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum of the gradients of one value, dense and with the value's dtype, as formulas expect."""
    total = given[0]
    for other in given[1:]:
        total = recording.call(torch.add, total, other)
    if total.dtype != proxy.dtype:
        total = recording.call(torch.Tensor.to, total, proxy.dtype)
    if recording.recorder.tensors.proxy_of(total).stride == proxy.stride:
        return total
    order = sorted(range(proxy.ndim), key=lambda dimension: -proxy.stride[dimension])
    inner = recording.call(torch.permute, total, order)
    dense = recording.call(torch.Tensor.contiguous, inner)
    back: torch.Tensor = recording.call(
        torch.permute, dense, [order.index(dimension) for dimension in range(proxy.ndim)]
    )
    return back


Cotangents = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]


class Pullback:
    """One run of a function under a recorder, and its gradients. Call `run`, then `gradients`, then `outside`.

    Args:
        recorder: the recorder of the program that calls the function.
        operands: dense floating-point or complex tensors of that program, for which gradients are computed.

    Attributes:
        aliases: the tensors to pass to the function instead of the operands. They share the operands' storages, but are
            leaves of a new autograd graph, so that a write to them raises an error as in eager PyTorch.
    """

    def __init__(self, recorder: Recorder, operands: Sequence[torch.Tensor]) -> None:
        self.recorder = recorder
        self.operands = operands
        self.location = user_location()
        recorder.saw_strides = True  # formulas depend on them
        self.aliases = [self._alias(operand) for operand in operands]
        self._inputs = [recorder.tensors.proxy_of(alias) for alias in self.aliases]
        self._values: dict[str, Any] = {}
        self._sources: dict[str, str] = {}
        self._replaced: dict[int, tuple[torch.Tensor, Any]] = {}

    def _alias(self, operand: torch.Tensor) -> torch.Tensor:
        recorder = self.recorder
        variable = recorder.tensors.variable(operand)
        if variable.proxy.layout is not torch.strided:
            raise UnsupportedError(
                f"{variable.proxy.name} is sparse; functional transformations take dense tensors",
                location=self.location,
                advice=("convert it before: tensor.to_dense()",),
            )
        name = recorder.trace.names.for_input(f"{variable.proxy.name}_inside")
        proxy = replace(variable.proxy, name=name, requires_grad=True)
        with self._unrecorded(), recorder.tensors.fake_mode.observing():
            fake = make_alias(recorder.tensors.fake(variable), proxy, leaf=True)
        return recorder.tensors.traced(Variable(proxy, fake=fake, base=variable, location=self.location))

    @contextmanager
    def _unrecorded(self) -> Iterator[None]:
        """A context for code of the compiler, which is not recorded."""
        with self.recorder.suspension, DisableTorchFunction():
            yield

    def run(self, function: Callable[[], Any]) -> Any:
        """Record a function that uses the aliases. The program may use its result only after `outside`."""
        self.region = Region(self.recorder.trace, self.recorder.tensors)
        with self.region.recording(), torch.inference_mode(False), torch.enable_grad():
            return function()

    def gradients(self, outputs: Sequence[torch.Tensor], cotangents: Cotangents) -> list[torch.Tensor]:
        """Record the ops of the function and of its gradients.

        Args:
            outputs: tensors that the function returned.
            cotangents: a function from ``outputs``, as tensors of the program, to their cotangents of the same shapes.

        Returns:
            One gradient for each operand, zero where none flows.

        Raises:
            UnsupportedError: the function reads or changes the autograd graph.
        """
        trace = function_trace(self.region, self._inputs, outputs)
        names = [self.recorder.tensors.proxy_of(output).name for output in outputs]
        with self._unrecorded(), disable_current_modes():
            function = FunctionJoint.of(trace, names, again=self._differentiated_again())
        operands = dict(zip([proxy.name for proxy in self._inputs], self.operands, strict=True))
        around = Surroundings(self.recorder, operands, self.location)
        objects, renamed = around.objects(trace), around.names(function, self.region.defined())
        recording = JointRecorder(self.recorder, objects, renamed, self.location, function.originals)
        self._values, self._sources = recording.values, function.sources
        joint = function.joint
        ops, first = joint.trace.symbols, joint.backward_start
        outside = {proxy.name for proxy in trace.inputs[len(self.operands) :]}
        forward = [op for op in ops[:first] if not registers_inside(op, outside)]
        recording.record(forward, joint.trace.context, function.constant)
        with recording.at(self.location):
            given = cotangents([self.outside(output) for output in outputs])
            for proxy, positions in function.cotangents:
                recording.values[proxy.name] = sum_of_cotangents(
                    recording, proxy, [given[position] for position in positions]
                )
        recording.record(ops[first:], joint.trace.context)
        if function.epilogue is not None:
            recording.record(function.epilogue.symbols, function.epilogue.context)
        self._replace_tensors()
        with recording.at(self.location):
            return [self._gradient(recording, function, index) for index in range(len(self.operands))]

    def outside(self, leaf: Any) -> Any:
        """The program's tensor for a tensor of the function; any other leaf unchanged."""
        variable = variable_of(leaf)
        if variable is None:
            return leaf
        if id(leaf) in self._replaced:
            return self._replaced[id(leaf)][1]
        name = variable.proxy.name
        return self._values.get(self._sources.get(name, name), leaf)

    def _gradient(self, recording: JointRecorder, function: FunctionJoint, index: int) -> torch.Tensor:
        gradient = function.gradients.get(self._inputs[index].name)
        if gradient is None:
            zeros: torch.Tensor = recording.call(torch.zeros_like, self.operands[index])
            return zeros
        value: torch.Tensor = recording.values[gradient]
        return value

    def _replace_tensors(self) -> None:
        """Turn the tensors of the function that are still alive into the tensors that replace them in the program."""
        for tensor in (*self.aliases, *self.region.live_tensors()):
            self._replaced[id(tensor)] = tensor, self.outside(tensor)
        for tensor, other in self._replaced.values():
            if other is not tensor:
                variable = self.recorder.tensors.variable(other)
                for attribute in ("proxy", "fake", "base", "detached", "constant", "key"):
                    setattr(self.recorder.tensors.variable(tensor), attribute, getattr(variable, attribute))

    def _differentiated_again(self) -> bool:
        """Whether the gradients may be differentiated again."""
        values = [self.recorder.tensors.proxy_of(operand) for operand in self.operands]
        values += [proxy for proxy in self.region.free() if isinstance(proxy, TensorProxy)]
        aliases = {proxy.name for proxy in self._inputs}
        grad_mode = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        return grad_mode and any(proxy.requires_grad for proxy in values if proxy.name not in aliases)
