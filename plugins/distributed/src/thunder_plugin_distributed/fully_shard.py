"""Modules that `torch.distributed.fsdp.fully_shard` was applied to, in a compiled program.

PyTorch's hooks before and after their forward gather parameters, free them, and register hooks on the autograd graph.
While a program is recorded these functions take their place. Each parameter of the module is gathered by lines of the
program, whose derivative reduces and scatters the gradient (`thunder_plugin_distributed.sharded_parameters`); the
module has what was gathered in place of its parameter until its forward ends. What is read of the wrapper's
configuration is guarded, as this code is observed like the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch

from thunder_core.acquire.first_calls import PreparationNeeded
from thunder_core.acquire.interception import Interception
from thunder_core.acquire.recorder import Recorder
from thunder_plugin_distributed.fully_shard_plan import Plan, check_group, check_state, groups_of, plan_of
from thunder_plugin_distributed.pytorch_internals import apply_to_tensors, lazy_init
from thunder_plugin_distributed.sharded_parameters import arrived, arrived_again, gather, gather_again
from thunder_plugin_distributed.shards import ShardSource, shard_of

_STATE: Final = "torch.distributed.fsdp._fully_shard._fsdp_state:FSDPState"


def pre_forward(
    recorder: Recorder, original: Callable[..., Any], state: Any, module: Any, args: Any, kwargs: Any
) -> tuple[Any, Any]:
    """The interception of the hook before forward: gather the parameters."""
    if state._is_root is None:
        raise PreparationNeeded("the first call of a module of fully_shard initializes it", partial(lazy_init, state))
    check_state(state)
    if state not in recorder.notes:  # what its modules had in place of the gathered parameters
        recorder.notes[state] = list(_gather(recorder, state))
    policy = state._mp_policy
    if policy.cast_forward_inputs and policy.param_dtype is not None:
        return _cast(args, policy.param_dtype), _cast(kwargs, policy.param_dtype)
    return args, kwargs


def post_forward(
    recorder: Recorder, original: Callable[..., Any], state: Any, module: Any, args: Any, output: Any
) -> Any:
    """The interception of the hook after forward: the modules have their own parameters again."""
    for owner, name, parameter in recorder.notes.pop(state):
        owner._parameters[name] = parameter
    dtype = state._mp_policy.output_dtype
    return output if dtype is None else _cast(output, dtype)


def _gather(recorder: Recorder, state: Any) -> Iterator[tuple[Any, str, Any]]:
    """Put gathered parameters in the place of those that modules have; the modules, names, and what was there."""
    for group in groups_of(state):
        check_group(group)
        for sharded in group.fsdp_params:
            plan = plan_of(group, sharded)
            whole = _gathered(recorder.mode.input_from(sharded.sharded_param, shard_of, ShardSource), plan)
            info = sharded._module_info
            owners = [(info.module, info.param_name), *zip(info.shared_modules, info.shared_param_names)]
            for owner, name in owners:
                yield owner, name, owner._parameters[name]
                owner._parameters[name] = whole


def _gathered(shard: torch.Tensor, plan: Plan) -> torch.Tensor:
    start, wait = (gather_again, arrived_again) if plan.again else (gather, arrived)
    whole = wait(start(shard, *plan.arguments))
    if plan.dimension:
        return torch.cat(whole.chunk(plan.size), plan.dimension)
    return whole if whole.shape[0] == plan.length else whole.narrow(0, 0, plan.length)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return apply_to_tensors(cast, value)


INTERCEPTIONS: Final = (
    Interception(_STATE, "_pre_forward", pre_forward, "parameters are gathered by lines", takes_over="FSDPModule"),
    Interception(_STATE, "_post_forward", post_forward, "modules have their parameters again"),
)
