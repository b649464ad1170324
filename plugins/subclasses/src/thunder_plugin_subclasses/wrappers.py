"""The plugin's `TensorClasses`: records any class that declares its inner tensors by ``__tensor_flatten__``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from thunder_core.ir.proxy import Proxy
from thunder_core.pytorch_internals import DisableTorchFunction, DisableTorchFunctionSubclass
from thunder_frontend.observe.observer import Observer
from thunder_frontend.record.interceptions import intercepting
from thunder_frontend.record.open_trace import Region
from thunder_frontend.record.reconstruction import Reconstructor
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.tensor_classes import TensorClasses, WrapperCalls
from thunder_plugin_subclasses import calls
from thunder_plugin_subclasses.derivatives import record_derivatives, record_derivatives_of_region
from thunder_plugin_subclasses.reconstruction import rebuild
from thunder_plugin_subclasses.recording import Recording


class Wrappers(TensorClasses):
    """Wrapper subclasses with ``__tensor_flatten__`` and ``__tensor_unflatten__``."""

    name = "wrappers"

    @classmethod
    def from_options(cls, options: Any) -> Wrappers:
        """An instance; there are no options but `optional`."""
        return cls()

    def supports_class(self, kind: type) -> type:
        """All classes, so that a support of another plugin for a class or its bases takes precedence."""
        return torch.Tensor

    def start(self, recorder: Recorder, observer: Observer) -> WrapperCalls:
        return _Calls(Recording(recorder, observer))


class _Calls(WrapperCalls):
    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrappers: list[torch.Tensor]) -> Any:
        return calls.call(self._recording, func, args, kwargs, wrappers)

    def dispatch(self, func: Any, kinds: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return calls.dispatch(self._recording, func, kinds, args, kwargs)

    @contextmanager
    def in_checkpoint(self, region: Region) -> Iterator[None]:
        recording = self._recording
        first = len(recording.calls)
        recording.open_checkpoints += 1
        try:
            yield
            if len(recording.calls) > first:
                self._end_checkpoint(region, first)
        finally:
            recording.open_checkpoints -= 1

    def _end_checkpoint(self, region: Region, first: int) -> None:
        """Complete the ops of the calls of a region, from the call with the index ``first`` on."""
        self._recording.observer.pause()
        try:
            with DisableTorchFunction():
                record_derivatives_of_region(self._recording, region, first)
        finally:
            self._recording.observer.resume()

    def rebuild(self, reconstructor: Reconstructor, wrapper: torch.Tensor) -> str:
        return rebuild(self._recording, reconstructor, wrapper)

    def finish(self, outputs: list[Proxy]) -> None:
        if self._recording.calls:
            fake_mode = self._recording.recorder.tensors.fake_mode
            with intercepting(), fake_mode, DisableTorchFunctionSubclass():
                record_derivatives(self._recording, outputs)
