"""Compilation of regions to fusion definitions."""

from __future__ import annotations

import linecache
from itertools import count
from typing import Any, Final

import torch

from thunder_plugin_nvfuser.compiled_region import CompiledRegion
from thunder_plugin_nvfuser.options import NvfuserOptions
from thunder_plugin_nvfuser.pytorch_internals import disable_current_modes
from thunder_plugin_nvfuser.row import Kind
from thunder_plugin_nvfuser.writer import Written

_NUMBERS: Final = count(1)


def compile_region(written: Written, library: Any, options: NvfuserOptions) -> CompiledRegion | str:
    """The compiled region, or the reason why nvFuser rejects it."""
    try:
        with disable_current_modes(), torch.no_grad():
            region = CompiledRegion(_defined(written, library), written, _arguments(written, options))
            if options.compile_early:
                region(*_trial(written))
    except Exception as error:  # noqa: BLE001 - whatever stops nvFuser is the reason
        words = str(error).strip().splitlines()
        return f"nvFuser rejects its region: {type(error).__name__}: {words[0] if words else ''}"
    return region


def _defined(written: Written, library: Any) -> Any:
    """The definition. Its source is registered for tracebacks and debuggers."""
    file = f"<nvfuser region {next(_NUMBERS)}>"
    names: dict[str, Any] = {"DataType": library.DataType}
    exec(compile(written.source, file, "exec"), names)
    linecache.cache[file] = (len(written.source), None, written.source.splitlines(keepends=True), file)
    definition = library.FusionDefinition()
    problem: Exception | None = None
    with definition:
        try:
            names["define"](definition)
        except Exception as error:  # noqa: BLE001 - nvFuser would print one that passes its end
            problem = error
    if problem is not None:
        raise problem
    return definition


def _arguments(written: Written, options: NvfuserOptions) -> dict[str, Any]:
    """Arguments of each call. nvFuser determines the device from the inputs, if there are any."""
    namespace: dict[str, Any] = {}
    if not written.inputs:
        namespace["device"] = written.outputs[0].device
    if options.enable:
        namespace["_enable_options"] = list(options.enable)
    if options.disable:
        namespace["_disable_options"] = list(options.disable)
    return namespace


def _trial(written: Written) -> list[torch.Tensor]:
    """Inputs for compilation: ones, and zeros for indices, because other indices may be out of range."""
    fill = 0 if Kind.INDEXES in written.kinds else 1
    tensors = []
    for proxy in written.inputs:
        shape, stride = tuple(map(int, proxy.shape)), tuple(map(int, proxy.stride))
        size = 1 + sum([(length - 1) * step for length, step in zip(shape, stride)])
        memory = torch.full((size,), fill, dtype=proxy.dtype, device=proxy.device)
        tensors.append(memory.as_strided(shape, stride))
    return tensors
