"""The results of a graph: new tensors for each replay, over the same memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder_core.executors.states import ReplayableState
from thunder_plugin_cudagraphs.backend import Backend, Layout
from thunder_plugin_cudagraphs.buffers import copy_all
from thunder_plugin_cudagraphs.errors import CannotBeCaptured
from thunder_plugin_cudagraphs.memory import Held, Pool
from thunder_plugin_cudagraphs.output_group import OutputGroup

Argument = tuple[int, Layout]
"""Position of an input, and the layout of the tensor that it was captured with."""


@dataclass(frozen=True, slots=True)
class _View:
    """A result that is a view of an input: its offset from that of the input, in elements."""

    position: int
    input: int
    layout: Layout
    shift: int
    requires_grad: bool

    def of(self, value: torch.Tensor) -> torch.Tensor:
        layout = self.layout
        shown = value if self.requires_grad else value.detach()
        return shown.as_strided(layout.size, layout.stride, value.storage_offset() + self.shift)


class Outputs:  # belongs to the graph, and lives as long
    """How the results of one graph are returned.

    Attributes:
        groups: the results by storage.
    """

    def __init__(self, count: int) -> None:
        self.groups: list[OutputGroup] = []
        self._count = count
        self._views: list[_View] = []
        self._constants: list[tuple[int, Any]] = []
        self._empty: list[tuple[int, Layout]] = []

    @staticmethod
    def of(
        values: Sequence[Any],
        arguments: Mapping[int, Argument],
        in_pool: Callable[[int], bool],
        saved: frozenset[int],
        copy_below: int,
        requiring: frozenset[int],
    ) -> Outputs:
        """The outputs of a captured program.

        Args:
            values: the results of the capture.
            arguments: the inputs that are not in the pool, by the address of their storage.
            in_pool: whether an address belongs to the pool.
            saved: positions of results that are saved for backward.
            copy_below: results of at most this many bytes are copied for the caller.
            requiring: positions of views of inputs that require grad, though nothing is differentiated.

        Raises:
            CannotBeCaptured: a result cannot be reconstructed after a replay.
        """
        outputs = Outputs(len(values))
        groups: dict[tuple[int, bool], OutputGroup] = {}
        for position, value in enumerate(values):
            if value is None:
                continue
            if isinstance(value, ReplayableState):
                outputs._constants.append((position, value))
                continue
            _check(value)
            storage = value.untyped_storage()
            start, layout = storage.data_ptr(), Layout.of(value)
            if not value.numel():
                outputs._empty.append((position, layout))
            elif start in arguments:
                source, argument = arguments[start]
                if layout.dtype is not argument.dtype:
                    raise CannotBeCaptured("a result views the memory of an input with another dtype")
                outputs._views.append(
                    _View(position, source, layout, layout.offset - argument.offset, position in requiring)
                )
            elif in_pool(start):
                is_saved = position in saved
                group = groups.setdefault((start, is_saved), OutputGroup(start, storage.nbytes(), is_saved))
                group.members.append((position, layout))
            else:
                outputs._constants.append((position, value))
        outputs.groups = list(groups.values())
        for group in outputs.groups:  # a write to a result must not reach what backward reads
            group.copied = not group.saved and (group.bytes_to_copy <= copy_below or (group.start, True) in groups)
        return outputs

    def own(self, values: Sequence[Any], pool: Pool) -> None:
        """Hold the captured tensors that backward reads, so that the allocator does not reuse their memory."""
        for group in self.groups:
            if group.saved:
                pool.own(values[group.members[0][0]], self)

    def collect(
        self, inputs: Sequence[Any], pool: Pool, backend: Backend, own: Sequence[Any] | None = None
    ) -> list[Any]:
        """The results of the replay that was queued last.

        Args:
            inputs: of the call.
            own: the captured tensors at the first replay: those that are not copied are returned themselves.
        """
        results: list[Any] = [None] * self._count
        targets: list[torch.Tensor] = []
        sources: list[torch.Tensor] = []
        for group in self.groups:
            if group.copied:
                group.copy(results, backend, targets, sources)
            elif own is None or group.saved:
                group.give(results, pool, backend)
            else:
                for position, _ in group.members:
                    results[position] = own[position]
                storage = results[group.members[0][0]].untyped_storage()
                pool.add(Held(storage, group.start, group.start + group.nbytes, group, True))
        for view in self._views:
            results[view.position] = view.of(inputs[view.input])
        for position, value in self._constants:
            results[position] = value
        for position, layout in self._empty:
            results[position] = torch.empty_strided(
                layout.size, layout.stride, dtype=layout.dtype, device=backend.device
            )
        copy_all(targets, sources)
        return results


def _check(value: Any) -> None:
    if type(value) is not torch.Tensor or value.layout is not torch.strided:
        raise CannotBeCaptured(f"a result is a {type(value).__name__}, which is not a plain tensor with one storage")
    if value.is_conj() or value.is_neg():
        raise CannotBeCaptured("a result is conjugated or negated lazily")
