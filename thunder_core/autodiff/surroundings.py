"""How the values of a part of the program, recorded apart, and those of the program around it correspond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.variable import Variable
from thunder_core.autodiff.plan import Plan
from thunder_core.autodiff.replay import Replay
from thunder_core.errors import UnsupportedError
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.trace import Trace


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The program around a function that is differentiated.

    Attributes:
        recorder: of the program.
        operands: tensors of the program by the names that they have in the function's trace.
        location: of the user's call.
    """

    recorder: Recorder
    operands: Mapping[str, torch.Tensor]
    location: SourceLocation | None

    def objects(self, trace: Trace) -> dict[str, Any]:
        """The program's object for each input of the function's trace.

        Raises:
            UnsupportedError: the function uses a number that is known when the program runs.
        """
        inputs = self.recorder.inputs
        known = inputs.objects_of_lines()
        for proxy, value in zip(inputs.proxies, inputs.objects, strict=True):
            known[proxy.name] = value
            if isinstance(value, torch.Tensor):
                known[self.recorder.tensors.proxy_of(value).name] = value
        for tensor in self.recorder.tensors.alive():
            known.setdefault(self.recorder.tensors.proxy_of(tensor).name, tensor)
        known.update(self.operands)
        return {proxy.name: known[proxy.name] if proxy.name in known else self._absent(proxy) for proxy in trace.inputs}

    def names(self, plan: Plan, own: set[str]) -> dict[str, str]:
        """Names for what the lines compute: ``own`` as in the function, or after the value whose gradient it is."""
        renamed: dict[str, str] = {}
        outer = {name: self.recorder.tensors.proxy_of(operand).name for name, operand in self.operands.items()}
        for line in plan.joint.trace.symbols:
            for proxy in line.outputs():
                stem, separator, rest = proxy.name.partition("_cotangent")
                if proxy.name in own:
                    renamed[proxy.name] = proxy.name
                elif separator or "_" in stem:
                    renamed[proxy.name] = self.recorder.trace.names.for_input(outer.get(stem, stem) + separator + rest)
        return renamed

    def _absent(self, proxy: Proxy) -> torch.Tensor:
        """A tensor that the program has let go of meanwhile."""
        if not isinstance(proxy, TensorProxy):
            raise UnsupportedError(
                f"a function that uses {proxy.name}, which is known when the program runs, cannot be differentiated by "
                "a functional transformation",
                location=self.location,
                advice=("compute with tensors instead of Python numbers",),
            )
        return self.recorder.tensors.traced(Variable(proxy, location=self.location))


def sum_of_cotangents(replay: Replay, proxy: TensorProxy, given: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum of the gradients that one value gets, as the formulas expect it: of the value's dtype, and dense."""
    total = given[0]
    for other in given[1:]:
        total = replay.call(torch.add, total, other)
    if total.dtype != proxy.dtype:
        total = replay.call(torch.Tensor.to, total, proxy.dtype)
    if replay.recorder.tensors.proxy_of(total).stride == proxy.stride:
        return total
    order = sorted(range(proxy.ndim), key=lambda dimension: -proxy.stride[dimension])
    inner = replay.call(torch.permute, total, order)
    dense = replay.call(torch.Tensor.contiguous, inner)
    back: torch.Tensor = replay.call(torch.permute, dense, [order.index(dimension) for dimension in range(proxy.ndim)])
    return back
