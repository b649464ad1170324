"""Products of known sizes with the algorithms that were chosen for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from thunder_plugin_cublas import library, selection
from thunder_plugin_cublas.library import Algorithm, Description
from thunder_plugin_cublas.product import product_of

Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]
"""Both factors, what is accumulated to, and the bias."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A product that the library knows, and how it is computed."""

    described: Description
    algorithm: Algorithm

    def run(self, operands: Operands, result: torch.Tensor) -> None:
        """Enqueue it on PyTorch's current stream of the device, which is the current one."""
        run(self.described, self.algorithm, operands, result)


PLANS: Final[dict[object, Plan]] = {}
"""By number of the device, product, and number of candidates."""


def multiplied(
    a: torch.Tensor, b: torch.Tensor, start: torch.Tensor | None, bias: torch.Tensor | None, candidates: int
) -> torch.Tensor:
    """``a @ b + start + bias``, rounded once, as `product_of` describes; ``candidates`` algorithms are timed."""
    result = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    operands = (a, b, start, bias)
    if a.device.type != "cuda" or a.device.index == torch.cuda.current_device():
        _plan(operands, result, candidates).run(operands, result)
    else:
        with torch.cuda.device(a.device):
            _plan(operands, result, candidates).run(operands, result)
    return result


def run(described: Description, algorithm: Algorithm, operands: Operands, result: torch.Tensor) -> None:
    """Enqueue a product with any of its algorithms."""
    a, b, start, bias = operands
    # The allocator gives the memory back to this stream only, behind what is enqueued here.
    workspace = torch.empty(algorithm.workspace, dtype=torch.uint8, device=a.device) if algorithm.workspace else None
    summand = result if start is None else start
    addresses = (b.data_ptr(), a.data_ptr(), summand.data_ptr(), result.data_ptr(), _address(bias), _address(workspace))
    stream = torch._C._cuda_getCurrentRawStream(a.device.index) if a.device.type == "cuda" else 0
    library.library().run(described, algorithm, addresses, stream)


def _plan(operands: Operands, result: torch.Tensor, candidates: int) -> Plan:
    """The plan for these operands; made where there is none."""
    a, b, start, bias = operands
    product = product_of(a, b, start, bias, result)
    key = (a.device.index, product, candidates)
    found = PLANS.get(key)
    if found is not None:
        return found
    lt = library.library()
    described = lt.describe(product)
    algorithms = lt.algorithms(product, described, candidates)
    if not algorithms:
        raise selection.no_algorithm(product)
    if len(algorithms) > 1 and selection.must_not_time(a.device):
        return Plan(described, algorithms[0])  # and not kept: a later call may time them
    chosen = selection.fastest(
        product, a.device, algorithms, lambda algorithm: run(described, algorithm, operands, result)
    )
    PLANS[key] = Plan(described, chosen)
    return PLANS[key]


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
