"""Models under PyTorch's wrappers for several devices, compiled. What is here is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_plugin_distributed.overlap_gradients import OverlapGradients
    from thunder_plugin_distributed.schedule_collectives import ScheduleCollectives

__all__ = ["OverlapGradients", "ScheduleCollectives"]

__getattr__ = lazy_imports(
    __name__, {"OverlapGradients": "overlap_gradients", "ScheduleCollectives": "schedule_collectives"}
)
