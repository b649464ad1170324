"""A configuration with everything that it names at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from thunder_core.acquire.acquire import Acquired, acquire
from thunder_core.config.model import ThunderConfig
from thunder_core.executors.executor import Executor
from thunder_core.passes.transform import Transform

FrontEnd = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Acquired]
"""Records a function, or a module, called with these arguments."""


@dataclass(frozen=True)
class Settings:
    """How a program is compiled and cached.

    Attributes:
        config: the complete configuration: presets and defaults are in it.
        executors: in order; the reference executor follows them. Empty where the configuration names none: then the
            device of each program decides, see `thunder_core.config.by_device`.
        transforms: in the order in which those of one place run.
        front_end: records programs.
        left_out: names of those that are optional and cannot be used here, each with the reason.

    Copies are the object itself: nothing in it changes. It is pickled as its configuration; what that names is found
    again where it is unpickled.
    """

    config: ThunderConfig
    executors: tuple[Executor, ...] = ()
    transforms: tuple[Transform, ...] = ()
    front_end: FrontEnd = field(default=acquire)
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def policy(self) -> str | dict[str, float]:
        """What training computes again, as `thunder_core.autodiff.partition.Partition` takes it."""
        recompute = self.config.recompute
        return recompute if isinstance(recompute, str) else {"budget": recompute.budget}

    def __copy__(self) -> Settings:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Settings:
        return self

    def __reduce__(self) -> tuple[Callable[[ThunderConfig], Settings], tuple[ThunderConfig]]:
        from thunder_core.config.resolve import restored

        return restored, (self.config,)
