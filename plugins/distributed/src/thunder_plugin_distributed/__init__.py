"""Compile models under PyTorch's wrappers for several devices. Names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_plugin_distributed.agreement import Agreement
    from thunder_plugin_distributed.bucket_collectives import BucketCollectives
    from thunder_plugin_distributed.overlap_gradients import OverlapGradients
    from thunder_plugin_distributed.regather_parameters import RegatherParameters
    from thunder_plugin_distributed.schedule_collectives import ScheduleCollectives

__all__ = ["Agreement", "BucketCollectives", "OverlapGradients", "RegatherParameters", "ScheduleCollectives"]

__getattr__ = lazy_imports(
    __name__,
    {
        "Agreement": "agreement",
        "BucketCollectives": "bucket_collectives",
        "OverlapGradients": "overlap_gradients",
        "RegatherParameters": "regather_parameters",
        "ScheduleCollectives": "schedule_collectives",
    },
)
