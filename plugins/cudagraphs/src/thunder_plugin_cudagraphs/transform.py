"""The transform, which replaces the operations of a program by one operation that replays its graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

import torch

from thunder_core.errors import SizeVariesError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects, joined
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, differentiable
from thunder_core.ir.storage_sizes import bytes_of
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies
from thunder_core.passes.admission import region_call
from thunder_core.passes.delete_last_use import with_deletions
from thunder_core.passes.transform import Phase, Place, Transform, TransformContext
from thunder_plugin_cudagraphs.device import BACKENDS, device_graphs
from thunder_plugin_cudagraphs.inputs import Inputs, Role
from thunder_plugin_cudagraphs.limits import Limits
from thunder_plugin_cudagraphs.options import CUDAGraphsOptions
from thunder_plugin_cudagraphs.peak import peak_bytes
from thunder_plugin_cudagraphs.program import GraphedProgram
from thunder_plugin_cudagraphs.program_statistics import ProgramStatistics
from thunder_plugin_cudagraphs.refusal import device_of, why_not, why_not_by_itself, works_on
from thunder_plugin_cudagraphs.trial import Trial


@dataclass(frozen=True)
class CUDAGraphs(Transform):
    """Captures programs as CUDA graphs. Its options are those of `CUDAGraphsOptions`.

    A program that cannot be captured is not changed; the report of the compilation has the reason. With
    ``when="auto"``, the report has nothing about programs of devices without CUDA graphs.
    """

    name: ClassVar[str] = "cudagraphs"
    place: ClassVar[Place] = Place.LAST
    verified: ClassVar[bool] = False
    # Replays call no Python code, so these transforms would only see the first calls.
    conflicts: ClassVar[tuple[str, ...]] = ("bisect", "line_callbacks", "line_timing", "nan_finder")
    after: ClassVar[tuple[str, ...]] = ("nvtx_ranges",)

    when: Literal["auto", "always"] = "always"
    phases: tuple[str, ...] = ("inference", "forward", "backward")
    warmup: int = Limits.warmup
    copy_below: int = Limits.copy_below
    max_graphs: int = Limits.max_graphs
    variants: int = Limits.variants
    max_captures: int = Limits.max_captures
    patience: int = Limits.patience
    memory: float = Limits.memory
    trust: tuple[str, ...] = ()

    def applies(self, context: TransformContext) -> bool:
        """With ``auto``, if a device has CUDA graphs."""
        return self.when == "always" or any(torch.get_device_module(kind).is_available() for kind in BACKENDS)

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        """The program as one operation, or unchanged.

        Raises:
            SizeVariesError: it has symbolic sizes, and could be captured with constant ones.
        """
        phase = context.phase.value
        if self.when == "auto" and not works_on(trace):
            return trace
        reason = why_not(trace, self.trust) if phase in self.phases else f"phases leaves {phase} programs out"
        trial = self._trial(context)
        if reason is None and self.when == "auto":
            reason = why_not_by_itself(trace, context.phase, trial is not None)
        if reason is not None:
            context.notes.append(ProgramStatistics(trace.name, phase, refused=reason))
            return trace
        if trace.sizes:
            raise SizeVariesError("a CUDA graph has constant sizes")
        return self._one_op(trace, context, trial)

    def _trial(self, context: TransformContext) -> Trial | None:
        """The trial in which a program takes part. A backward takes part in that of its forward, if there is one."""
        if self.when == "always":
            return None
        if context.phase is not Phase.BACKWARD:
            return Trial(self.warmup)
        programs = [note for note in context.notes if isinstance(note, GraphedProgram)]
        return next((one.trial for one in programs if one.phase is Phase.FORWARD), None)

    def _one_op(self, trace: Trace, context: TransformContext, trial: Trial | None) -> Trace:
        results, inputs = _Results.of(trace, context.saved), Inputs.of(trace, context)
        body = with_deletions(replace(trace, output=results.returned))
        function = compile_trace(body, boxed=True)
        copied = [trace.inputs[position] for position, role in enumerate(inputs.roles) if role is Role.COPIED]
        program = GraphedProgram(
            trace.name,
            context.phase,
            function,
            inputs,
            _positions(results.made, lambda proxy: proxy.name in context.saved),
            _positions(results.made, lambda proxy: context.phase is Phase.INFERENCE and differentiable(proxy)),
            device_graphs(device_of(trace)),
            Limits(**{field.name: getattr(self, field.name) for field in fields(Limits)}),
            peak_bytes(body) + bytes_of(copied),
            trial,
            [call for call in map(region_call, trace.symbols) if hasattr(call, "settled")],
        )
        context.notes.append(program)
        tags = frozenset({Tag.LOCAL, Tag.RUNS_PARTS})
        symbol = Symbol(f"cudagraphs_{context.phase.value}", program, tags=tags, executor=self.name)
        op = BoundSymbol(symbol, (list(trace.inputs),), {}, results.made, _effects(trace, inputs), parts=trace.symbols)
        return replace(trace.with_symbols([op], self.name), output=results.output)


@dataclass(frozen=True, slots=True)
class _Results:
    """The results of the operation.

    Attributes:
        returned: values of the program; one that is both a result and saved for backward occurs twice.
        made: their names outside.
        output: the program's output with these names; inputs are returned directly.
    """

    returned: tuple[Proxy, ...]
    made: tuple[Proxy, ...]
    output: tuple[Any, ...]

    @staticmethod
    def of(trace: Trace, saved: frozenset[str]) -> _Results:
        inputs = {proxy.name for proxy in trace.inputs}
        taken = trace.names()
        counts = Counter([proxy.name for proxy in iterate_proxies(trace.output)])
        made: dict[str, tuple[Proxy, Proxy]] = {}
        output: list[Any] = []
        for leaf in trace.output:
            if not isinstance(leaf, PROXY_TYPES) or leaf.name in inputs:
                output.append(leaf)
                continue
            twin = f"{leaf.name}_result"
            if leaf.name in saved and counts[leaf.name] > 1 and twin not in taken:
                taken.add(twin)
                named = replace(leaf, name=twin)
            else:
                named = leaf
            made[named.name] = leaf, named
            output.append(named)
        pairs = made.values()
        return _Results(tuple([one for one, _ in pairs]), tuple([named for _, named in pairs]), tuple(output))


def _positions(made: Sequence[Proxy], holds: Callable[[Proxy], bool]) -> frozenset[int]:
    return frozenset([position for position, proxy in enumerate(made) if holds(proxy)])


def _effects(trace: Trace, inputs: Inputs) -> Effects:
    """The effects of all operations on inputs, also through views, and whether one is random or has a state."""
    written = tuple([inputs.names[position] for position in inputs.mutated])
    return joined([bound.effects for bound in trace.symbols], written)


def from_options(options: CUDAGraphsOptions) -> CUDAGraphs:
    """The transform for the options of a configuration."""
    return CUDAGraphs(**{field.name: getattr(options, field.name) for field in fields(CUDAGraphs)})
