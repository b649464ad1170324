"""Detect uses of parameters of DistributedDataParallel outside of the compiled program.

A program averages only the gradients that its own ops compute. A use of a parameter outside of the compiled call adds a
gradient of this rank that is not averaged. It is detected after backward: autograd stores a single gradient without a
copy, but adds several gradients into a new tensor.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary, ref

import torch
from torch.nn.parallel import DistributedDataParallel

from thunder_plugin_distributed.data_parallel_parameters import averaged
from thunder_plugin_distributed.pytorch_internals import current_graph_task_id, execution_engine

_given: Final[WeakKeyDictionary[DistributedDataParallel, tuple[int, dict[int, int]]]] = WeakKeyDictionary()
"""By module, the id of the running backward, and the address of the average of each parameter that had no gradient."""


def give(module: DistributedDataParallel, place: int, average: torch.Tensor) -> None:
    """Note the average of a parameter that had no gradient, and check after this backward that autograd stored it."""
    task = current_graph_task_id()
    known = _given.get(module)
    if known is None or known[0] != task:
        known = _given[module] = (task, {})
        execution_engine.queue_callback(partial(_check, ref(module), known[1]))
    known[1][place] = 0 if place in known[1] else average.data_ptr()


def _check(reference: ref[DistributedDataParallel], addresses: dict[int, int]) -> None:
    module = reference()
    if module is None:
        return
    known = averaged(module)
    for place, address in addresses.items():
        gradient = known[place].parameter.grad
        if address and gradient is not None and gradient.data_ptr() != address:
            warnings.warn(
                f"{known[place].name} is also used outside of the compiled call of DistributedDataParallel: the "
                "gradient of that use is this rank's alone, and is not averaged. Have the program compute the loss, or "
                "put DistributedDataParallel around the compiled module",
                stacklevel=2,
            )
            return
