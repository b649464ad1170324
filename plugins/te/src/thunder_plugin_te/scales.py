"""Delayed scales: the state of one layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from thunder_core.executors.states import ReplayableState
from thunder_plugin_te import formula, library
from thunder_plugin_te.operations import Parts
from thunder_plugin_te.options import TeOptions
from thunder_plugin_te.pytorch_internals import current_graph_task_id
from thunder_plugin_te.recipes import Format


class Scales:
    """The scales of some tensors with one format.

    The first cast of a tensor uses its current amax; Transformer Engine starts with a scale of 1, for which small
    gradients underflow.

    Attributes:
        scale: (tensors,), float32; None before the first cast.
        history: (steps, tensors), amax values, float32. The first entry is that of the current step.
    """

    def __init__(self, count: int, form: Format, options: TeOptions) -> None:
        self.form = form
        self.options = options
        self.scale: Tensor | None = None
        self.history: Tensor | None = None
        self._known = [False] * count
        self._views: list[tuple[Tensor, Tensor]] = []

    def quantize(self, index: int, matrix: Tensor, columns: bool) -> Parts:
        """Quantize the tensor with this index with its current scale, and record its amax."""
        if not self._known[index] and matrix.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("the first scales are created by a call outside of CUDA graphs")
        if self.scale is None:
            self._allocate(matrix.device)
        scale, amax = self._views[index]
        if not self._known[index]:
            scale.copy_(formula.scale_for(matrix.abs().amax().float(), self.form) / 2**self.options.margin)
            self._known[index] = True
        return library.quantize_delayed(matrix, scale, amax, self.form, columns)

    def state_dict(self) -> dict[str, Tensor]:
        """Both tensors, if all scales are known."""
        if self.scale is None or self.history is None or not all(self._known):
            return {}
        return {"scale": self.scale, "amax_history": self.history}

    def load_state_dict(self, state: Mapping[str, Tensor], what: str) -> None:
        """Copy both tensors into the existing memory.

        Raises:
            ValueError: one of them is missing, or their shapes differ.
        """
        if not state:
            return
        count, steps_ = len(self._known), self.options.amax_history
        shapes = {"scale": (count,), "amax_history": (steps_, count)}
        for name in shapes:
            if name not in state:
                raise ValueError(f"{what} has no {name}; it has {', '.join(state)}")
        steps = len(state["amax_history"])
        if steps != steps_:
            raise ValueError(f"{what} has {steps} steps of history, and amax_history is {steps_}: set it to {steps}")
        for name, shape in shapes.items():
            if state[name].shape != shape:
                raise ValueError(f"{what}: {name} has the shape {tuple(state[name].shape)}, not {shape}")
        if self.scale is None or self.history is None:
            self._allocate(state["scale"].device)
        assert self.scale is not None
        assert self.history is not None
        self.scale.copy_(state["scale"])
        self.history.copy_(state["amax_history"])
        self._known = [True] * len(self._known)

    def move_to(self, device: torch.device) -> None:
        """Move scales that were loaded on another device to that of the layer."""
        if self.scale is not None and self.scale.device != device:
            state = self.state_dict()
            self.scale = None
            self._allocate(device)
            self.load_state_dict(state, "")

    def _allocate(self, device: torch.device) -> None:
        count = len(self._known)
        with torch.inference_mode(False):
            self.scale = torch.ones(count, device=device)
            self.history = torch.zeros(self.options.amax_history, count, device=device)
        self._views = [(self.scale[i : i + 1], self.history[0, i : i + 1]) for i in range(count)]


@dataclass(eq=False)
class LayerScales(ReplayableState):
    """The state of one layer.

    New scales are computed once per backward, for all layers in one call, when the backward of the layer that ran first
    in forward has finished, which is the last in backward. Layers whose backward did not run keep their scales. If
    forward is captured, the order is that of the capture; a captured backward computes the scales itself.

    Attributes:
        site: its name.
        forward: scales of input and weight.
        backward: scales of the gradient of the result.
        companions: the layers of the whole program. The first holds the state that they share:
        order: the layers whose forward ran since the last backward;
        first: the first of these, also afterwards;
        task: the autograd engine's ID of the backward that last updated the scales.
    """

    site: str
    options: TeOptions
    gradient_format: Format
    companions: list[LayerScales] = field(default_factory=list)
    order: dict[LayerScales, None] = field(default_factory=dict)
    first: LayerScales | None = None
    task: int = -1
    finished: bool = False

    def __post_init__(self) -> None:
        self.forward = Scales(2, "e4m3", self.options)
        self.backward = Scales(1, self.gradient_format, self.options)

    def joins(self, companions: list[Any]) -> None:
        """Add the layer to those of the program; called once."""
        self.companions = companions

    def begin(self, device: torch.device) -> None:
        """Record that the layer's forward runs."""
        self.forward.move_to(device)
        self.backward.move_to(device)
        leader = self.companions[0]
        if self in leader.order:  # the previous step had no backward, or an incomplete one
            leader.order.clear()
        if not leader.order:
            leader.first = self
        leader.order[self] = None

    def finish(self) -> None:
        """Record that the layer's backward ran."""
        self.finished = True
        leader, task = self.companions[0], current_graph_task_id()
        # One backward of two forwards counts once. Outside of autograd's engine only the order determines that.
        again = leader.task == task if task >= 0 else not leader.order
        if leader.first is self and not again:
            leader.order.clear()
            leader.task = task
            update([one for one in self.companions if one.finished])

    def state_dict(self) -> dict[str, Tensor]:
        """The known scales and histories, by name."""
        both = {"forward": self.forward, "backward": self.backward}
        return {f"{way}_{name}": value for way, scales_ in both.items() for name, value in scales_.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load the result of `state_dict`.

        Raises:
            ValueError: the length of the history differs from the option.
        """
        for way, scales_ in (("forward", self.forward), ("backward", self.backward)):
            part = {name.removeprefix(f"{way}_"): value for name, value in state.items() if name.startswith(way)}
            scales_.load_state_dict(part, f"the {way} state of {self.site}")


def update(layers: Iterable[LayerScales]) -> None:
    """Compute new scales from the amax values of the step that ends, in one call per device and format."""
    groups: dict[tuple[torch.device, Format], list[Scales]] = {}
    for layer in layers:
        layer.finished = False
        for scales_ in (layer.forward, layer.backward):
            if scales_.scale is not None:
                groups.setdefault((scales_.scale.device, scales_.form), []).append(scales_)
    for (_, form), group in groups.items():
        options = group[0].options
        histories = [scales_.history for scales_ in group if scales_.history is not None]
        scales = [scales_.scale for scales_ in group if scales_.scale is not None]
        library.update_scales(histories, scales, options.amax_algorithm, form, options.margin)
