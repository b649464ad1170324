"""The op of a call with wrapper subclasses that require grad: forward and backward programs on inner tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch.autograd.function import once_differentiable

from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import on_fakes
from thunder_core.ir.trace import OpPrograms, Trace
from thunder_core.symbols.opaque import callable_symbol
from thunder_frontend.record.autograd_functions import apply_of
from thunder_frontend.record.open_trace import Region
from thunder_frontend.record.recorder import Recorder


class WrapperOp:
    """An op that is written with the call, and completed with its derivative when that is recorded.

    Args:
        recorder: the recorder of the program.
        forward: the ops of the call.
        given: by name of each value that carries a gradient, the value with this gradient in its place.

    Attributes:
        inside: the values in ``forward``, by their names outside.
        symbol: the symbol of the op.
    """

    def __init__(self, recorder: Recorder, forward: Region, given: dict[str, Proxy]) -> None:
        self.forward = forward
        self.inside: dict[str, Proxy] = {}
        self._recorder = recorder
        self._given = given
        self._defined = forward.defined()
        free = {proxy.name: proxy for proxy in forward.free()}
        self._free = free | {name: replace(proxy, name=name) for name, proxy in given.items() if name not in free}
        self._programs = _Programs()
        self.symbol = callable_symbol(apply_of(_function(self._programs)), "Wrapper_apply")
        self._results: tuple[TensorProxy, ...] = ()
        self._saved: tuple[Proxy, ...] = ()
        self._places: list[int] = []
        self._backward: Any = None

    def write(self, results: Sequence[TensorProxy], differentiable: int, at: int | None = None) -> list[TensorProxy]:
        """Append the op, or insert it at the index ``at``; returns the results with their names outside.

        Args:
            results: values of ``forward``, of which the first ``differentiable`` require grad.
        """
        trace = self._recorder.trace
        self._results = tuple(results)
        outputs = [
            replace(proxy, name=trace.names.intermediate(), requires_grad=index < differentiable)
            for index, proxy in enumerate(results)
        ]
        self.inside |= {output.name: proxy for output, proxy in zip(outputs, results, strict=True)}
        with torch.no_grad():
            body = self.forward.body("forward_body", tuple(self._free.values()), self._results)
        self._programs.without_derivative(body, differentiable)
        arguments = tuple([self._given.get(name, proxy) for name, proxy in self._free.items()])
        trace.write(self.symbol, arguments, {}, tuple(outputs), self.forward.effects())
        if at is not None:
            trace.ops.insert(at, trace.ops.pop())
        return outputs

    def position(self) -> int:
        """The index of the op in the trace."""
        ops = self._recorder.trace.ops
        return next(index for index, op in enumerate(ops) if op.symbol is self.symbol)

    def use(self, others: dict[str, Proxy]) -> None:
        """Replace arguments of the op: takes the new values by the names of the old ones."""
        ops, index = self._recorder.trace.ops, self.position()
        op = ops[index]
        ops[index] = replace(op, args=tuple([others.get(proxy.name, proxy) for proxy in op.args]))

    def complete(self, backward: Region, cotangents: list[Proxy], into: dict[str, Proxy]) -> str | None:
        """Add the derivative to the op, and the values that it reads as further arguments.

        Args:
            cotangents: the cotangents of the results that require grad.
            into: the gradients of arguments, values of ``backward``, by the names of the arguments.

        Returns:
            None on success; otherwise the name of a value that ``backward`` reads and that is not available at the
            op, as it was written after it.
        """
        trace, index = self._recorder.trace, self.position()
        read = {proxy.name: proxy for proxy in (*backward.free(), *into.values())}
        for name in (*backward.defined(), *[proxy.name for proxy in cotangents]):
            read.pop(name, None)
        saved = {name: self.inside.get(name, proxy) for name, proxy in read.items()}
        more = {p.name: p for p in saved.values() if p.name not in self._defined and p.name not in self._free}
        visible = {proxy.name for proxy in self._recorder.inputs.proxies}
        for ops in (trace.ops[:index], *trace.outer_ops):
            visible.update(proxy.name for op in ops for proxy in op.outputs())
        for name in more:
            if name not in visible:
                return name
        self._free |= more
        gradients = tuple([into[name] for name in self._free if name in into])
        with torch.no_grad():
            self._backward = backward.body("backward_body", (*cotangents, *read.values()), gradients)
        self._saved = tuple(saved.values())
        self._places = [place for place, name in enumerate(self._free) if name in into]
        op = trace.ops[index]
        trace.ops[index] = replace(op, args=(*op.args, *more.values()))
        return None

    def finish(self, returned: set[str]) -> None:
        """Remove results that only autograd used, and compile both programs.

        Args:
            returned: the names of the values that the ops around return.
        """
        ops, index = self._recorder.trace.ops, self.position()
        used = returned | {proxy.name for op in ops[index + 1 :] for proxy in op.inputs()}
        first = self._programs.differentiable
        pairs = list(zip(ops[index].output, self._results, strict=True))
        pairs = pairs[:first] + [pair for pair in pairs[first:] if pair[0].name in used]
        ops[index] = replace(ops[index], output=tuple([outer for outer, _ in pairs]))
        results = tuple([inner for _, inner in pairs])
        with torch.no_grad():
            forward = self.forward.body("forward_body", tuple(self._free.values()), (*results, *self._saved))
        self._programs.with_derivative(forward, self._backward, len(self._free), self._places, len(results))


class _Programs(OpPrograms):
    """The programs of an op.

    Attributes:
        forward, backward: the programs; without a derivative the second is None.
        arguments: the number of arguments of the op.
        unlike: those of ``places`` whose gradients have another shape than the argument; they are `carried`.
    """

    def __init__(self) -> None:
        self.forward: Any = None
        self.backward: Any = None
        self.arguments = 0
        self.unlike: list[int] = []

    def without_derivative(self, forward: Trace, differentiable: int) -> None:
        """Set the forward program only: ops may run before the end of the program, when it reads values."""
        compiled: list[Any] = []

        def compile_and_run(*args: Any) -> Any:
            if not compiled:
                compiled.append(compile_trace(forward))
            return compiled[0](*args)

        self.forward, self.traces = compile_and_run, (forward,)
        self.differentiable, self.returned = differentiable, len(forward.output)

    def with_derivative(
        self, forward: Trace, backward: Trace, arguments: int, places: list[int], returned: int
    ) -> None:
        self.forward, self.backward = compile_trace(forward), compile_trace(backward)
        gradients = zip(places, backward.output, strict=True)
        self.unlike = [place for place, gradient in gradients if _shape(forward.inputs[place]) != _shape(gradient)]
        self.traces = forward, backward
        self.returned, self.arguments, self.places = returned, arguments, places


def _function(programs: _Programs) -> type[torch.autograd.Function]:
    """The autograd.Function of the two programs."""

    class Wrapper(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            values = programs.forward(*args)
            ctx.set_materialize_grads(False)
            ctx.like = {place: torch.empty_like(args[place], device="meta") for place in programs.unlike}
            ctx.mark_non_differentiable(*values[programs.differentiable : programs.returned])
            saved = values[programs.returned :]
            ctx.save_for_backward(*[value if isinstance(value, torch.Tensor) else None for value in saved])
            ctx.objects = [None if isinstance(value, torch.Tensor) else value for value in saved]
            return tuple(values[: programs.returned])

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *given: Any) -> Any:
            pairs = zip(given, programs.cotangents, strict=False)
            cotangents = [_cotangent(cotangent, proxy) for cotangent, proxy in pairs]
            pairs = zip(ctx.saved_tensors, ctx.objects, strict=True)
            saved = [value if tensor is None else tensor for tensor, value in pairs]
            computed = programs.backward(*cotangents, *saved)
            gradients: list[Any] = [None] * programs.arguments
            for place, gradient in zip(programs.places, computed, strict=True):
                like = ctx.like.get(place)
                gradients[place] = gradient if like is None else _carrying(gradient, like)
            return tuple(gradients)

    cls: Any = Wrapper
    cls.programs = programs
    return Wrapper


def _shape(proxy: Proxy) -> tuple[Any, ...]:
    assert isinstance(proxy, TensorProxy)
    return proxy.shape


def _cotangent(given: torch.Tensor | None, proxy: Proxy) -> torch.Tensor:
    """A cotangent with the shape and strides of its proxy, with which the program was recorded; zeros for None."""
    assert isinstance(proxy, TensorProxy)
    tensor = None if given is None else carried(given)
    if tensor is not None and tensor.stride() == proxy.stride:
        return tensor
    empty = torch.empty_strided(*on_fakes((proxy.shape, proxy.stride)), dtype=proxy.dtype, device=proxy.device)
    return empty.zero_() if tensor is None else empty.copy_(tensor)


_CARRIED: Final = "_thunder_carried"


def _carrying(gradient: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """What autograd takes for ``gradient``, whose shape is not that of the tensor: zeros like it, to pass it on.

    In eager PyTorch these are gradients of wrappers, whose own shapes are equal. No one adds them before `carried`.
    """
    zeros = torch.empty_strided(like.shape, like.stride(), dtype=gradient.dtype, device=gradient.device).zero_()
    setattr(zeros, _CARRIED, gradient)
    return zeros


def carried(gradient: torch.Tensor) -> torch.Tensor:
    """The gradient that `_carrying` has attached to the zeros which autograd passes on; another tensor itself."""
    actual: torch.Tensor = getattr(gradient, _CARRIED, gradient)
    return actual
