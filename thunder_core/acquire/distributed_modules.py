"""Modules that `torch.distributed` prepares for several processes: what of them is refused inside a compiled program.

Their hooks communicate, replace parameters and give memory back, in eager. None of that is recorded.
"""

from __future__ import annotations

import sys
from typing import Any, Final, NoReturn

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.tracing.user_frames import user_location

_CLASSES: Final = {
    "torch.distributed.fsdp": ("FSDPModule", "FullyShardedDataParallel"),
    "torch.distributed._composable.replicate": ("DDP",),
}
_NAMES: Final = {
    "FSDPModule": "a module that fully_shard was applied to",
    "FullyShardedDataParallel": "FullyShardedDataParallel",
    "DDP": "a module that replicate was applied to",
}


def loaded_classes() -> tuple[type, ...]:
    """The classes of such modules, as far as they are imported; there are no instances of others."""
    found = [
        getattr(sys.modules.get(name), attribute, None)
        for name, attributes in _CLASSES.items()
        for attribute in attributes
    ]
    return tuple([kind for kind in found if isinstance(kind, type)])


def loaded_dtensor() -> Any:
    """`torch.distributed.tensor.DTensor`, if it is imported."""
    return getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)


def refuse(module: torch.nn.Module, classes: tuple[type, ...]) -> NoReturn:
    """For the call of a module of one of ``classes`` inside a compiled program."""
    kind = next(kind for kind in classes if isinstance(module, kind))
    raise UnsupportedError(
        f"{_NAMES[kind.__name__]} cannot run inside a compiled program: its hooks, which gather parameters and reduce "
        "gradients, would run once, at compile time",
        location=user_location(),
        advice=(
            "compile the modules inside of it before it is sharded, or leave it to eager PyTorch",
            "with DistributedDataParallel put it around: DistributedDataParallel(thunder.jit(module))",
        ),
    )


def refuse_from_local(*_: Any, **__: Any) -> NoReturn:
    """For ``DTensor.from_local``, which `torch.distributed.tensor.parallel.parallelize_module` calls in hooks."""
    raise UnsupportedError(
        "DTensor.from_local inside a compiled program: a DTensor of a tensor of the program is not recorded",
        location=user_location(),
        advice=(
            "call modules that parallelize_module was applied to outside of the compiled program",
            "compile the modules inside of them, or leave them to eager PyTorch",
        ),
    )
