"""Modules that `torch.distributed` prepares for several processes: what of them is refused inside a compiled program.

Their hooks communicate, replace parameters and give memory back, in eager. None of that is recorded.
"""

from __future__ import annotations

import sys
from typing import Final, NoReturn

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


def check(module: torch.nn.Module) -> None:
    """Called before each call of a module of the program. There are no instances of classes that are not imported.

    Raises:
        UnsupportedError: it is such a module.
    """
    for path, names in _CLASSES.items():
        imported = sys.modules.get(path)
        for name in names:
            kind = getattr(imported, name, None)
            if isinstance(kind, type) and isinstance(module, kind):
                _refuse(name)


def _refuse(name: str) -> NoReturn:
    raise UnsupportedError(
        f"{_NAMES[name]} cannot run inside a compiled program: its hooks, which gather parameters and reduce "
        "gradients, would run once, at compile time",
        location=user_location(),
        advice=(
            "compile the modules inside of it before it is sharded, or leave it to eager PyTorch",
            "with DistributedDataParallel put it around: DistributedDataParallel(thunder.jit(module))",
        ),
    )
