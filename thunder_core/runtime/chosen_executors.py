"""Executors by the device of a program, where none were named."""

from __future__ import annotations

from collections.abc import Iterator

from thunder_core.config.by_device import with_executors_for
from thunder_core.config.settings import Settings
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.report.preset_choice import PresetChoice


def with_executors(settings: Settings, trace: Trace) -> tuple[Settings, PresetChoice | None]:
    """The settings for this program, and what was chosen; nothing is where the configuration names executors."""
    if settings.config.executors is not None:
        return settings, None
    device = device_of(trace)
    chosen, preset = with_executors_for(device, settings)
    if not preset:
        return settings, None
    names = tuple([executor.name for executor in chosen.executors])
    return chosen, PresetChoice(preset, device, names, chosen.left_out[len(settings.left_out) :])


def device_of(trace: Trace) -> str:
    """The type of device that a program runs on: that of its first tensor on an accelerator, else ``cpu``."""
    return next((device for device in _devices(trace) if device not in ("cpu", "meta")), "cpu")


def _devices(trace: Trace) -> Iterator[str]:
    for proxy in trace.inputs:
        if isinstance(proxy, TensorProxy):
            yield proxy.device.type
    for line in trace.symbols:
        for result in line.outputs():
            if isinstance(result, TensorProxy):
                yield result.device.type
