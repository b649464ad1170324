"""The options of the transforms that follow the cost model, as configurations give them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt

from thunder_core.plugins import TransformOptions
from thunder_plugin_distributed.hardware import Hardware

Machine = Literal["h100", "h200"] | Hardware


class ScheduleOptions(TransformOptions):
    """Of the transform ``schedule_collectives``."""

    hardware: Machine = "h100"
    """The machine of the cost model: a name, or the fields of `thunder_plugin_distributed.hardware.Hardware`. It has to
    be the same on all ranks."""
    ahead: NonNegativeInt | None = None
    """Bytes of whole parameters that may be gathered ahead, before they are waited for. By default a quarter
    more than those of the largest gather of the program."""


class BucketOptions(TransformOptions):
    """Of the transform ``bucket_collectives``."""

    hardware: Machine = "h100"
    """The machine of the cost model, as for ``schedule_collectives``."""
    largest: NonNegativeInt = 32 << 20
    """Bytes of a whole bucket: gathered parameters, or gradients. Larger collectives stay alone."""


class RegatherOptions(TransformOptions):
    """Of the transform ``regather_parameters``."""

    memory_budget: NonNegativeInt = Field(examples=[8 << 30])
    """Bytes of whole parameters that are saved for backward instead of being gathered again, in the dtype that is
    gathered. All parameters of a gather count, also those that backward does not read, such as biases: what stays in
    memory is at most that. It has to be the same on all ranks."""
