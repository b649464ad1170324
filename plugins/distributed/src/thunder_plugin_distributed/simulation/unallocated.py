"""Models without values: address space of large tensors is reserved, but never read or written."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

_LARGE: Final = 2**16  # elements
_FACTORIES: Final = frozenset({torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint})
# Methods whose names end like those of in-place methods, but which do not write elements.
_METADATA: Final = frozenset({
    "as_strided_", "detach_", "rename_", "requires_grad_", "resize_", "resize_as_", "set_", "share_memory_", "squeeze_",
    "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_",
})  # fmt: skip


class Unallocated(TorchFunctionMode):
    """Creates large tensors without values; calls that write them in place do nothing.

    The operating system allocates only pages that are written, so a model that is created and initialized under this
    mode takes almost no memory. Its shapes, dtypes and strides are as usual; its computed values are meaningless.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        writes = name.endswith("_") and not name.endswith("__") and name not in _METADATA
        written = args[0] if args else kwargs.get("tensor")  # so functions of torch.nn.init name it
        if writes and isinstance(written, torch.Tensor) and written.numel() > _LARGE:
            return written
        if func in _FACTORIES and kwargs.keys().isdisjoint({"out", "generator"}):
            metadata = func(*args, **{**kwargs, "device": "meta"})
            if metadata.numel() > _LARGE:
                made = torch.empty(metadata.shape, dtype=metadata.dtype, device=kwargs.get("device"))
                return made.requires_grad_(metadata.requires_grad)
        return func(*args, **kwargs)
