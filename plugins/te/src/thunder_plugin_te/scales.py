"""Scales of the past: the state of one layer under the recipe of delayed scaling."""

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
    """Of some tensors with one format.

    The first conversion of a tensor takes its own largest value; Transformer Engine begins with a scale of 1, with
    which small gradients vanish.

    Attributes:
        scale: (tensors,), float32; None before the first conversion.
        history: (steps, tensors), largest absolute values, float32. The first entry is of the current step.
    """

    def __init__(self, count: int, form: Format, options: TeOptions) -> None:
        self.form = form
        self.options = options
        self.scale: Tensor | None = None
        self.history: Tensor | None = None
        self._known = [False] * count
        self._views: list[tuple[Tensor, Tensor]] = []

    def quantize(self, index: int, matrix: Tensor, columns: bool) -> Parts:
        """The tensor of that number by its present scale; its largest value is noted."""
        if not self._known[index] and matrix.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("the first scales are made by a call outside of CUDA graphs")
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
        """Take both tensors over, into the memory that is in use.

        Raises:
            ValueError: one of them is missing, or they are not of as many tensors and steps.
        """
        if not state:
            return
        count, own = len(self._known), self.options.amax_history
        shapes = {"scale": (count,), "amax_history": (own, count)}
        for name in shapes:
            if name not in state:
                raise ValueError(f"{what} has no {name}; it has {', '.join(state)}")
        steps = len(state["amax_history"])
        if steps != own:
            raise ValueError(f"{what} has {steps} steps of history, and amax_history is {own}: set it to {steps}")
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
        """Scales that were loaded on another device go to that of the layer."""
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

    Scales are renewed once for each backward, for all layers in one call, when the layer that ran first in forward has
    finished, which is the last in backward. Layers whose backward did not run keep theirs. Of a captured forward, the
    order is that of its capture; a captured backward renews the scales itself.

    Attributes:
        site: what it is called.
        forward: of input and weight.
        backward: of the gradient of the result.
        companions: those of the whole program; the first knows what the steps have in common:
        order: the layers that ran forward since the last backward;
        first: the first of them, also after that;
        task: the autograd engine's number of the backward that renewed the scales last.
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
        """Called once, with the layers of the program so far; later ones join the same list."""
        self.companions = companions

    def begin(self, device: torch.device) -> None:
        """The layer runs forward."""
        self.forward.move_to(device)
        self.backward.move_to(device)
        leader = self.companions[0]
        if self in leader.order:  # the step before had no backward, or not to its end
            leader.order.clear()
        if not leader.order:
            leader.first = self
        leader.order[self] = None

    def finish(self) -> None:
        """The layer ran backward."""
        self.finished = True
        leader, task = self.companions[0], current_graph_task_id()
        # one backward of two forwards counts once; outside of autograd's engine only the order tells that
        again = leader.task == task if task >= 0 else not leader.order
        if leader.first is self and not again:
            leader.order.clear()
            leader.task = task
            update([one for one in self.companions if one.finished])

    def state_dict(self) -> dict[str, Tensor]:
        """Scales and histories that are known, by name."""
        both = {"forward": self.forward, "backward": self.backward}
        return {f"{way}_{name}": value for way, own in both.items() for name, value in own.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state_dict` returned.

        Raises:
            ValueError: the length of the history is another than the options say.
        """
        for way, own in (("forward", self.forward), ("backward", self.backward)):
            part = {name.removeprefix(f"{way}_"): value for name, value in state.items() if name.startswith(way)}
            own.load_state_dict(part, f"the {way} state of {self.site}")


def update(layers: Iterable[LayerScales]) -> None:
    """Make new scales of what was noted in the step that ends, in one call for each device and format."""
    groups: dict[tuple[torch.device, Format], list[Scales]] = {}
    for layer in layers:
        layer.finished = False
        for own in (layer.forward, layer.backward):
            if own.scale is not None:
                groups.setdefault((own.scale.device, own.form), []).append(own)
    for (_, form), group in groups.items():
        options = group[0].options
        histories = [own.history for own in group if own.history is not None]
        scales = [own.scale for own in group if own.scale is not None]
        library.update_scales(histories, scales, options.amax_algorithm, form, options.margin)
