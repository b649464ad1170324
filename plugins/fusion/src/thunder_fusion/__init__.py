"""Fusion: the base class of executors that compile regions of a trace, `FusionExecutor`.

An author implements ``can_fuse`` for one operation and ``fuse`` for one region; `FusionExecutor` derives the methods of
the core from them:

- ``partition``: each operation gets a level, at least as high as those of its dependencies, and higher behind an
  operation that is not fused. One level forms one region (`regions`). Operations that only outputs need, such as
  gradients of weights, move to the next region that reads the same storage (`levels`). Regions that equal those of
  other layers except for a few operations are split (`alignment`).
- ``compile_regions``: equal regions are compiled once (`compiled_regions`), by a key without names (`keys`), and stored
  on disk (`artifacts`). With ``compile="behind"`` other processes compile them while PyTorch's kernels run (`behind`).
"""

from thunder_fusion.executor import FusionExecutor

__all__ = ["FusionExecutor"]
