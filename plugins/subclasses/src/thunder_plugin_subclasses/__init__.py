"""Wrapper subclasses of tensors in compiled programs. Modules are imported on first use.

`wrappers` has the `TensorClasses` of the plugin and its `WrapperCalls`, which the recorder calls for torch functions
and ATen operators with a wrapper argument, around checkpoint regions, for wrappers that are returned or stored, and at
the end of recording. The ``__torch_dispatch__`` of the wrapper runs, and its calls on inner tensors are recorded
(`calls`), guarded by class and context (`guards`). `recording` has the state of one recording.

With gradients a call is one op with two programs (`differentiable_calls`, `wrapper_op`); backward is recorded at the
end (`derivatives`). Two autograd functions pass gradients into and out of inner tensors (`gradient_boundary`). Jagged
tensors become values and offsets where PyTorch uses the strided layout (`jagged`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_plugin_subclasses.wrappers import Wrappers

__all__ = ["Wrappers"]

__getattr__ = lazy_imports(__name__, {"Wrappers": "wrappers"})
