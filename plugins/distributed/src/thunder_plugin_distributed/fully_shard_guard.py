"""The guard of a module that `fully_shard` was applied to."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from thunder_core.checks.guard import Guard, show
from thunder_core.checks.source import Names, StepSource
from thunder_core.errors import UnsupportedError
from thunder_plugin_distributed.fully_shard_plan import Plan, groups_of, plan_of


@dataclass(frozen=True, slots=True)
class StateSource(StepSource):
    """The state that `fully_shard` attached to the module ``base``."""

    def describe(self) -> str:
        return f"{self.base.describe()}._get_fsdp_state()"

    def step(self, base: str, names: Names) -> str:
        return f"{base}._get_fsdp_state()"


def shard_again(state: Any) -> None:
    """Shard the parameters of a state again, if they are whole.

    Raises:
        UnsupportedError: a forward of eager PyTorch did not end, for example because of an exception.
    """
    for group in groups_of(state):
        if group._all_gather_result is not None:  # of unshard(async_op=True)
            group.wait_for_unshard()
        if group.is_unsharded:
            group.reshard()
        if group.is_unsharded:
            raise UnsupportedError(
                "a module of fully_shard has whole parameters from a forward by eager PyTorch that did not end",
                advice=("call reset_iter_state() of the outermost module, or create the module again",),
            )


def gather_once(state: Any) -> None:
    """Have PyTorch gather the parameters of a state and free them."""
    for group in groups_of(state):
        group.unshard()
        group.wait_for_unshard()
        group.reshard()


@dataclass(frozen=True, slots=True, eq=False)
class FullyShardGuard(Guard):
    """Checks that a state of `fully_shard` is configured as when the program was recorded.

    The check also shards parameters that a call of eager PyTorch left whole: the program reads shards, and the whole
    parameters would be outdated after the optimizer's step.

    Attributes:
        expected: the plan with which the program was recorded.
    """

    expected: Plan = field(repr=False)
    kind: ClassVar[str] = "configuration of fully_shard"

    def remedy(self) -> str:
        return "configure the module once, before training"

    def holds(self, value: Any) -> bool:
        """Whether the configuration of a state equals the expected plan."""
        shard_again(value)
        return plan_of(value) == self.expected

    def differences(self, value: Any) -> list[str]:
        found = plan_of(value)
        names = [each.name for each in fields(Plan) if getattr(found, each.name) != getattr(self.expected, each.name)]
        return [
            f"{name}: expected {show(getattr(self.expected, name))}, got {show(getattr(found, name))}" for name in names
        ]

    def failure(self, value: str, names: Names) -> str:
        return f"not {names.constant(self.holds, 'is_configured')}({value})"
