"""Compilation of regions with Inductor.

``make_fx`` runs a region on fake tensors and records the graph of ATen operators, which is passed to Inductor's inner
entry point: without Dynamo, AOTAutograd, and guards. All regions are lowered before waiting for kernels, so that
compilers run in parallel with each other and with Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from thunder_core import progress
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.program import compile_sizes, compile_trace
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import from_fake, on_fakes
from thunder_core.ir.trace import Trace
from thunder_core.pytorch_errata import with_wide_statistics
from thunder_core.tracing.fake_tensors import make_fake
from thunder_core.tracing.sizes import active_environment, active_symbols
from thunder_plugin_inductor.artifacts import artifact
from thunder_plugin_inductor.compiled_region import CompiledRegion
from thunder_plugin_inductor.concatenation import parts_by_themselves
from thunder_plugin_inductor.differences import REWRITTEN, with_checked_indices
from thunder_plugin_inductor.graph_writes import copy_what_is_copied, leave_out_copies, writes_what_it_made
from thunder_plugin_inductor.index_strides import coefficients_as_strides
from thunder_plugin_inductor.kernels import Kernels, bundled, without_waiting
from thunder_plugin_inductor.options import InductorOptions
from thunder_plugin_inductor.preparation import Preparation, preparation
from thunder_plugin_inductor.pytorch_internals import (
    CompiledFxGraph,
    FakeTensorMode,
    TracingContext,
    compile_fx_inner,
    compile_lock,
    disable_current_modes,
    inductor_config,
    select_decomp_table,
    tracing,
)
from thunder_plugin_inductor.vector_instructions import find_vector_instructions
from thunder_plugin_inductor.writes import index_copy_


def compile_regions(regions: Sequence[Trace], options: InductorOptions) -> list[CompiledRegion | str]:
    """For each region its function, or the reason why Inductor rejects it."""
    prepared = preparation(options) if any(map(_on_cpu, regions)) else None
    with _settings(options, prepared):
        started: list[_Started | str] = []
        with without_waiting(prepared) as waiting:
            for number, region in enumerate(regions):
                progress.count(number, len(regions))
                started.append(_attempt(_Started, region, waiting))
        progress.stage("waiting for kernels")
        results: list[CompiledRegion | str] = []
        for number, one in enumerate(started):
            progress.count(number, len(started))
            results.append(one if isinstance(one, str) else _attempt(one.finished))
    return results


def _on_cpu(region: Trace) -> bool:
    return any(isinstance(proxy, TensorProxy) and proxy.device.type == "cpu" for proxy in region.inputs)


def _attempt(step: Any, *args: Any) -> Any:
    try:
        return step(*args)
    except Exception as error:  # noqa: BLE001 - whatever stops Inductor is the reason
        return f"Inductor rejects its region: {type(error).__name__}: {_first_words(str(error))}"


def _first_words(message: str) -> str:
    """The first line; for a failure of a compiler also the first line of its output."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if "Output:" in lines[:-1]:
        return f"{lines[0]}: {lines[lines.index('Output:') + 1]}"
    return lines[0] if lines else ""


@contextmanager
def _settings(options: InductorOptions, prepared: Preparation | None) -> Iterator[None]:
    """Inductor's settings, for this thread only."""
    settings = {
        "keep_output_stride": True,
        "size_asserts": False,  # the core's admission of tensors compares sizes and strides, in a third of the time
        "fx_graph_cache": False,  # the key takes longer than Thunder's, and a hit still needs the graph
        **options.settings(),
    }
    with ExitStack() as stack:
        stack.enter_context(compile_lock)
        stack.enter_context(disable_current_modes())
        stack.enter_context(torch.no_grad())
        stack.enter_context(inductor_config.patch(settings))
        stack.enter_context(parts_by_themselves())
        stack.enter_context(coefficients_as_strides())
        find_vector_instructions() if prepared is None else prepared.vectors.result()
        yield


class _Started:
    """A region whose kernels are being compiled."""

    def __init__(self, region: Trace, waiting: list[Kernels]) -> None:
        sizes = active_symbols(region.sizes)
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=active_environment() if sizes else None)
        self.region = region
        with tracing(TracingContext(mode)), bundled() as self.bundle:
            fakes = [make_fake(mode, proxy) for proxy in region.inputs if isinstance(proxy, TensorProxy)]
            fakes += on_fakes(sizes)
            before = len(waiting)
            with mode:  # created tensors may have these sizes
                graph = _graph(region, fakes, mode)
            self.compiled: Any = compile_fx_inner(graph, fakes)
        self.kernels = waiting[before:]

    def finished(self) -> CompiledRegion:
        """Wait for the kernels."""
        with bundled() as bundle:
            for kernels in self.kernels:
                kernels.wait()
        sizes = self.region.sizes
        expected = compile_sizes(tuple([proxy.stride for proxy in self.region.output]), sizes)
        compiled, written = self.compiled, Aliases.of(self.region).written_inputs
        if not isinstance(compiled, CompiledFxGraph) or len(self.kernels) != 1 or inductor_config.triton.cudagraphs:
            return CompiledRegion(compiled, (), expected, written, len(sizes))
        checked = () if getattr(compiled, "_defers_input_alignment", False) else tuple(compiled.inputs_to_check)
        (kernels,) = self.kernels
        region = CompiledRegion(kernels.scope["call"], checked, expected, written, len(sizes))
        region.code = compiled.source_code
        if not sizes:
            region.artifact = partial(artifact, compiled, kernels.scope, checked, self.bundle + bundle)
        return region


def _graph(region: Trace, fakes: list[Any], mode: FakeTensorMode) -> torch.fx.GraphModule:
    table = {**select_decomp_table(), **REWRITTEN, torch.ops.aten.index_copy_.default: index_copy_}
    table |= with_wide_statistics(table) | with_checked_indices(table)
    program = compile_trace(region)
    graph = make_fx(program, decomposition_table=table, tracing_mode="real")(*fakes)
    if writes_what_it_made(graph.graph):
        functional = torch.func.functionalize(program, remove="mutations")
        graph = make_fx(functional, decomposition_table=table, tracing_mode="real")(*fakes)
        if leave_out_copies(graph.graph):
            graph.recompile()
            graph = make_fx(graph, tracing_mode="real")(*fakes)
    copy_what_is_copied(graph.graph)
    (output,) = graph.graph.find_nodes(op="output")
    # Other operations rely on the strides of the results, and those of a decomposition can differ from the operator's.
    output.meta["user_visible_output_idxs"] = list(range(len(region.output)))
    for node, proxy in zip(output.args[0], region.output, strict=True):
        value = node.meta["val"]
        metadata = (from_fake(tuple(value.shape)), value.dtype, value.device)
        if metadata != (tuple(proxy.shape), proxy.dtype, proxy.device):
            raise RuntimeError(f"{proxy.name} is returned as {value.dtype}{list(value.shape)} on {value.device}")
        if from_fake(value.stride()) != proxy.stride:
            node.meta["val"] = make_fake(mode, proxy)
    return graph
