"""The result of acquisition: a trace, with the data for its guards and for the reconstruction of its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from thunder_core.acquire import subclasses
from thunder_core.acquire.input_sizes import InputSizes
from thunder_core.acquire.reconstruction import Reconstruction
from thunder_core.checks.guard import Guard
from thunder_core.checks.shared_memory import base_of, is_recorded
from thunder_core.checks.sizes import NumberFacts
from thunder_core.checks.source import ConstantSource, Source
from thunder_core.guards.observer import Observer
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import NumberProxy
from thunder_core.ir.size import as_found
from thunder_core.ir.trace import Trace
from thunder_core.pytorch_internals import tensor_identity
from thunder_core.tracing.sizes import Sizes


@dataclass(frozen=True)
class Acquired:
    """A recorded program.

    Attributes:
        trace: the program; its output is the flat tuple of tensors that ``reconstruction`` uses.
        sources: the access path by which the prologue reads each input of the trace.
        inputs: the objects at these paths in the recorded call.
        observer: the reads and writes of Python objects.
        reconstruction: how to rebuild the program's result, and its writes to Python objects, from the outputs.
        raised: the exception with which the program ends instead of a result; the reconstruction raises it.
        input_sizes: the inputs with sizes that vary between calls, and the symbols; None where all are constants.
        constant_sizes: why sizes that should vary are constants; empty otherwise.
        constant_floats: the paths of floats that should vary and are constants, each with the line that needs it.
        number_facts: the conditions on floats that vary.
        number_guards: guards of ints that should vary and are constants, in addition to the observer's guards.
        traces_numbers: whether numbers that the program reads from tensors are numbers of the trace.
        defined: the symbols for sizes that ops of the program define. Their values are the last outputs of the trace.
        saw_strides: the program read strides, so that they are guarded even where they decide nothing else.
        random_states: random generators outside of PyTorch that the program consumed.
        guarded: the caller checks everything that the program read, and the metadata of its inputs, before each call,
            as Dynamo does. Whether inputs share storage is still checked where the program writes to them.
    """

    trace: Trace
    sources: tuple[Source, ...]
    inputs: tuple[Any, ...]
    observer: Observer
    reconstruction: Reconstruction
    random_states: tuple[str, ...]
    saw_strides: bool
    raised: BaseException | None = None
    guarded: bool = False
    input_sizes: InputSizes | None = None
    constant_sizes: str = ""
    constant_floats: Mapping[str, SourceLocation | None] = field(default_factory=dict)
    number_guards: tuple[Guard, ...] = ()
    number_facts: NumberFacts = field(default_factory=NumberFacts)
    traces_numbers: bool = True
    defined: tuple[str, ...] = ()

    @property
    def sizes(self) -> Sizes | None:
        """The symbols of sizes that vary; None where all sizes are constants."""
        return None if self.input_sizes is None else self.input_sizes.sizes

    @property
    def varying_floats(self) -> list[str]:
        """The access paths of floats that vary between calls."""
        pairs = zip(self.trace.inputs, self.sources, strict=True)
        return [source.describe() for proxy, source in pairs if isinstance(proxy, NumberProxy)]

    @property
    def defined_outputs(self) -> dict[str, int]:
        """The symbols that ops define, each with its index among the outputs."""
        places = {proxy.name: place for place, proxy in enumerate(self.trace.output)}
        return {name: places[name] for name in self.defined}

    def with_sizes_as_found(self) -> Acquired:
        """The same program, with its sizes simplified by the facts recorded about the symbols."""
        if self.sizes is None or not self.sizes.fact_count:
            return self
        return replace(self, trace=self.trace.with_sizes(as_found, checks=False))

    def with_constant_sizes(self, reason: str) -> Acquired:
        """The same program, specialized to the sizes that it was recorded with."""
        assert self.input_sizes is not None
        trace = self.trace.with_constant_sizes()
        numbers = self.input_sizes.number_guards()
        facts = self.number_facts.with_constants(self.input_sizes.sizes.hints)
        return replace(
            self, trace=trace, input_sizes=None, constant_sizes=reason, number_guards=numbers, number_facts=facts
        )

    @property
    def constant_inputs(self) -> dict[str, Any]:
        """The values of inputs that are the same in every run, by name."""
        pairs = zip(self.trace.inputs, self.sources, strict=True)
        return {proxy.name: source.value for proxy, source in pairs if isinstance(source, ConstantSource)}

    @property
    def leaves(self) -> frozenset[str]:
        """Names of the inputs that require grad and are leaves of the autograd graph, as parameters are."""
        pairs = zip(self.trace.inputs, self.inputs, strict=True)
        return frozenset(p.name for p, v in pairs if isinstance(v, torch.Tensor) and v.requires_grad and v.is_leaf)

    @property
    def has_subclasses(self) -> bool:
        """Whether inputs are of classes with a ``__torch_function__`` or a ``__torch_dispatch__``.

        The trace contains the calls of these methods.
        """
        kinds = {type(value) for value in self.inputs if isinstance(value, torch.Tensor)}
        return any(map(subclasses.has_torch_function, kinds))

    @property
    def families(self) -> tuple[frozenset[str], ...]:
        """Groups of names of inputs that are views of one tensor to autograd; only groups of several inputs."""
        names: dict[int, list[str]] = {}
        for proxy, value in zip(self.trace.inputs, self.inputs, strict=True):
            if isinstance(value, torch.Tensor) and is_recorded(value):
                names.setdefault(tensor_identity(base_of(value)), []).append(proxy.name)
        return tuple(frozenset(group) for group in names.values() if len(group) > 1)
