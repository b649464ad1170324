"""Compile models under PyTorch's wrappers for several devices. Names are imported when they are first used.

The core knows which operators communicate (`thunder_core.symbols.channels`) and keeps their order within a process
group. This plugin records them:

- `fully_shard`: interceptions of the hooks of ``fully_shard``. `fully_shard_plan` has its settings, and
  `fully_shard_guard` the guard on them. A sharded parameter is the result of a gather, whose derivative reduces and
  scatters the gradient (`sharded_parameters`, `shards`, `sharding`); gradients without communication are in
  `accumulated_gradients` and `partial_gradients`.
- `data_parallel`: DistributedDataParallel, with averages of gradients after backward (`data_parallel_gradients`) or in
  it (`overlap_gradients`).
- `recording`: collectives of the program itself; one op starts each, and one waits.
- Transforms: `schedule_collectives` starts collectives earlier and waits later (`gathers`, `early_reductions`,
  `compute_behind`), `bucket_collectives` merges small collectives, `merge_collectives` those whose results are added,
  `regather_parameters` selects the gathered parameters that are saved for backward. They share the cost
  model of `hardware`, which is equal on all ranks.
- `agreement`: compares the collectives of ranks before the first run of a program.
- `simulation`: the command ``thunder simulate``, one rank of a fake process group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_plugin_distributed.agreement import Agreement
    from thunder_plugin_distributed.bucket_collectives import BucketCollectives
    from thunder_plugin_distributed.merge_collectives import MergeCollectives
    from thunder_plugin_distributed.overlap_gradients import OverlapGradients
    from thunder_plugin_distributed.regather_parameters import RegatherParameters
    from thunder_plugin_distributed.schedule_collectives import ScheduleCollectives

__all__ = [
    "Agreement",
    "BucketCollectives",
    "MergeCollectives",
    "OverlapGradients",
    "RegatherParameters",
    "ScheduleCollectives",
]

__getattr__ = lazy_imports(
    __name__,
    {
        "Agreement": "agreement",
        "BucketCollectives": "bucket_collectives",
        "MergeCollectives": "merge_collectives",
        "OverlapGradients": "overlap_gradients",
        "RegatherParameters": "regather_parameters",
        "ScheduleCollectives": "schedule_collectives",
    },
)
