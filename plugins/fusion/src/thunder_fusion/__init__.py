"""Fusion: executors that compile regions of a trace derive from `FusionExecutor`."""

from thunder_fusion.executor import FusionExecutor

__all__ = ["FusionExecutor"]
