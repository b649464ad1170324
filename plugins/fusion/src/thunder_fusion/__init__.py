"""Fusion: the base class of executors that compile regions of a trace, `FusionExecutor`."""

from thunder_fusion.executor import FusionExecutor

__all__ = ["FusionExecutor"]
