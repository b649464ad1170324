"""Samples of PyTorch's OpInfo database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from thunder_testing.seeding import seed_generators

if TYPE_CHECKING:
    from thunder_testing.pytorch_internals import OpInfo


def sample_inputs(operator: OpInfo, device: str, dtype: torch.dtype, *, requires_grad: bool = False) -> Iterator[Any]:
    """The operator's ``sample_inputs``, with the same seed for each sample.

    This bypasses the method, which searches its callers for a unittest and reads the source of every frame for that.
    Under pytest, without one, this took nine tenths of the time of a battery.
    """
    from thunder_testing.pytorch_internals import common_test_utilities

    samples = iter(operator.sample_inputs_func(operator, device, dtype, requires_grad))
    while True:
        seed_generators(common_test_utilities.SEED)
        common_test_utilities.np.random.seed(common_test_utilities.SEED)
        try:
            sample = next(samples)
        except StopIteration:
            return
        yield sample
