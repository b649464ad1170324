"""The state of wrapper subclasses in one recording of a program."""

from __future__ import annotations

from typing import Any

import torch

from thunder_core.checks.source import ConstantSource
from thunder_core.ir.proxy import TensorProxy
from thunder_frontend.observe.observer import Observer
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.traced_tensor import Variable
from thunder_plugin_subclasses.gradient_boundary import GradientLayout
from thunder_plugin_subclasses.guards import DTensorRulesGuard, dtensor_rules


class Recording:
    """The wrappers of a program, and its calls whose derivatives are to be recorded.

    Args:
        recorder, observer: the recorder and the observer of the program, before it runs.

    Attributes:
        existing: the wrappers that existed before the program and that it has used, by id.
        carriers: for inner tensors of wrappers that require grad, the values of the trace that carry the gradients.
        calls: the calls whose derivatives are to be recorded, in order.
        open_checkpoints: the number of checkpoint regions that are being recorded.
    """

    def __init__(self, recorder: Recorder, observer: Observer) -> None:
        self.recorder = recorder
        self.observer = observer
        self.existing: dict[int, torch.Tensor] = {}
        self.carriers: dict[Variable, TensorProxy] = {}
        self.calls: list[Any] = []
        self.open_checkpoints = 0
        self._layouts: dict[tuple[Variable, ...], GradientLayout] = {}
        self._dtensor_rules: tuple[Any, ...] | None = dtensor_rules()

    def gradient_layout(self, inner: tuple[Variable, ...]) -> GradientLayout:
        """The layout of the gradient, at the boundary of the program, of the wrapper with these inner tensors."""
        return self._layouts.setdefault(inner, GradientLayout())

    def used_dtensor(self, kind: type) -> None:
        """Guard DTensor's rules, at the first operator with an argument of the DTensor class ``kind``."""
        if self._dtensor_rules is not None:
            self.observer.add_guard(DTensorRulesGuard(ConstantSource(kind), self._dtensor_rules))
            self._dtensor_rules = None
