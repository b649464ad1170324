"""The executor over the tests' own nvFuser, on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fake_nvfuser
import torch

import thunder
from thunder_core.passes.admission import region_call
from thunder_plugin_nvfuser.compiled_region import CompiledRegion
from thunder_plugin_nvfuser.executor import NvfuserExecutor
from thunder_plugin_nvfuser.options import NvfuserOptions


def executor(**options: Any) -> NvfuserExecutor:
    return NvfuserExecutor(NvfuserOptions(**{"smallest": 1, **options}), fake_nvfuser, "cpu")


def compiled(program: Callable[..., Any], **options: Any) -> Any:
    return thunder.jit(program, executors=[executor(**options)])


def regions(program: Any) -> list[CompiledRegion]:
    traces = [thunder.last_traces(program)[-1], *thunder.last_backward_traces(program)[-1:]]
    calls = [region_call(line) for trace in traces for line in trace.symbols]
    return [call for call in calls if isinstance(call, CompiledRegion)]


def reasons(program: Any) -> set[str]:
    return {reason for line in thunder.explain(program).decisions for _, reason in line.declined}


def check(program: Callable[..., Any], *args: Any, rtol: float = 1e-5, atol: float = 1e-6, **options: Any) -> Any:
    """Compare with eager: values, dtypes, strides; and whether all of it is in regions. Returns the program."""
    expected = program(*args)
    jitted = compiled(program, **options)
    actual = jitted(*args)
    for _ in range(2):  # results are copied from the first call on, where need be
        compare(actual, expected, rtol, atol)
        actual = jitted(*args)
    assert not reasons(jitted), reasons(jitted)
    assert regions(jitted)
    return jitted


def compare(actual: Any, expected: Any, rtol: float, atol: float) -> None:
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    for one, other in zip(*[torch.utils._pytree.tree_leaves(side) for side in (actual, expected)], strict=True):
        assert one.stride() == other.stride(), (one.stride(), other.stride())
