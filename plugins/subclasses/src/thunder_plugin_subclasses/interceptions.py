"""The table of interceptions: functions that DTensor calls below the torch functions, and those of jagged tensors."""

from __future__ import annotations

from typing import Final

from thunder_frontend.record.interception import Interception, refusal
from thunder_frontend.record.recorder import active_recorder
from thunder_plugin_subclasses import jagged
from thunder_plugin_subclasses.calls import ask_metadata

_REFUSE_RANDOM: Final = refusal(
    "a random function of a DTensor sets the offset of the device's random generator for each shard, which is not "
    "recorded",
    "call it outside of the compiled program",
    "or on the local tensor: dropout(x.to_local()), with a seed for each process",
)

INTERCEPTIONS: Final = (
    Interception(
        "torch.distributed.tensor._api:",
        "check_tensor_meta",
        refusal(
            "DTensor.from_local(..., run_check=True) inside a compiled program would compare shapes between processes "
            "once, at compile time",
            "leave out run_check",
            "or create the DTensor outside of the compiled program",
        ),
        "it would communicate once",
        when=active_recorder,
    ),
    Interception(
        "torch.distributed.tensor._sharding_prop:ShardingPropagator",
        "_propagate_tensor_meta_non_cached",
        ask_metadata,
        "DTensor infers shapes on its own fake tensors",
    ),
    *[
        Interception(
            "torch.distributed.tensor._random:OffsetBasedRNGTracker",
            name,
            _REFUSE_RANDOM,
            "the state of the generator would be set once",
        )
        for name in ("_distribute_region", "_get_device_state")  # the first random function calls only the second
    ],
    *jagged.INTERCEPTIONS,
)
