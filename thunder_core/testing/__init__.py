"""Helpers to test compiled programs, executors and transforms against eager PyTorch; usable outside this project."""

from thunder_core.testing.compare import Arguments, BehaviourMismatch, assert_same_behaviour
from thunder_core.testing.difference import Comparison

__all__ = ["Arguments", "BehaviourMismatch", "Comparison", "assert_same_behaviour"]
