"""Second derivatives: gradients with a graph, for which the program runs a second time, under autograd."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from operator import attrgetter
from typing import Any, Final
from weakref import ReferenceType, ref

import torch
import torch.nn.functional as F

from thunder_core.autodiff.inner_leaves import replaces_leaf
from thunder_core.autodiff.joint import Joint
from thunder_core.autodiff.tensor_hooks import without_hooks_on_inputs
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace, programs_of
from thunder_core.ir.tree import iterate_leaves, iterate_proxies, map_leaves
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.operations import functional_call
from thunder_core.pytorch_internals import DisableTorchFunctionSubclass, version_of
from thunder_core.runtime.pipeline import LatePrograms
from thunder_core.symbols.generators import generator_states
from thunder_core.symbols.schema import is_untagged

_ONCE: Final = frozenset({Tag.REPORT, Tag.GUESS})
_IN_EAGER: Final = "run the program that needs second derivatives in eager PyTorch"
_version: Final = attrgetter("_version")


@dataclass(frozen=True, slots=True)
class RememberedInputs:
    """The inputs of one call that are not saved for backward.

    Attributes:
        tensors: weak references to the tensors.
        versions: the version counters of the tensors; None for inference tensors, which have none.
        objects: the inputs that are not tensors.
    """

    tensors: tuple[ReferenceType[torch.Tensor], ...]
    versions: tuple[int | None, ...]
    objects: tuple[Any, ...]


class SecondDerivatives:
    """Runs a program again, under autograd, for gradients that have a graph.

    Only the part runs that computes differentiable results: the updates of statistics do not, whose inputs have been
    written meanwhile. The reference executor runs it, because autograd cannot differentiate the implementations of
    other executors.

    Args:
        original: the program before differentiation.
        joint: its joint trace.
        saved: the values that are saved for its backward, which can include inputs.
        late: compiles the program on first use.
    """

    def __init__(self, original: Trace, joint: Joint, saved: Sequence[Proxy], late: LatePrograms) -> None:
        self._late = late
        self.original = without_hooks_on_inputs(original)
        self.joint = joint
        indices = {proxy.name: index for index, proxy in enumerate(saved)}
        primals = list(enumerate(joint.primals))
        names = [proxy.name for _, proxy in primals]
        self._sources = [names.index(proxy.name) for proxy in joint.differentiable]
        self._saved = [(position, indices[proxy.name]) for position, proxy in primals if proxy.name in indices]
        rest = [(position, isinstance(proxy, TensorProxy)) for position, proxy in primals if proxy.name not in indices]
        self._tensors = [position for position, tensor in rest if tensor]
        self._objects = [position for position, tensor in rest if not tensor]
        self._program: Callable[..., Any] | None = None
        self._unread: frozenset[int] = frozenset()  # the positions of inputs that `_program` does not read
        self._may_draw = any(is_untagged(bound.symbol.target) for bound in original.symbols)

    def remember(self, inputs: Sequence[Any]) -> RememberedInputs:
        """The inputs of a call to store for later. This runs in each call, at 0.1 microseconds for each input."""
        tensors = [inputs[position] for position in self._tensors]
        objects = tuple([inputs[position] for position in self._objects])
        return RememberedInputs(tuple(map(ref, tensors)), _versions(tensors), objects)

    def gradients(
        self,
        remembered: RememberedInputs,
        saved: Sequence[Any],
        cotangents: Sequence[Any],
        wanted: Sequence[bool],
        sizes: tuple[int, ...] = (),
    ) -> list[Any]:
        """For each differentiable input its gradient, with a graph; None if it is not wanted or does not depend on it.

        Args:
            remembered, saved: the inputs and the saved values of the call.
            cotangents: for each output in `Joint.cotangent_of` its cotangent; None for an absent one.
            wanted: for each differentiable input, whether its gradient is needed.
            sizes: the values of the size symbols in the call.

        Raises:
            UnsupportedError: the program does something else when it is run again, or an input is gone or was written.
        """
        program = self._compiled()
        inputs = self._inputs(remembered, saved)
        with DisableTorchFunctionSubclass(), torch.enable_grad():
            needed = [position for position, want in zip(self._sources, wanted, strict=True) if want]
            for position in needed:  # a new tensor, since other inputs may have been computed from this one
                inputs[position] = inputs[position].view_as(inputs[position])
            states = generator_states() if self._may_draw else ()
            outputs = program(*inputs, *sizes)
            if states and not all(map(torch.equal, states, generator_states())):
                raise _not_repeatable("an operator that draws random numbers")
            pairs = [
                (outputs[index], cotangent)
                for index, cotangent in zip(self.joint.cotangent_of, cotangents, strict=True)
                if cotangent is not None
            ]
            results = torch.autograd.grad(
                [output for output, _ in pairs],
                [inputs[position] for position in needed],
                [cotangent for _, cotangent in pairs],
                create_graph=True,
                allow_unused=True,
            )
        gradients = dict(zip(needed, results, strict=True))
        return [gradients.get(position) for position in self._sources]

    def _compiled(self) -> Callable[..., Any]:
        if self._program is None:
            silent = _differentiated_part(_without_reports(self.original), frozenset(self.joint.cotangent_of))
            read = {proxy.name for bound in silent.symbols for proxy in bound.inputs()}
            read.update(proxy.name for proxy in iterate_proxies(silent.output))
            self._unread = frozenset(i for i, proxy in enumerate(silent.inputs) if proxy.name not in read)
            effects = [bound for bound in silent.symbols if _differs_next_time(bound)]
            if effects:
                raise _not_repeatable(effects[0].symbol.name, effects[0].location)
            for bound in silent.symbols:
                if programs_of(bound.symbol):
                    raise UnsupportedError(
                        "an operation of a tensor subclass has its first derivative alone, no second derivatives",
                        location=bound.location,
                        advice=(_IN_EAGER,),
                    )
                if replaces_leaf(bound):
                    raise UnsupportedError(
                        "the program calls requires_grad_ of its own value, which second derivatives may depend on",
                        location=bound.location,
                        advice=(_IN_EAGER,),
                    )
            names = () if self._late.sizes is None else tuple(self._late.sizes.values)
            self._program = compile_trace(self._late.second_derivatives(silent), sizes=names)
        return self._program

    def _inputs(self, remembered: RememberedInputs, saved: Sequence[Any]) -> list[Any]:
        """The inputs of the call."""
        inputs: list[Any] = [None] * len(self.joint.primals)
        for position, index in self._saved:
            inputs[position] = saved[index]
        for position, value in zip(self._objects, remembered.objects, strict=True):
            inputs[position] = value
        for position, reference, version in zip(self._tensors, remembered.tensors, remembered.versions, strict=True):
            if position in self._unread:
                continue
            tensor = reference()
            if tensor is None or _versions([tensor]) != (version,):
                name, what = self.joint.primals[position].name, "was freed" if tensor is None else "was written"
                raise UnsupportedError(
                    f"second derivatives run the program again, and its input {name} {what} since",
                    advice=(
                        "keep a reference to the inputs of the program, unchanged, until its second derivatives are "
                        "computed",
                    ),
                )
            inputs[position] = tensor
        return inputs


def _versions(tensors: Sequence[torch.Tensor]) -> tuple[int | None, ...]:
    try:
        return tuple(map(_version, tensors))
    except RuntimeError:  # an inference tensor has none; a check of each tensor would cost more
        return tuple([None if tensor.is_inference() else version_of(tensor) for tensor in tensors])


def _not_repeatable(called: str, location: SourceLocation | None = None) -> UnsupportedError:
    return UnsupportedError(
        f"second derivatives run the program again, and it calls {called}, which is not deterministic",
        location=location,
        advice=(_IN_EAGER,),
    )


def _differs_next_time(bound: BoundSymbol) -> bool:
    """Whether a second run of the op can have another result or a visible effect. Hooks are set on new tensors."""
    random = bound.effects.random and not is_untagged(bound.symbol.target)
    return random or (bound.effects.visible and Tag.HOOK not in bound.symbol.tags)


_STATISTICS: Final[dict[Any, str]] = {F.batch_norm: "training", F.instance_norm: "use_input_stats"}
"""Functions whose result does not depend on the arguments that they write if an argument of this name is true."""


def _differentiated_part(trace: Trace, needed: frozenset[int]) -> Trace:
    """The program with the outputs at these positions, and None for the others, without ops that only those need."""
    output = tuple([value if position in needed else None for position, value in enumerate(trace.output)])
    part = without_dead_code(replace(trace, output=output))
    read = {proxy.name for bound in part.symbols for proxy in bound.inputs()}
    read.update(proxy.name for proxy in iterate_proxies(output))
    ops = [_without_statistics(bound, read) for bound in part.symbols]
    return without_dead_code(part.with_symbols(ops, part.provenance))


def _without_statistics(bound: BoundSymbol, read: Container[str]) -> BoundSymbol:
    """A normalization without running statistics, whose new values no op reads."""
    if bound.symbol.target is not functional_call or bound.args[0] not in _STATISTICS:
        return bound
    function, written, args, kwargs = bound.args
    given = signature(function).bind(*args, **kwargs)
    given.apply_defaults()
    result, *copies = bound.output
    if given.arguments[_STATISTICS[function]] is not True or any(copy.name in read for copy in copies):
        return bound
    names = {leaf.name for position, leaf in enumerate(iterate_leaves((args, kwargs))) if position in written}
    args, kwargs = map_leaves(lambda leaf: None if getattr(leaf, "name", "") in names else leaf, (args, kwargs))
    return replace(bound, args=(function, (), args, kwargs), output=(result,))


def _without_reports(trace: Trace) -> Trace:
    """The trace without ops that print, log, warn, or check values, for a second run."""
    ops = [_without_reports_inside(bound) for bound in trace.symbols if not bound.symbol.tags & _ONCE]
    return trace.with_symbols(ops, trace.provenance)


def _without_reports_inside(bound: BoundSymbol) -> BoundSymbol:
    """An op without the reports in the traces among its arguments."""
    bodies: list[Trace] = []

    def silent(value: Any) -> Any:
        if not isinstance(value, Trace):
            return value
        bodies.append(_without_reports(value))
        return bodies[-1]

    changed = bound.map_arguments(silent)
    if not bodies:
        return bound
    external = any(op.effects.external for body in bodies for op in body.symbols)
    return replace(changed, effects=replace(bound.effects, external=external))
