"""Gradients of a part of the program that is being recorded, as lines of that program.

The part is recorded apart, differentiated as a trace, and the lines of both are recorded again, as ordinary calls. So
another transformation, or the user's backward, differentiates through the gradients like through any computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.region import Region
from thunder_core.acquire.traced_tensor import variable_of
from thunder_core.acquire.variable import Variable
from thunder_core.autodiff.plan import Plan
from thunder_core.autodiff.replay import Replay, ReplayWithGraphs
from thunder_core.autodiff.tensor_hooks import sets_hook
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.pytorch_internals import DisableTorchFunction, disable_current_modes
from thunder_core.tracing.fake_tensors import make_alias
from thunder_core.tracing.user_frames import user_location


def function_trace(region: Region, inputs: Sequence[TensorProxy], outputs: Sequence[torch.Tensor]) -> Trace:
    """What was recorded in ``region``.

    Its inputs are ``inputs``, then the other values from outside, which do not require grad; its outputs are all
    tensors of the region that somebody still holds, then ``outputs``.

    Raises:
        UnsupportedError: the function asks or changes the autograd graph itself.
    """
    region.restore_names()
    own = {proxy.name for proxy in inputs}
    for line in region.lines:
        _refuse(line, own)
    defined = region.defined()
    free = [_constant(proxy) for proxy in region.free() if proxy.name not in own]
    live = [region.tensors.proxy_of(tensor) for tensor in region.live_tensors()]
    live = [proxy for proxy in live if proxy.name in defined]
    result = [region.tensors.proxy_of(output) for output in outputs]
    known = defined | own | {proxy.name for proxy in free}
    free += [_constant(proxy) for proxy in result if proxy.name not in known]
    return Trace(
        "function",
        (*inputs, *{proxy.name: proxy for proxy in free}.values()),
        tuple(region.lines),
        tuple({proxy.name: proxy for proxy in (*live, *result)}.values()),
        Stage.ACQUIRED,
        "acquisition",
        region.trace.ambient,
    )


def registers_inside(line: BoundSymbol, outside: set[str]) -> bool:
    """Whether a line only registers a hook on a tensor of the function: the lines of the gradients call it.

    Args:
        outside: names of the values from outside of the function.
    """
    return sets_hook(line) and outside.isdisjoint(proxy.name for proxy in tensor_inputs_of(line))


def _refuse(line: BoundSymbol, inputs: set[str]) -> None:
    if Tag.AUTOGRAD in line.symbol.tags:
        raise UnsupportedError(
            f"{line.symbol.name} inside a function that a functional transformation differentiates",
            location=line.location,
            advice=("use thunder.grad or thunder.vjp for gradients inside of it",),
        )
    if sets_hook(line) and any(proxy.name in inputs for proxy in tensor_inputs_of(line)):
        raise UnsupportedError(
            f"{line.symbol.name} on an argument with respect to which is differentiated",
            location=line.location,
            advice=("register the hook on x.view_as(x), and go on with that",),
        )


def _constant(proxy: Proxy) -> Proxy:
    """A value of the trace with respect to which is not differentiated."""
    return replace(proxy, requires_grad=False) if isinstance(proxy, TensorProxy) else proxy


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The program around a function that is differentiated.

    Attributes:
        recorder: of the program.
        operands: tensors of the program by the names that they have in the function's trace.
        location: of the user's call.
    """

    recorder: Recorder
    operands: Mapping[str, torch.Tensor]
    location: SourceLocation | None

    def objects(self, trace: Trace) -> dict[str, Any]:
        """The program's object for each input of the function's trace.

        Raises:
            UnsupportedError: the function uses a number that is known when the program runs.
        """
        inputs = self.recorder.inputs
        known = inputs.objects_of_lines()
        for proxy, value in zip(inputs.proxies, inputs.objects, strict=True):
            known[proxy.name] = value
            if isinstance(value, torch.Tensor):
                known[self.recorder.tensors.proxy_of(value).name] = value
        for tensor in self.recorder.tensors.alive():
            known.setdefault(self.recorder.tensors.proxy_of(tensor).name, tensor)
        known.update(self.operands)
        return {proxy.name: known[proxy.name] if proxy.name in known else self._absent(proxy) for proxy in trace.inputs}

    def names(self, plan: Plan, own: set[str]) -> dict[str, str]:
        """Names for what the lines compute: ``own`` as in the function, or after the value whose gradient it is."""
        renamed: dict[str, str] = {}
        outer = {name: self.recorder.tensors.proxy_of(operand).name for name, operand in self.operands.items()}
        for line in plan.joint.trace.symbols:
            for proxy in line.outputs():
                stem, separator, rest = proxy.name.partition("_cotangent")
                if proxy.name in own:
                    renamed[proxy.name] = proxy.name
                elif separator or "_" in stem:
                    renamed[proxy.name] = self.recorder.trace.names.for_input(outer.get(stem, stem) + separator + rest)
        return renamed

    def _absent(self, proxy: Proxy) -> torch.Tensor:
        """A tensor that the program has let go of meanwhile."""
        if not isinstance(proxy, TensorProxy):
            raise UnsupportedError(
                f"a function that uses {proxy.name}, which is known when the program runs, cannot be differentiated by "
                "a functional transformation",
                location=self.location,
                advice=("compute with tensors instead of Python numbers",),
            )
        return self.recorder.tensors.traced(Variable(proxy, location=self.location))


def sum_of_cotangents(replay: Replay, proxy: TensorProxy, given: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum of the gradients that one value gets, as the formulas expect it: of the value's dtype, and dense."""
    total = given[0]
    for other in given[1:]:
        total = replay.call(torch.add, total, other)
    if total.dtype != proxy.dtype:
        total = replay.call(torch.Tensor.to, total, proxy.dtype)
    if replay.recorder.tensors.proxy_of(total).stride == proxy.stride:
        return total
    order = sorted(range(proxy.ndim), key=lambda dimension: -proxy.stride[dimension])
    inner = replay.call(torch.permute, total, order)
    dense = replay.call(torch.Tensor.contiguous, inner)
    back: torch.Tensor = replay.call(torch.permute, dense, [order.index(dimension) for dimension in range(proxy.ndim)])
    return back


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
