"""The table of interceptions of collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch

from thunder_core.pytorch_internals import SyncBatchNormFunction
from thunder_frontend.record.communication import Communication
from thunder_frontend.record.interception import ApplyInterception, Interception
from thunder_frontend.record.recorder import Recorder, active_recorder
from thunder_plugin_distributed.pytorch_internals import DIFFERENTIABLE
from thunder_plugin_distributed.recording import collectives, object_collectives
from thunder_plugin_distributed.recording.differentiable_collectives import apply
from thunder_plugin_distributed.recording.sync_batch_norm import SynchronizedBatchNorm, sync_batch_norm

COALESCING: Final[dict[str, Callable[..., Any]]] = {
    "_start_coalescing": collectives.start_coalescing,
    "_end_coalescing": collectives.end_coalescing,
}


def _apply_sync_batch_norm(
    recorder: Recorder, original: Callable[..., Any], cls: type[torch.autograd.Function], /, *args: Any
) -> Any:
    return sync_batch_norm(*args)


def _rows() -> Iterator[Interception | Communication]:
    if not torch.distributed.is_available():
        return
    yield collectives.RecordedCommunication()
    for owner, name, handler in object_collectives.handlers():
        yield Interception(owner, name, handler, "each run sends the objects")
    yield Interception(
        "torch.distributed._meta_registrations:",
        "generate_unique_id",
        collectives.unique_id,
        "ids of handles on fake tensors are not random numbers of the program",
        when=active_recorder,
    )
    for owner, name in collectives.reducing():
        handler = partial(collectives.call_with_reduction, name)
        yield Interception(owner, name, handler, "its op names the reduction", when=active_recorder)
    group = torch.distributed.ProcessGroup
    for name, coalesce in COALESCING.items():
        if name in vars(group):
            yield Interception(group, name, coalesce, "its calls are one op", when=active_recorder)
    for name in DIFFERENTIABLE:
        yield ApplyInterception(f"torch.distributed.nn.functional:{name}", apply, "its derivative is recorded")
    yield ApplyInterception(SynchronizedBatchNorm, apply, "its derivative is recorded")
    yield ApplyInterception(SyncBatchNormFunction, _apply_sync_batch_norm, "it runs on every device")


INTERCEPTIONS: Final = tuple(_rows())
