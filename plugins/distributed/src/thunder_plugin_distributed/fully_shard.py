"""Modules that `torch.distributed.fsdp.fully_shard` was applied to, in a compiled program.

PyTorch's hooks before and after their forward gather parameters, free them, and register hooks on the autograd graph.
While a program is recorded, the functions of this file replace these hooks. Ops of the program gather the parameters,
and their derivatives reduce and scatter the gradients (`thunder_plugin_distributed.sharded_parameters`). Until the
forward of a module ends, the gathered tensors replace its parameters. One guard for each module compares the
configuration of the wrapper (`thunder_plugin_distributed.fully_shard_plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from weakref import WeakSet

import torch
from torch.nn.parallel import DistributedDataParallel

from thunder_core.checks.originals import original_of
from thunder_core.checks.source import Source
from thunder_core.errors import RunEagerly
from thunder_core.ir.location import at
from thunder_core.pytorch_internals import DisableTorchFunction, disable_current_modes
from thunder_core.tracing.frames import user_location
from thunder_frontend.record.attempt import RecordAgain
from thunder_frontend.record.interception import Interception
from thunder_frontend.record.recorder import Recorder
from thunder_plugin_distributed import pytorch_internals
from thunder_plugin_distributed.fully_shard_guard import FullyShardGuard, StateSource, gather_once, shard_again
from thunder_plugin_distributed.fully_shard_plan import Gather, Plan, groups_of, plan_of
from thunder_plugin_distributed.sharded_parameters import (
    arrived,
    arrived_again,
    gather,
    gather_again,
    owners,
    unsharded,
)
from thunder_plugin_distributed.shards import (
    ShardSource,
    accumulated_of,
    collector_of,
    part_of,
    shard_of,
    whole_of_gathered,
)

_SHARD: Final = "shard"
_WRITTEN: Final = "written"
_CALLED: Final = "called"
_OWNERS: Final = "owners"
"""Parts of keys of a recorder's notes: shards that are inputs, writes before a forward, states whose gradients are
computed, and collectors of all calls of a state."""
_STATE: Final = "torch.distributed.fsdp._fully_shard._fsdp_state:FSDPState"


def pre_forward(
    recorder: Recorder, original: Callable[..., Any], state: Any, module: Any, args: Any, kwargs: Any
) -> tuple[Any, Any]:
    """The interception of the hook before forward: gather the parameters."""
    held = recorder.notes.setdefault(state, [])
    recorder.notes[_WRITTEN, state] = frozenset(recorder.trace.storages.written)
    recorder.after_calls.append(partial(_restore, recorder, state))
    if len(state._modules) > 1:
        recorder.after_calls.append(partial(_end_call_of_group, recorder, state))
    for owner, name, whole in _gathered(recorder, state, module):
        recorder.mode.observer.resume()
        held.append((owner, name, _exchange(owner, name, whole)))
        recorder.mode.observer.pause()
    policy = state._mp_policy
    if policy.cast_forward_inputs and policy.param_dtype is not None:
        return _cast(args, policy.param_dtype), _cast(kwargs, policy.param_dtype)
    return args, kwargs


def post_forward(
    recorder: Recorder, original: Callable[..., Any], state: Any, module: Any, args: Any, output: Any
) -> Any:
    """The interception of the hook after forward: restores the parameters of the modules."""
    _check_writes(recorder, state)
    recorder.mode.observer.resume()
    _restore(recorder, state)
    recorder.mode.observer.pause()
    dtype = state._mp_policy.output_dtype
    return output if dtype is None else _cast(output, dtype)


def _end_call_of_group(recorder: Recorder, state: Any) -> None:
    """End a call of one module of a list, which gathers its parameters: PyTorch waits for calls of the others."""
    state._modules_to_run_forward.clear()
    _check_writes(recorder, state)


def _check_writes(recorder: Recorder, state: Any) -> None:
    """Run a forward that writes a parameter eagerly. If the shard is the whole parameter, the write would persist.

    Raises:
        RunEagerly: the forward writes a parameter.
    """
    with recorder.suspension:
        shards = {
            recorder.tensors.proxy_of(shard).storage
            for key, shard in recorder.notes.items()
            if isinstance(key, tuple) and key[0] == _SHARD
        }
    written = recorder.trace.storages.written - recorder.notes.pop((_WRITTEN, state), frozenset())
    if not written.isdisjoint(shards):
        raise _eager_call("a forward that writes to a parameter of fully_shard", "write to it outside of forward")


def _restore(recorder: Recorder, state: Any) -> None:
    """Restore the parameters of modules, also after a forward that raised an exception."""
    for owner, name, parameter in reversed(recorder.notes.pop(state, ())):
        _exchange(owner, name, parameter)


def _exchange(owner: torch.nn.Module, name: str, tensor: Any) -> Any:
    """Replace a parameter of a module; return the old one. The observer sees it, so a restored value is no write."""
    before = owner._parameters[name]
    owner._parameters[name] = tensor
    return before


def _gathered(recorder: Recorder, state: Any, module: Any) -> list[tuple[Any, str, torch.Tensor]]:
    """The parameters of a state as whole tensors of the program, each with its modules and names.

    Raises:
        RecordAgain: the modules were never called, have whole parameters from a call by eager PyTorch, or lack
            PyTorch's objects of whole parameters, which it creates when it gathers them.
        RunEagerly: gradients are accumulated in a way that programs do not support, or the configuration of the
            wrapper is not supported.
    """
    if any(isinstance(part, DistributedDataParallel) for part in module.modules()):
        state._modules_to_run_forward.clear()  # PyTorch's notes about this call
        raise _eager_call("DistributedDataParallel inside of fully_shard", "apply one of them")
    if state._is_root is None:
        raise RecordAgain(
            "the first call of a module of fully_shard initializes it", partial(pytorch_internals.lazy_init, state)
        )
    if any(group.is_unsharded or group._all_gather_result is not None for group in groups_of(state)):
        raise RecordAgain("a call by eager PyTorch left parameters whole", partial(shard_again, state))
    with DisableTorchFunction():  # attributes of DTensors are read, which is not a call of the program
        plan = plan_of(state)
    if plan.problem:
        state._modules_to_run_forward.clear()  # PyTorch's notes about this call
        raise _eager_call(plan.problem, plan.advice)
    owner = recorder.mode.observer.path_to(module)
    if owner is None:
        raise _eager_call("a module of fully_shard that no path leads to", "store it in a variable of the program")
    if plan.eager:
        raise RunEagerly(plan.eager, expected=True)
    if not plan.prepared:
        raise RecordAgain("gradients of fully_shard are accumulated for the first time", partial(gather_once, state))
    path = StateSource(owner)
    recorder.mode.observer.add_guard(FullyShardGuard(path, plan))
    return list(_parameters(recorder, state, module, plan, path))


_called_again: Final[WeakSet[Any]] = WeakSet()
"""The states that a program called more than once: the gradients of all calls are reduced together, as in eager."""


def _parameters(
    recorder: Recorder, state: Any, module: Any, plan: Plan, path: Source
) -> Iterator[tuple[Any, str, torch.Tensor]]:
    called = set(module.modules())
    for index, (group, gathers) in enumerate(zip(groups_of(state), plan.groups, strict=True)):
        infos = [sharded._module_info for sharded in group.fsdp_params]
        places = [place for place, info in enumerate(infos) if called & {info.module, *info.shared_modules}]
        _note_call(recorder, state, index, places)
        given = [_Given(recorder, state, path, index, place, gathers[place]) for place in places]
        shards = [parameter.input(shard_of) for parameter in given]
        options = {
            "accumulated": [each.input(accumulated_of) if each.gather.accumulated else None for each in given],
            "parts": [each.input(part_of) if each.gather.adds_part else None for each in given],
            "collectors": [each.input(collector_of) if each.gather.accumulates else None for each in given],
        }
        owned = recorder.notes.setdefault((_OWNERS, state, index), {}) if state in _called_again else None
        wholes = _wholes(shards, options, {place: gathers[place] for place in places}, owned)
        for info, whole in zip([infos[place] for place in places], wholes, strict=True):
            yield info.module, info.param_name, whole
            for owner, name in zip(info.shared_modules, info.shared_param_names, strict=True):
                yield owner, name, whole


@dataclass(frozen=True)
class _Given:
    """A parameter of a state, and its tensors that are inputs of the program."""

    recorder: Recorder
    state: Any
    path: Source
    group: int
    place: int
    gather: Gather

    def input(self, read_of: Callable[[Any, int, int], torch.Tensor]) -> torch.Tensor:
        """An input of the program, created once even if the module is called several times.

        Args:
            read_of: returns the tensor: `shard_of`, `collector_of`, `accumulated_of` or `part_of`.
        """
        recorder, info = self.recorder, groups_of(self.state)[self.group].fsdp_params[self.place]._module_info
        kind = read_of.__name__.removesuffix("_of")
        key = kind, self.state, self.group, self.place
        known: torch.Tensor | None = recorder.notes.get(key)
        if known is None:
            original = original_of(info.module)
            owner = recorder.mode.observer.path_to(info.module if original is None else original)
            path = self.path.describe() if owner is None else owner.describe()
            source = ShardSource(self.path, read_of, self.group, self.place, f"{path}.{info.param_name}.{kind}")
            with recorder.suspension, disable_current_modes(), DisableTorchFunction():
                known = recorder.notes[key] = read_of(self.state, self.group, self.place)
                recorder.inputs.add(known, source)
        return known


def _note_call(recorder: Recorder, state: Any, group: int, places: list[int]) -> None:
    """Note that gradients of the parameters of a state are computed.

    Raises:
        RecordAgain: they were noted before, and there is no collector that reduces the gradients of all calls.
    """
    if torch.is_grad_enabled():
        keys = {(_CALLED, state, group, place): True for place in places}
        if state not in _called_again and not recorder.notes.keys().isdisjoint(keys):
            raise RecordAgain("a module of fully_shard is called again", partial(_called_again.add, state))
        recorder.notes.update(keys)


def _wholes(
    shards: list[torch.Tensor],
    options: dict[str, list[torch.Tensor | None]],
    plans: dict[int, Gather],
    owned: dict[int, torch.Tensor] | None,
) -> list[torch.Tensor]:
    """The whole parameters of one group of a module; parameters with equal `Gather.key` are gathered by one op.

    Args:
        shards: the shards of the parameters, in the order of ``plans``.
        options: keyword arguments of `gather` with an item for each parameter.
        plans: the plans by the places of the parameters in the group.
        owned: by place, the collectors of the gradients of several calls; None for one call.
    """
    items = list(plans.items())
    found: dict[int, torch.Tensor] = {}
    for key in dict.fromkeys(plan.key for plan in plans.values()):
        chosen = [number for number, (_, plan) in enumerate(items) if plan.key == key]
        wholes = _gathered_alike(
            [shards[number] for number in chosen],
            {name: [values[number] for number in chosen] for name, values in options.items()},
            [items[number] for number in chosen],
            owned,
        )
        found |= {number: _laid_out(whole, items[number][1]) for number, whole in zip(chosen, wholes, strict=True)}
    return [found[number] for number in range(len(items))]


def _gathered_alike(
    shards: list[torch.Tensor],
    options: dict[str, list[torch.Tensor | None]],
    items: list[tuple[int, Gather]],
    owned: dict[int, torch.Tensor] | None,
) -> list[torch.Tensor]:
    """The gathered tensors of parameters with equal `Gather.key`."""
    plan, lengths = items[0][1], tuple([each.length for _, each in items])
    sharding = plan.sharding
    given: dict[str, Any] = {name: each for name, each in options.items() if any(item is not None for item in each)}
    if owned is not None and torch.is_grad_enabled() and plan.is_reduced(shards[0].dtype):
        new = [number for number, (place, _) in enumerate(items) if place not in owned]
        if new:
            of_new: dict[str, Any] = {name: [each[number] for number in new] for name, each in given.items()}
            numbers = tuple([lengths[number] for number in new])
            made = owners([shards[number] for number in new], numbers, sharding, **of_new)
            owned.update(zip([items[number][0] for number in new], made, strict=True))
        given, sharding = {"collectors": [owned[place] for place, _ in items]}, sharding.unreduced
    if sharding.size == 1:
        is_kept = not given and sharding.is_kept(shards[0].dtype)
        return shards if is_kept else unsharded(shards, lengths, sharding, **given)
    start, wait = (gather_again, arrived_again) if plan.again else (gather, arrived)
    return [wait(one) for one in start(shards, lengths, sharding, **given)]


def _laid_out(whole: torch.Tensor, plan: Gather) -> torch.Tensor:
    """A whole parameter from its gathered shards: with the sharded dimension in place, and without padding."""
    if whole.shape[0] != plan.length:
        whole = whole.narrow(0, 0, plan.length)
    return _distributed(whole_of_gathered(whole, plan.sharding.size, plan.dimension), plan)


def _distributed(part: torch.Tensor, plan: Gather) -> torch.Tensor:
    """The DTensor of tensor parallelism whose local tensor on this rank is the parameter."""
    if plan.layout is None:
        return part
    from torch.distributed.tensor import DTensor

    spec = plan.layout
    return DTensor.from_local(
        part, spec.mesh, spec.placements, run_check=False, shape=spec.tensor_meta.shape, stride=spec.tensor_meta.stride
    )


def _cast(value: Any, dtype: torch.dtype) -> Any:
    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return pytorch_internals.apply_to_tensors(cast, value)


def _eager_call(what: str, advice: str) -> RunEagerly:
    """The reason to run a call eagerly, and what to do so that it compiles."""
    return RunEagerly(f"{what} is not compiled ({advice}){at(user_location())}")


INTERCEPTIONS: Final = (
    Interception(
        _STATE,
        "_pre_forward",
        pre_forward,
        "parameters are gathered by ops of the trace",
        observed=False,
        takes_over="FSDPModule",
    ),
    Interception(_STATE, "_post_forward", post_forward, "modules have their parameters again", observed=False),
)
