"""Fusion: executors that compile regions of a trace derive from `FusionExecutor`."""

from thunder_core.fusion.executor import FusionExecutor

__all__ = ["FusionExecutor"]
