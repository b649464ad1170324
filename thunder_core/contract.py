"""The contract of front ends: what the runtime asks them for, and what they return.

A front end records the call of a program as a trace, with the guards under which the trace is the program, and the
reconstruction of the program's result. Nothing below this contract knows how a program was recorded, and no front end
knows how the trace is compiled. A plugin offers a front end by the hook ``thunder_front_ends`` (docs/plugins.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import torch

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import VALUE
from thunder_core.checks.global_state import GlobalState
from thunder_core.checks.guard import Guard
from thunder_core.checks.shared_memory import base_of, is_recorded
from thunder_core.checks.sizes import NumberFacts, SizedInput, VaryingNumber
from thunder_core.checks.source import ConstantSource, Source
from thunder_core.checks.varying_sizes import VaryingSizes
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import NumberProxy
from thunder_core.ir.size import as_found, hint_of
from thunder_core.ir.trace import Trace
from thunder_core.pytorch_internals import tensor_identity
from thunder_core.tracing.sizes import Sizes


@dataclass(frozen=True)
class AssumedValues:
    """Values of tensors that a program's Python reads.

    Attributes:
        values: the known values in the order in which they are read, each with the name of its reader.
        numbers: whether numbers that the program reads may stay numbers of the trace. ``values`` come from a recording
            with the same setting.
    """

    values: tuple[tuple[str, Any], ...] = ()
    numbers: bool = True


@dataclass(frozen=True)
class Request:
    """What the runtime knows of a program, and asks of its recording. A front end may ignore all of it.

    Attributes:
        varying: the sizes and numbers of inputs that should be symbols; None: all are constants.
        assumed_values: the values of tensors that the program's Python is known to read. The recording uses these
            first, then the values of this call, and has ops that raise `thunder_core.errors.WrongGuess` in a run with
            other values. None: a program that reads values is refused.
        defines_sizes: whether sizes that depend on data may be symbols.
        wrapper_classes: the support of wrapper subclasses that the configuration names, an object that its plugin and
            the front end agree about; None for none.
    """

    varying: VaryingSizes | None = None
    assumed_values: AssumedValues | None = None
    defines_sizes: bool = True
    wrapper_classes: Any = None


@dataclass(frozen=True)
class Reconstruction:
    """Python statements over ``o0``, ``o1``, ... (the outputs of the trace), sizes, ``args`` and ``kwargs``.

    Attributes:
        statements: statements that create the needed objects and perform the writes.
        result: the expression for the program's result.
        namespace: objects that the statements refer to by name.
        writes: number of writes to Python objects.
        uncopied: classes of objects that cannot be copied: only this run may return them.
    """

    statements: tuple[str, ...]
    result: str
    namespace: Mapping[str, Any] = field(default_factory=dict)
    writes: int = 0
    uncopied: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecordedSizes:
    """The sizes and numbers of a recording that vary between calls.

    Attributes:
        symbols: the symbols in the trace; None if all sizes are constants.
        inputs: the inputs that define symbols, in order.
        facts: the conditions on floats that vary.
        defined: the symbols for sizes that ops of the program define. Their values are the last outputs of the trace.
        why_constant: why sizes that should vary are constants; empty otherwise.
        constant_floats: the paths of floats that should vary and are constants, each with the line that needs it.
    """

    symbols: Sizes | None = None
    inputs: tuple[SizedInput | VaryingNumber, ...] = ()
    facts: NumberFacts = field(default_factory=NumberFacts)
    defined: tuple[str, ...] = ()
    why_constant: str = ""
    constant_floats: Mapping[str, SourceLocation | None] = field(default_factory=dict)


CONSTANT_SIZES: Final = "all sizes are constants"
"""The change of the last retry of a program with symbolic sizes."""


@dataclass(frozen=True)
class Retry:
    """A second attempt of a compilation, by the front end or by the runtime, in another way.

    Attributes:
        change: what the attempt does in another way than the one before.
        reason: why that one failed, in one line.
    """

    change: str
    reason: str

    def __str__(self) -> str:
        return f"{self.change}, because {self.reason}"


@dataclass(frozen=True)
class Recording:
    """A recorded call of a program.

    Attributes:
        trace: the program; its output is the flat tuple of tensors that ``result`` uses.
        sources: the access path by which the prologue reads each input of the trace.
        inputs: the objects at these paths in the recorded call.
        guards: the conditions on Python objects under which the trace is the program. The runtime adds those on the
            metadata of inputs.
        state: PyTorch's modes and flags when the program was recorded.
        result: the reconstruction of the program's result, and its writes to Python objects.
        raised: the exception with which the program ends instead of a result; ``result`` raises it.
        sizes: the sizes and numbers that vary between calls.
        random_states: random generators outside of PyTorch that the program consumed.
        saw_strides: the program read strides, so that they are guarded even where they decide nothing else.
        traces_numbers: whether numbers that the program reads from tensors are numbers of the trace.
        calls_classes: whether the trace contains calls of ``__torch_function__`` or ``__torch_dispatch__`` of the
            inputs' classes, so that runs must not call these methods again.
        checked_by_caller: the caller checks everything that the program read, and the metadata of its inputs, before
            each call, as Dynamo does. Whether inputs share storage is still checked where the program writes to them.
        retries: the attempts after the first one, in order, for the report.
        gradients: for programs that run autograd, the inputs that are leaves of its graph, require grad and have no
            hooks, all of which is guarded. The value is the name of the input that is ``grad`` of the tensor when the
            program begins; None if that is None; empty if the program assigns ``grad`` before it runs autograd.
    """

    trace: Trace
    sources: tuple[Source, ...]
    inputs: tuple[Any, ...]
    guards: tuple[Guard, ...]
    state: GlobalState
    result: Reconstruction
    raised: BaseException | None = None
    sizes: RecordedSizes = field(default_factory=RecordedSizes)
    random_states: tuple[str, ...] = ()
    saw_strides: bool = False
    traces_numbers: bool = True
    calls_classes: bool = False
    checked_by_caller: bool = False
    retries: tuple[Retry, ...] = ()
    gradients: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def varying_floats(self) -> list[str]:
        """The access paths of floats that vary between calls."""
        pairs = zip(self.trace.inputs, self.sources, strict=True)
        return [source.describe() for proxy, source in pairs if isinstance(proxy, NumberProxy)]

    @property
    def defined_outputs(self) -> dict[str, int]:
        """The symbols that ops define, each with its index among the outputs."""
        places = {proxy.name: place for place, proxy in enumerate(self.trace.output)}
        return {name: places[name] for name in self.sizes.defined}

    def with_sizes_as_found(self) -> Recording:
        """The same program, with its sizes simplified by the facts recorded about the symbols."""
        if self.sizes.symbols is None or not self.sizes.symbols.fact_count:
            return self
        return replace(self, trace=self.trace.with_sizes(as_found, checks=False))

    def with_constant_sizes(self, reason: str) -> Recording:
        """The same program, specialized to the sizes that it was recorded with."""
        assert self.sizes.symbols is not None
        numbers = [one for one in self.sizes.inputs if type(one) is VaryingNumber]
        guards = [Check(number.source, VALUE, hint_of(number.symbol)) for number in numbers]
        facts = self.sizes.facts.with_constants(self.sizes.symbols.hints)
        sizes = replace(self.sizes, symbols=None, inputs=(), facts=facts, why_constant=reason)
        return replace(self, trace=self.trace.with_constant_sizes(), guards=(*self.guards, *guards), sizes=sizes)

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
    def families(self) -> tuple[frozenset[str], ...]:
        """Groups of names of inputs that are views of one tensor to autograd; only groups of several inputs."""
        names: dict[int, list[str]] = {}
        for proxy, value in zip(self.trace.inputs, self.inputs, strict=True):
            if isinstance(value, torch.Tensor) and is_recorded(value):
                names.setdefault(tensor_identity(base_of(value)), []).append(proxy.name)
        return tuple(frozenset(group) for group in names.values() if len(group) > 1)


class FrontEnd(Protocol):
    """Records programs."""

    def record(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], request: Request
    ) -> Recording:
        """Record ``function(*args, **kwargs)``, the call that is compiled.

        Nothing of the program has run when this returns or raises: its writes are undone, PyTorch's modes are those of
        before.

        Raises:
            RunEagerly: this call has to run in eager PyTorch; the reason is in the report.
            ThunderError: the program cannot be recorded. The message names the user's line, and what to do.
            Exception: of a call that runs eagerly in this case, too. An exception that the program raises is recorded.
        """
