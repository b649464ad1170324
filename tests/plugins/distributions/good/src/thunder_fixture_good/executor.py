"""The executor: runs ``double_sine`` in its own way."""

import torch

from thunder_core.executors import Claim, OperatorExecutor
from thunder_fixture_good.operations import double_sine


def fast_double_sine(x, scale=1.0):
    return torch.sin(x).mul_(2).mul_(scale)


def make(options):
    def check(x, scale=1.0):
        return x.numel <= options.largest or f"more than {options.largest} elements"

    return OperatorExecutor("good", (Claim(double_sine, fast_double_sine, check),))
