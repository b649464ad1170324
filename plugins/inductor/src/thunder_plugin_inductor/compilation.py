"""From a region to a function that Inductor compiled.

The region runs on fake tensors under ``make_fx``, which gives the graph of ATen operators that Inductor wants, and
that graph goes to Inductor's inner entry: there is no Dynamo, no AOTAutograd and no guard between Thunder and the
kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._guards import TracingContext, tracing
from torch._inductor import config as inductor_config
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import _disable_current_modes

from thunder_core.acquire.fake import make_fake
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.operations import with_strides
from thunder_plugin_inductor.options import InductorOptions


def compile_region(region: Trace, options: InductorOptions) -> Callable[..., Sequence[Any]] | str:
    """The region's function, or why Inductor refuses it."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with _disable_current_modes(), torch.no_grad(), tracing(TracingContext(mode)):
            fakes = [make_fake(mode, proxy) for proxy in region.inputs if isinstance(proxy, TensorProxy)]
            graph = _graph(region, fakes, mode)
            with inductor_config.patch(_settings(options)):
                compiled = compile_fx_inner(graph, fakes)
    except Exception as error:  # noqa: BLE001 - whatever stops Inductor is the reason
        return f"Inductor refused its region: {type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return _Region(compiled, [tuple(map(int, proxy.stride)) for proxy in region.output])


def _graph(region: Trace, fakes: list[Any], mode: FakeTensorMode) -> torch.fx.GraphModule:
    graph = make_fx(compile_trace(region), decomposition_table=select_decomp_table(), tracing_mode="real")(*fakes)
    (output,) = graph.graph.find_nodes(op="output")
    # Others take the strides of the results for granted. Those of a decomposition can differ from the operator's.
    output.meta["user_visible_output_idxs"] = list(range(len(region.output)))
    for node, proxy in zip(output.args[0], region.output, strict=True):
        value = node.meta["val"]
        if (tuple(value.shape), value.dtype, value.device) != (tuple(proxy.shape), proxy.dtype, proxy.device):
            raise RuntimeError(f"{proxy.name} came out as {value.dtype}{list(value.shape)} on {value.device}")
        if value.stride() != proxy.stride:
            node.meta["val"] = make_fake(mode, proxy)
    return graph


def _settings(options: InductorOptions) -> dict[str, Any]:
    return {
        "max_autotune": options.max_autotune,
        "coordinate_descent_tuning": options.coordinate_descent,
        "keep_output_stride": True,
        **options.inductor_config,
    }


class _Region:
    """Calls a compiled graph, which takes its inputs as a list.

    Inductor may give a result other strides where it thinks that nobody minds. The first call sees whether it does.
    """

    __slots__ = ("compiled", "expected", "wrong")

    def __init__(self, compiled: Any, expected: list[tuple[int, ...]]) -> None:
        self.compiled = compiled
        self.expected = expected
        self.wrong: list[int] | None = None

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        results: Sequence[Any] = self.compiled([*inputs])
        if self.wrong is None:
            self.wrong = [index for index, stride in enumerate(self.expected) if results[index].stride() != stride]
        if self.wrong:
            results = [*results]
            for index in self.wrong:
                results[index] = with_strides(results[index], self.expected[index])
        return results
