"""The options of the transforms that follow the cost model, as configurations give them.

Their fields are described by arguments instead of docstrings, because pydantic takes 40 ms to read the first docstring
of a field, and this module is imported whenever a program is compiled.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, NonNegativeInt

from thunder_core.plugins import TransformOptions
from thunder_plugin_distributed.hardware import Hardware

Machine = Literal["h100", "h200"] | Hardware


class ScheduleOptions(TransformOptions):
    """Of the transform ``schedule_collectives``."""

    model_config = ConfigDict(use_attribute_docstrings=False)

    hardware: Machine = Field(
        default="h100",
        description="The machine of the cost model: a name, or the fields of "
        "`thunder_plugin_distributed.hardware.Hardware`. It has to be the same on all ranks.",
    )
    ahead: NonNegativeInt | None = Field(
        default=None,
        description="Bytes of whole parameters that may be gathered ahead, before they are waited for. By default a "
        "quarter more than those of the largest gather of the program.",
    )


class BucketOptions(TransformOptions):
    """Of the transform ``bucket_collectives``."""

    model_config = ConfigDict(use_attribute_docstrings=False)

    hardware: Machine = Field(
        default="h100", description="The machine of the cost model, as for ``schedule_collectives``."
    )
    largest: NonNegativeInt = Field(
        default=32 << 20,
        description="Bytes of a whole bucket: gathered parameters, or gradients. Larger collectives stay alone.",
    )


class RegatherOptions(TransformOptions):
    """Of the transform ``regather_parameters``."""

    model_config = ConfigDict(use_attribute_docstrings=False)

    memory_budget: NonNegativeInt = Field(
        examples=[8 << 30],
        description="Bytes of whole parameters that are saved for backward instead of being gathered again, in the "
        "dtype that is gathered. All parameters of a gather count, also those that backward does not read, such as "
        "biases: what stays in memory is at most that. It has to be the same on all ranks.",
    )
