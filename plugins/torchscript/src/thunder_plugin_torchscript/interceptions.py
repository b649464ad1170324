"""The intercepted calls, which the core refuses. The handlers add the guards."""

from __future__ import annotations

from typing import Final

import torch

from thunder_core.pytorch_internals import RecursiveScriptModule, ScriptMethod
from thunder_frontend.record.interception import Interception
from thunder_plugin_torchscript import calls

INTERCEPTIONS: Final = (
    Interception(
        torch.jit.ScriptFunction,
        "__call__",
        calls.call_function,
        "what a scripted function calls is recorded",
        observed=False,
    ),
    Interception(
        ScriptMethod, "__call__", calls.call_method, "what a scripted method calls is recorded", observed=False
    ),
    Interception(
        RecursiveScriptModule,
        "__setattr__",
        calls.assign,
        "attributes of scripted modules are written in C++",
        observed=False,
    ),
)
