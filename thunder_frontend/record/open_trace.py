"""The trace of a program that is still being recorded, and regions of it, the bodies of higher-order symbols."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch

from thunder_core.ir.bound_symbol import BoundSymbol, free_values, written_storages
from thunder_core.ir.context import Context, attention_kernels, current_context
from thunder_core.ir.effects import PURE, Effects, joined
from thunder_core.ir.proxy import NumberProxy, Proxy, TensorProxy, storages_of
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.pytorch_internals import storage_identity
from thunder_core.recording.autocast_regions import AutocastRegions
from thunder_core.recording.value_names import ValueNames
from thunder_core.symbols.functions import CLEAR_CACHE
from thunder_core.tracing.frames import user_location

if TYPE_CHECKING:
    from thunder_frontend.record.tensors import Tensors


class Storages:
    """Gives each storage a number, and maps addresses of fakes' storages to these numbers.

    Attributes:
        constant: storages whose contents depend on no input and on no random state.
        written: storages that a call wrote.
        of_inference: storages of inference tensors, which PyTorch creates in inference mode.
        entangled: storages with views at data-dependent positions, so that nothing may write to them.
        in_sparse: storages of which a sparse tensor consists.
    """

    def __init__(self) -> None:
        self.constant: set[int] = set()
        self.written: set[int] = set()
        self.of_inference: set[int] = set()
        self.entangled: set[int] = set()
        self.in_sparse: set[int] = set()
        self._next = 0
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []

    def new(self, fake: torch.Tensor | None = None, *, of_inference: bool | None = None) -> int:
        """A new number, bound to the storage of ``fake`` if given.

        Args:
            of_inference: whether it is the storage of an inference tensor; by default whether inference mode is on.
        """
        number = self._next
        self._next += 1
        if torch.is_inference_mode_enabled() if of_inference is None else of_inference:
            self.of_inference.add(number)
        if fake is not None and fake.layout is torch.strided:
            self.bind(fake, number)
        return number

    def bind(self, fake: torch.Tensor, number: int) -> None:
        """Store the number of a fake's storage, and hold the storage so that no other one gets its address."""
        storage = fake.untyped_storage()
        self._numbers[storage_identity(storage)] = number
        self._alive.append(storage)

    def number(self, address: int) -> int | None:
        """The number of the storage at an address (of `storage_address`); None for an unknown one."""
        return self._numbers.get(address)


_MAY_ATTEND: Final = frozenset({Tag.ATTENTION, Tag.OPAQUE})


class OpenTrace:
    """A trace to which ops are added, in the order in which the program makes the calls.

    Attributes:
        names: the names of its values.
        storages: the storages of its tensors.
        ops: the bound symbols so far (of the innermost region while a higher-order call is recorded).
        outer_ops: the ops of the program and of the regions around the innermost one, the outermost first.
        ambient: the modes that the whole program runs under.
        kernels: the attention kernels that the caller of the program allows.
        stdout, stderr: the standard streams before the program ran.
        autocast_regions: the regions of autocast that the program has left.
        is_region_cut: whether an exception left a region, or a user's function that is one op: the trace lacks the
            calls before the exception.
    """

    def __init__(self) -> None:
        self.names = ValueNames()
        self.storages = Storages()
        self.ops: list[BoundSymbol] = []
        self.outer_ops: list[list[BoundSymbol]] = []
        self.ambient = current_context()
        self.kernels = attention_kernels()
        self._warning_filters = warnings.filters, tuple(warnings.filters)
        self.stdout, self.stderr = sys.stdout, sys.stderr
        self.autocast_regions = AutocastRegions()
        self.is_region_cut = False

    def outwards(self) -> list[list[BoundSymbol]]:
        """The ops of the innermost region, of the regions around it, and of the program, in this order."""
        return [self.ops, *reversed(self.outer_ops)]

    def all_ops(self) -> list[BoundSymbol]:
        """The bound symbols so far: of the program, then of the open regions, the innermost last."""
        return [op for ops in (*self.outer_ops, self.ops) for op in ops]

    def context_of(self, symbol: Symbol) -> Context:
        """The current modes for a call, with the attention kernels if the program selected these."""
        context = current_context()
        if symbol.tags & _MAY_ATTEND and (kernels := attention_kernels()) != self.kernels:
            return replace(context, attention=kernels)
        return context

    def has_changed_warning_filters(self) -> bool:
        """Whether the program has changed or replaced `warnings.filters`."""
        filters, content = self._warning_filters
        return warnings.filters is not filters or tuple(filters) != content

    def relative_context(self, context: Context) -> Context | None:
        """The modes that an op stores: None if they are those of the whole program."""
        return None if context is self.ambient or context == self.ambient else context

    def write(
        self,
        symbol: Symbol,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any = None,
        effects: Effects = PURE,
    ) -> None:
        """Append the op of a call, under the current modes.

        Args:
            args, kwargs, output: with proxies and literals, as in a `BoundSymbol`.
        """
        context = self.relative_context(current_context())
        self.ops.append(BoundSymbol(symbol, args, kwargs, output, effects, context, user_location()))

    def write_number(
        self, symbol: Symbol, args: tuple[Any, ...], kind: type, kwargs: dict[str, Any] | None = None
    ) -> NumberProxy:
        """Append the op of a call that returns a number of the type ``kind``, and return the number."""
        number = NumberProxy(self.names.intermediate(), kind)
        self.write(symbol, args, kwargs or {}, number)
        return number


