"""`torch.nn.parallel.DistributedDataParallel` in a compiled program.

Its forward broadcasts buffers, and prepares the reducer that averages gradients when autograd accumulates them. While a
program is recorded, `forward` replaces it: ops broadcast the buffers, and one op, whose derivative averages gradients
bucket by bucket, receives the gradients of all parameters (`thunder_plugin_distributed.data_parallel_gradients`).
PyTorch's reducer is never prepared, and does nothing. Reads of the module are guarded, since this code is observed like
the user's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thunder_core.errors import DataDependentError, RunEagerly, UnsupportedError
from thunder_core.ir.effects import Effects
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.symbols.gradient_hooks import INPUT_GRADIENTS
from thunder_core.tracing.frames import user_location
from thunder_frontend.record.interception import Interception
from thunder_frontend.record.recorder import Recorder
from thunder_plugin_distributed.data_parallel_buckets import buckets_of
from thunder_plugin_distributed.data_parallel_gradients import Averages, average_gradients
from thunder_plugin_distributed.data_parallel_parameters import named_parameters, prepared
from thunder_plugin_distributed.pytorch_internals import apply_to_tensors, default_first_bucket_bytes


def forward(
    recorder: Recorder, original: Callable[..., Any], module: DistributedDataParallel, /, *args: Any, **kwargs: Any
) -> Any:
    """The interception of ``DistributedDataParallel.forward``."""
    _check(module)
    if recorder.trace.outer_ops:
        _refuse("DistributedDataParallel in a checkpoint region", "checkpoint modules inside of it")
    _unobserved(recorder, _check_parts, module)
    synchronizes = torch.is_grad_enabled() and module.require_backward_grad_sync
    buffers = _buffers(module) if module.broadcast_buffers else []
    if buffers and module.require_forward_param_sync and not _is_alone(module):
        _broadcast(module, buffers)
    if module.device_ids:
        device = torch.device(module.device_type, module.device_ids[0])
        args, kwargs = apply_to_tensors(lambda tensor: tensor.to(device), (args, kwargs))
    output = module.module(*args, **kwargs)
    if synchronizes:  # after forward: after an op with effects no value can be read
        _ask_for_gradients(recorder, module)
    if buffers:  # without buffers nothing reads it, and it would have to be guarded
        module.require_forward_param_sync = synchronizes
    return output


def _ask_for_gradients(recorder: Recorder, module: DistributedDataParallel) -> None:
    """Have backward average the gradients of all parameters.

    With one rank the gradients are the averages. With `gradient_as_bucket_view` they are views of buckets.

    Raises:
        DataDependentError: a submodule is called as in eager, so PyTorch's autograd would compute gradients; the
            program is recorded again with the values that the submodule reads.
    """
    if _is_alone(module) and not module._comm_hooks and not module.gradient_as_bucket_view:
        return
    if recorder.attempt.eager_modules:
        raise DataDependentError(
            "the program of a module in DistributedDataParallel depends on values",
            location=user_location(),
            advice=("put it around the compiled module: DistributedDataParallel(thunder.jit(module))",),
        )
    parameters = _unobserved(recorder, prepared, module)
    proxies = tuple([recorder.inputs.object_proxy(item.parameter) for item in parameters])
    first, cap = module.bucket_bytes_cap, module.bucket_bytes_cap
    if module.bucket_bytes_cap_default:
        first = min(cap, default_first_bucket_bytes)
    group = module.process_group
    sparse = tuple([place for place, item in enumerate(parameters) if item.sparse])
    if sparse and module._comm_hooks:
        _refuse("a communication hook for sparse gradients", "leave it out, or use embeddings with dense gradients")
    averages = Averages(
        _unobserved(recorder, buckets_of, proxies, first, cap, sparse),
        group.group_name,
        dist.get_world_size(group),
        module.find_unused_parameters or module.static_graph,
        bool(module._comm_hooks),
        sparse,
    )
    arguments = (average_gradients, proxies, recorder.inputs.object(module), averages)
    recorder.trace.write(INPUT_GRADIENTS, arguments, {}, effects=Effects(external=True))


def _is_alone(module: DistributedDataParallel) -> bool:
    return dist.get_world_size(module.process_group) == 1


def _unobserved(recorder: Recorder, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function without observing it: the program reads the same attributes where it uses them."""
    recorder.mode.observer.pause()
    try:
        with recorder.suspension, DisableTorchFunction():
            return function(*args)
    finally:
        recorder.mode.observer.resume()


def _buffers(module: DistributedDataParallel) -> list[torch.Tensor]:
    return [buffer for name, buffer in module.module.named_buffers() if name not in module.parameters_to_ignore]


def _broadcast(module: DistributedDataParallel, buffers: list[torch.Tensor]) -> None:
    """Broadcast the buffers of rank 0 to all ranks, those of one dtype together."""
    alike: dict[tuple[Any, ...], list[torch.Tensor]] = {}
    for buffer in buffers:
        alike.setdefault((buffer.dtype, buffer.device), []).append(buffer)
    with torch.no_grad():
        for group in alike.values():
            flat = torch.cat([buffer.reshape(-1) for buffer in group])
            dist.broadcast(flat, group=module.process_group, group_src=0)
            parts = flat.split([buffer.numel() for buffer in group])
            for buffer, part in zip(group, parts, strict=True):
                buffer.copy_(part.view(buffer.shape))


def _check(module: DistributedDataParallel) -> None:
    """Refuse options of the module that programs do not support.

    Raises:
        RunEagerly: the call is in a context that only PyTorch implements.
    """
    if module._join_config.enable:
        reason = "DistributedDataParallel.join: ranks tell each other how many of them still have inputs"
        raise RunEagerly(reason, expected=True)
    if module.mixed_precision is not None:
        _refuse("DistributedDataParallel with mixed_precision", "use torch.autocast")
    if module._delay_all_reduce_params:
        _refuse("delay_all_reduce_named_params", "leave it out: gradients are reduced while backward runs")
    if module.skip_all_reduce_unused_params:
        _refuse("skip_all_reduce_unused_params", "leave it out")
    if module._use_python_reducer:
        _refuse("the Python reducer of torch.compile", "set torch._dynamo.config.optimize_ddp to True")
    if hasattr(module, "buffer_hook"):
        _refuse("a communication hook for buffers", "leave it out")


def _check_parts(module: DistributedDataParallel) -> None:
    """Refuse unsupported submodules and parameters, which are guarded where they are used."""
    if not module._comm_hooks and module._get_ddp_logging_data().get("comm_hook"):
        _refuse("a communication hook that is built into PyTorch", "register that of torch.distributed.algorithms")
    for name, parameter in named_parameters(module):
        if type(parameter) not in (torch.nn.Parameter, torch.Tensor):
            _refuse(f"DistributedDataParallel of {name}, a {type(parameter).__name__}", "use plain parameters")


def _refuse(what: str, advice: str) -> NoReturn:
    raise UnsupportedError(
        f"{what} is not compiled",
        location=user_location(),
        advice=(advice, "put it around the compiled module: DistributedDataParallel(thunder.jit(module))"),
    )


INTERCEPTIONS: Final = (
    Interception(DistributedDataParallel, "forward", forward, "gradients are averaged by ops of backward"),
)
