"""Compiled functions and modules in the hands of PyTorch's own compilers.

`torch.compile` of one, or of a program that calls one, runs the compiled program as it is: Dynamo breaks its graph
there. Where it must not (strict export), its error has `MESSAGE`. `torch.jit.script` compiles the original, and the
tracers of PyTorch (`torch.jit.trace`, `torch.fx`) get its calls.
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any, Final

from thunder_core.pytorch_internals import FrameAction, FrameExecStrategy, set_code_exec_strategy

MESSAGE: Final = (
    "it is compiled by thunder.jit, and runs as it is; to compile, export or trace the original instead, pass "
    "thunder.original(m)"
)


@functools.cache
def hide_from_dynamo(*functions: Any) -> None:
    """Have Dynamo call these functions as they are, and compile nothing that they call; adds no time to calls."""
    for function in functions:
        assert isinstance(function, FunctionType)
        set_code_exec_strategy(function.__code__, FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
        function._torchdynamo_disable_msg = MESSAGE  # type: ignore[attr-defined]
