"""Methods of compiled modules that call submodules, and not the module or its ``forward``: these calls run eagerly.

The training step of a GAN is one: it calls ``self.generator`` and ``self.discriminator``. Such a module would compile
nothing, so a warning says what to compile.
"""

from __future__ import annotations

import functools
from types import CodeType, FrameType
from typing import Any

import torch

from thunder_core.errors import UncompiledWarning
from thunder_core.runtime.program_cache import ProgramCache
from thunder_core.tracing.frames import is_internal, warn_user
from thunder_core.tracing.this_thread import this_thread
from thunder_frontend.observe.abstract_stack import StackValue, instructions


class UncompiledCalls:
    """The reads of submodules by methods of one compiled module, until a call of it is compiled."""

    def __init__(self) -> None:
        self._reads: set[tuple[CodeType, int]] = set()
        self._warned = False

    def submodule_read(self, module: Any, programs: tuple[ProgramCache | None, ...], frame: FrameType) -> None:
        """The code of a frame reads a submodule of a compiled module; warns the second time that it does.

        Args:
            programs: those of the module.
        """
        code = frame.f_code
        if self._warned or this_thread.recorder is not None or any(map(_is_used, programs)) or is_internal(code):
            return
        called = _called_on_receiver(code)
        if not called or frame.f_locals.get(code.co_varnames[0]) is not module:
            return
        read = (code, frame.f_lasti)
        if read not in self._reads:  # a first call may precede one of the module
            self._reads.add(read)
            return
        submodules = sorted(".".join(path) for path in called if _is_submodule(module, path))
        if not submodules:
            return
        self._warned, name = True, submodules[0]
        warn_user(
            f"{code.co_qualname} calls submodules of a compiled module ({', '.join(submodules)}), which run eagerly: "
            "thunder.jit compiles the calls of the module itself and of its forward, and there was none yet. "
            f"Compile what it calls: module.{name} = thunder.jit(module.{name})",
            UncompiledWarning,
        )


def _is_used(program: ProgramCache | None) -> bool:
    return program is not None and bool(program.hits or program.misses or program.fallbacks)


@functools.lru_cache(maxsize=1024)
def _called_on_receiver(code: CodeType) -> frozenset[tuple[str, ...]]:
    """The paths from the first argument to what code calls; empty if it calls that itself or its ``forward``."""
    if not code.co_argcount:
        return frozenset()
    receiver = code.co_varnames[0]
    calls = [step.callee for step in instructions(code) if step.operation in ("CALL", "CALL_KW")]
    if any(call.label == receiver and call.owner is None for call in calls):
        return frozenset()
    called = frozenset(path for call in calls if (path := _path_from(receiver, call)))
    return frozenset() if ("forward",) in called else called


def _path_from(receiver: str, value: StackValue) -> tuple[str, ...]:
    """The names of the attributes that lead from a variable to a value; empty if none do."""
    names: tuple[str, ...] = ()
    while value.owner is not None:
        names, value = (value.label, *names), value.owner
    return names if value.label == receiver else ()


def _is_submodule(module: torch.nn.Module | None, path: tuple[str, ...]) -> bool:
    for name in path:
        module = None if module is None else module._modules.get(name)
    return module is not None
