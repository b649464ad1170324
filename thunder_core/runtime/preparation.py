"""What happens to a functional program before it is differentiated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from thunder_core.executors.executor import Executor
from thunder_core.passes.assign_executors import RewriteClaims
from thunder_core.passes.assignment import Assignment
from thunder_core.passes.checkpoint_bodies import FunctionalBodies
from thunder_core.passes.functionalize import Functionalized
from thunder_core.passes.pass_manager import PassManager
from thunder_core.passes.patterns import RecognizeComposites
from thunder_core.passes.transform import Phase, Place
from thunder_core.runtime.configured_transforms import ConfiguredTransforms


def prepared(
    manager: PassManager,
    transforms: ConfiguredTransforms,
    functional: Functionalized,
    executors: Sequence[Executor],
    keep: frozenset[str] = frozenset(),
) -> tuple[Functionalized, dict[str, torch.Tensor], tuple[Assignment, ...]]:
    """The program as executors want to see it, and as transforms leave it.

    Args:
        keep: names whose memory the program may write later.

    Returns:
        The program; the values of the inputs that transforms added to it; and the composites that it spells out and
        that stay what they were.
    """
    computation = functional.computation
    unclaimed: tuple[Assignment, ...] = ()
    if executors:
        computation = manager.run(FunctionalBodies(), computation)
    if any(executor.composites for executor in executors):
        recognized = manager.run(RecognizeComposites(executors), computation)
        computation, unclaimed = recognized.trace, recognized.unclaimed
    if executors:
        computation = manager.run(RewriteClaims(executors), computation)
    constants: dict[str, torch.Tensor] = {}
    computation = transforms.run(Place.BEFORE_DIFFERENTIATION, computation, Phase.INFERENCE, keep, constants)
    return replace(functional, computation=computation), constants, unclaimed


def fusing(executors: Sequence[Executor]) -> frozenset[str]:
    """Names of the executors that fuse."""
    return frozenset([executor.name for executor in executors if executor.fusion is not None])
