"""Modules that change themselves in their first call: they do so before a program with them is recorded.

Lazy modules (``torch.nn.LazyLinear``) make their parameters when they see their first input, and draw their values.
Graph modules of `torch.compile` generate their ``forward`` when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_tensor import variable_of
from thunder_core.errors import EndsRecording
from thunder_core.ir.size import as_constant
from thunder_core.pytorch_internals import LazyGraphModule, tree_map

_CHANGING: Final[Any] = (LazyGraphModule, LazyModuleMixin)
REASON = "lazy modules of the program are initialized by its first call"


class Uninitialized(EndsRecording):
    """A lazy module is called that has no parameters yet. No `Exception`: the program is not to handle it.

    Attributes:
        module: that module.
        args, kwargs: what it is called with; placeholders instead of tensors of the program.
        in_order: initializing it now draws the random numbers that eager would draw for it.
    """

    def __init__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, in_order: bool) -> None:
        super().__init__(REASON)
        self.module = module
        self.args = args
        self.kwargs = kwargs
        self.in_order = in_order


class PreparationNeeded(EndsRecording):
    """What runs once before the first call of a module was not run yet; the program is recorded again after it.

    Attributes:
        prepare: runs it. What it changes stays.
    """

    def __init__(self, reason: str, prepare: Callable[[], None]) -> None:
        super().__init__(reason)
        self.prepare = prepare


class EagerCallNeeded(BaseException):
    """This call of the program has to be eager PyTorch's; the message says why. The program is not to handle it.

    Attributes:
        expected: the program has such calls among others, on purpose: they are no reason to warn, or to give up.
    """

    def __init__(self, reason: str, *, expected: bool = False) -> None:
        super().__init__(reason)
        self.expected = expected


@dataclass(frozen=True)
class _Placeholder:
    """The metadata of a tensor of a program that is given up."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def tensor(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device="meta")


def before_call(recorder: Recorder, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Called before each call of a module of the program.

    Raises:
        Uninitialized: it is a lazy module that is to be initialized first.
    """
    if not isinstance(module, _CHANGING):
        return
    generate_code(module)
    lazy: Any = module
    if isinstance(module, LazyModuleMixin) and lazy.has_uninitialized_params():
        lines = [line for part in recorder.trace.outwards() for line in part]
        in_order = not any(line.effects.kept for line in lines)
        given = tree_map(_without_program, (args, kwargs))
        raise Uninitialized(module, *given, in_order=in_order)


def generate_code(module: Any) -> None:
    """Have a graph module that generates its ``forward`` at the first call do so."""
    if isinstance(module, LazyGraphModule):
        module.real_recompile()  # does nothing where it is done


def initialize(needed: Uninitialized) -> None:
    """Initialize a lazy module as its first call does.

    Raises:
        EagerCallNeeded: only the call itself can: the module's class is the user's and may read values, or random
            numbers are drawn before.
    """
    module = needed.module
    if not (needed.in_order and type(module).initialize_parameters.__module__.startswith("torch.")):
        raise EagerCallNeeded(REASON)
    args, kwargs = tree_map(_tensor, (needed.args, needed.kwargs))
    module._infer_parameters(module, args, kwargs)


def _without_program(value: Any) -> Any:
    variable = variable_of(value)
    if variable is None:
        return value
    proxy = variable.proxy.with_sizes(as_constant)
    return _Placeholder(tuple(map(int, proxy.shape)), proxy.dtype)


def _tensor(value: Any) -> Any:
    return value.tensor() if isinstance(value, _Placeholder) else value
