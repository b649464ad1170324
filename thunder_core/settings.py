"""`Settings`: how a program is compiled and cached, as the runtime needs it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

from thunder_core.checks.varying_sizes import DeclaredDimensions
from thunder_core.contract import FrontEnd
from thunder_core.executors.executor import Executor
from thunder_core.passes.transform import Transform

CacheMode = Literal["constant values", "same input", "no caching"]
SharpEdges = Literal["allow", "warn", "error"]
AllowRecompiles = bool | Literal["eager"]


class SizeDeclarations(Protocol):
    """The user's declarations of sizes, by parameters of the program."""

    @property
    def must_vary(self) -> bool:
        """Whether any size is declared as dynamic, so that it must not become a constant."""

    def signature(self, function: Callable[..., Any]) -> inspect.Signature:
        """The signature of a program. Raises OptionError if it lacks a parameter with declarations."""

    def dimensions(
        self, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> DeclaredDimensions:
        """The declared sizes of a call. Raises DeclaredSizeError if the call contradicts them."""


Dynamic = bool | Literal["automatic"] | SizeDeclarations


@dataclass(frozen=True)
class PresetChoice:
    """The executors of a program for which none were named.

    Attributes:
        preset: the name of the preset.
        device: the type of device that it was chosen for.
        executors: names of those of its executors that can be used here, in order.
        left_out: the others, with the reason.
        beside: names of the executors that the configuration lists beside those of the preset.
    """

    preset: str
    device: str
    executors: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]
    beside: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The report as text."""
        names = ", ".join(self.executors) or ("none" if self.beside else "PyTorch alone")
        beside = f", beside {', '.join(self.beside)}" if self.beside else ""
        chosen = f"executors of the preset {self.preset!r}, chosen for the device {self.device}{beside}: {names}"
        return [chosen, *(f"  without {name}, because {reason}" for name, reason in self.left_out)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a program is compiled and cached. `thunder.config` creates it from a configuration.

    Attributes:
        front_end: records the program.
        executors: in order, without the reference executor, which is always the last.
        transforms: in the order in which transforms of the same place run.
        wrapper_classes: as in `thunder_core.contract.Request`.
        cache: which calls an entry serves: those for which all guards hold; any (the user promises that only the data
            of tensors changes); or none.
        dynamic: which sizes vary: all, none, those that differ between calls, or as declared.
        sharp_edges: what happens to programs that cannot be repeated exactly.
        recompute: the name of a policy of recomputation, or the share of bytes to save, for
            `thunder_core.autodiff.partitioning.partition.Partition`.
        memory: the bytes that a program may need, its inputs included; None without a limit.
        allow_recompiles: whether a call may compile a program after the `thunder_core.runtime.warm_up.WarmUp`. If not,
            it raises `thunder_core.errors.RecompileError`, or eager PyTorch runs it.
        recompile_warning: the number of entries at which a warning names the reasons.
        recompile_limit: the number of entries after which eager PyTorch runs other calls.
        outcome_limit: as ``recompile_limit``, for entries that differ in values of tensors that the program reads.
        left_out: pairs of the name of an optional part that cannot be used here, and the reason.
        advice: pairs of a subject that no plugin can record here, and the reason or the command that installs the
            plugin, for `thunder_core.errors.advice_on_plugins`.

    Settings are immutable, so a copy is the object itself.
    """

    front_end: FrontEnd
    executors: tuple[Executor, ...] = ()
    transforms: tuple[Transform, ...] = ()
    wrapper_classes: Any = None
    cache: CacheMode
    dynamic: Dynamic
    sharp_edges: SharpEdges
    recompute: str | float
    memory: int | None = None
    allow_recompiles: AllowRecompiles
    recompile_warning: int
    recompile_limit: int
    outcome_limit: int
    left_out: tuple[tuple[str, str], ...] = ()
    advice: tuple[tuple[str, str], ...] = ()

    @property
    def executors_by_device(self) -> bool:
        """Whether the device of a program selects executors, as the configuration does not list all of them."""
        return False

    def for_device(self, device: str) -> tuple[Settings, PresetChoice | None]:
        """The settings for programs on a type of device, and the choice of executors, if it was made for the device."""
        return self, None

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self
