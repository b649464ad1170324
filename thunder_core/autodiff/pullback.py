"""Gradients of a part of the program that is being recorded, as lines of that program.

The part is recorded apart, differentiated as a trace, and the lines of both are recorded again, as ordinary calls. So
another transformation, or the user's backward, differentiates through the gradients like through any computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.region import Region
from thunder_core.acquire.traced_tensor import variable_of
from thunder_core.acquire.variable import Variable
from thunder_core.autodiff.function_trace import function_trace, registers_inside
from thunder_core.autodiff.plan import Plan
from thunder_core.autodiff.replay_graphs import ReplayWithGraphs
from thunder_core.autodiff.surroundings import Surroundings, sum_of_cotangents
from thunder_core.errors import UnsupportedError
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.pytorch_internals import DisableTorchFunction, disable_current_modes
from thunder_core.tracing.fake_tensors import make_alias
from thunder_core.tracing.user_frames import user_location

Cotangents = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]


class Pullback:
    """One run of a function under a recorder, and its gradients. Call `run`, then `gradients`, then `outside`.

    Args:
        recorder: of the program that calls the function.
        operands: dense floating-point or complex tensors of that program, with respect to which is differentiated.

    Attributes:
        aliases: what the function must be given in place of the operands: the same memory, but leaves of a new autograd
            graph, so that writing to them is an error as in eager.
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
        self._left: dict[int, tuple[torch.Tensor, Any]] = {}

    def _alias(self, operand: torch.Tensor) -> torch.Tensor:
        recorder = self.recorder
        variable = recorder.tensors.variable(operand)
        if variable.proxy.layout is not torch.strided:
            raise UnsupportedError(
                f"{variable.proxy.name} is sparse; functional transformations take dense tensors",
                location=self.location,
            )
        name = recorder.trace.names.for_input(f"{variable.proxy.name}_inside")
        proxy = replace(variable.proxy, name=name, requires_grad=True)
        with self._apart(), recorder.tensors.fake_mode.observing():
            fake = make_alias(recorder.tensors.fake(variable), proxy, leaf=True)
        return recorder.tensors.traced(Variable(proxy, fake=fake, base=variable, location=self.location))

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Run code of the compiler's own: nothing is recorded."""
        with self.recorder.suspension, DisableTorchFunction():
            yield

    def run(self, function: Callable[[], Any]) -> Any:
        """Record a function that uses the aliases. Its result is to be shown to the program through `outside` only."""
        self.region = Region(self.recorder.trace, self.recorder.tensors)
        with self.region.recording(), torch.inference_mode(False), torch.enable_grad():
            return function()

    def gradients(self, outputs: Sequence[torch.Tensor], cotangents: Cotangents) -> list[torch.Tensor]:
        """Record the lines of the function and of its gradients.

        Args:
            outputs: tensors that the function returned.
            cotangents: from ``outputs``, as the program sees them, to the gradients that they get, of the same shapes.

        Returns:
            For each operand the gradient, zero where none flows.

        Raises:
            UnsupportedError: the function asks or changes the autograd graph itself.
        """
        trace = function_trace(self.region, self._inputs, outputs)
        names = [self.recorder.tensors.proxy_of(output).name for output in outputs]
        with self._apart(), disable_current_modes():
            plan = Plan.of(trace, names, again=self._differentiated_again(trace))
        operands = dict(zip([proxy.name for proxy in self._inputs], self.operands, strict=True))
        around = Surroundings(self.recorder, operands, self.location)
        objects, renamed = around.objects(trace), around.names(plan, self.region.defined())
        replay = ReplayWithGraphs(self.recorder, objects, renamed, self.location, plan.originals)
        self._values, self._sources = replay.values, plan.sources
        joint = plan.joint
        lines, first = joint.trace.symbols, joint.forward_lines
        outside = {proxy.name for proxy in trace.inputs[len(self.operands) :]}
        forward = [line for line in lines[:first] if not registers_inside(line, outside)]
        replay.lines(forward, joint.trace.context, plan.constant)
        with replay.at(self.location):
            given = cotangents([self.outside(output) for output in outputs])
            for proxy, positions in plan.cotangents:
                replay.values[proxy.name] = sum_of_cotangents(
                    replay, proxy, [given[position] for position in positions]
                )
        replay.lines(lines[first:], joint.trace.context)
        if plan.epilogue is not None:
            replay.lines(plan.epilogue.symbols, plan.epilogue.context)
        self._let_go()
        with replay.at(self.location):
            return [self._gradient(replay, plan, index) for index in range(len(self.operands))]

    def outside(self, leaf: Any) -> Any:
        """What stands, in the program, for a tensor of the function; anything else is itself."""
        variable = variable_of(leaf)
        if variable is None:
            return leaf
        if id(leaf) in self._left:
            return self._left[id(leaf)][1]
        name = variable.proxy.name
        return self._values.get(self._sources.get(name, name), leaf)

    def _gradient(self, replay: ReplayWithGraphs, plan: Plan, index: int) -> torch.Tensor:
        gradient = plan.gradients.get(self._inputs[index].name)
        if gradient is None:
            zeros: torch.Tensor = replay.call(torch.zeros_like, self.operands[index])
            return zeros
        found: torch.Tensor = replay.values[gradient]
        return found

    def _let_go(self) -> None:
        """Tensors of the function that somebody still holds become those that stand for them in the program."""
        for tensor in (*self.aliases, *self.region.live_tensors()):
            self._left[id(tensor)] = tensor, self.outside(tensor)
        for tensor, other in self._left.values():
            if other is not tensor:
                variable = self.recorder.tensors.variable(other)
                for attribute in ("proxy", "fake", "base", "detached", "constant", "key"):
                    setattr(self.recorder.tensors.variable(tensor), attribute, getattr(variable, attribute))

    def _differentiated_again(self, trace: Trace) -> bool:
        """Whether somebody may want gradients through the gradients."""
        values = [self.recorder.tensors.proxy_of(operand) for operand in self.operands]
        values += [proxy for proxy in self.region.free() if isinstance(proxy, TensorProxy)]
        aliases = {proxy.name for proxy in self._inputs}
        recording = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        return recording and any(proxy.requires_grad for proxy in values if proxy.name not in aliases)