class Region:
    """Ops that are recorded separately from the ops around, to become the body of a higher-order symbol.

    Attributes:
        trace: the trace of the program.
        tensors: the tensor objects of the program.
        ops: the ops of the region.
    """

    def __init__(self, trace: OpenTrace, tensors: Tensors) -> None:
        self.trace = trace
        self.tensors = tensors
        self.ops: list[BoundSymbol] = []
        self.first_created = len(tensors.created)
        self.first_renamed = len(tensors.renamed)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record ops in this region for the duration."""
        trace = self.trace
        trace.outer_ops.append(trace.ops)
        trace.ops = self.ops
        try:
            yield
        except BaseException:
            trace.is_region_cut = True
            raise
        finally:
            trace.ops = trace.outer_ops.pop()

    def live_tensors(self) -> list[torch.Tensor]:
        """Traced tensors that were created in the region and are still referenced."""
        return self.tensors.alive(self.first_created)

    def defined(self) -> set[str]:
        return {proxy.name for op in self.ops for proxy in op.outputs()}

    def free(self) -> tuple[Proxy, ...]:
        """The values that are used but not defined in the region, in order of first use."""
        return tuple(free_values(self.ops).values())

    def effects(self) -> Effects:
        """The union of the ops' effects that are visible outside of the region."""
        storages = written_storages(self.ops)
        mutates = tuple(p.name for p in self.free() if isinstance(p, TensorProxy) and p.storage in storages)
        return joined([op.effects for op in self.ops if op.symbol is not CLEAR_CACHE], mutates)

    def only_communicates(self) -> bool:
        """Whether the only visible effects of the ops are communications, which write no tensors from outside."""
        return not any(op.effects.external or (op.effects.channels and op.effects.mutates) for op in self.ops)

    def leave_writes(self) -> None:
        """Move all ops up to the last one that writes a tensor from outside to the ops around the region."""
        count = max(index for index, op in enumerate(self.ops) if self._writes_outside(op)) + 1
        self.trace.ops += self.ops[:count]
        del self.ops[:count]

    def _writes_outside(self, op: BoundSymbol) -> bool:
        return not storages_of(self.free()).isdisjoint(written_storages([op]))

    def restore_names(self) -> None:
        """Restore the outer names of tensors from outside that were written inside: the storage is the same."""
        defined = self.defined()
        for variable, old in reversed(self.tensors.renamed[self.first_renamed :]):
            if old.name not in defined and variable.proxy.name in defined:
                variable.proxy = replace(variable.proxy, name=old.name, requires_grad=old.requires_grad)
        del self.tensors.renamed[self.first_renamed :]  # names of this region are undefined outside of it

    def body(self, stem: str, inputs: tuple[Proxy, ...], output: Any) -> Trace:
        """The region as a trace."""
        name = self.trace.names.for_input(stem)
        context, ambient = current_context(), self.trace.ambient
        ops = [_relative(op, ambient, context) for op in self.ops]
        return Trace(name, inputs, tuple(ops), output, Stage.ACQUIRED, "acquisition", context)


def _relative(op: BoundSymbol, ambient: Context, context: Context) -> BoundSymbol:
    """An op recorded under the modes ``ambient``, converted for a trace under the modes ``context``."""
    absolute = op.context or ambient
    return replace(op, context=None if absolute == context else absolute)


def producer(ops: Sequence[BoundSymbol], proxy: TensorProxy) -> int | None:
    """The index of the op that computed a tensor's value; None if another op wrote to its storage since."""
    for index in range(len(ops) - 1, -1, -1):
        if any(output.name == proxy.name for output in ops[index].outputs()):
            return index
        if proxy.storage in written_storages([ops[index]]):
            return None
    return None


def slice_of(ops: Sequence[BoundSymbol], storages: set[int]) -> list[BoundSymbol]:
    """The ops that define or write any of ``storages``; the storages that these ops read are added to the set."""
    selected: list[BoundSymbol] = []
    for op in reversed(ops):
        if not storages.isdisjoint(written_storages([op]) | storages_of(op.outputs())):
            selected.append(op)
            storages |= storages_of(op.inputs())
    selected.reverse()
    return selected


def is_random(ops: Sequence[BoundSymbol], inputs: Iterable[Proxy], storages: Iterable[int]) -> bool:
    """Whether random numbers of the program decide what ``storages`` contain, and none of its inputs does."""
    wanted = set(storages)
    deciding = slice_of(ops, wanted)
    computed = storages_of(proxy for op in deciding for proxy in op.outputs())
    return any(op.effects.random for op in deciding) and wanted <= computed - storages_of(inputs)
