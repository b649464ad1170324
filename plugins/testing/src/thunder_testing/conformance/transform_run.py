"""Compilation of programs with a transform and without it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from thunder.compiled.function import Compiled, ThunderFunction
from thunder.compiled.module import compile_module
from thunder.compiled.module_forward import compiled_of
from thunder_core.passes.transform import Transform
from thunder_core.settings import Settings
from thunder_testing.compare import Arguments
from thunder_testing.conformance.running import quietly
from thunder_testing.conformance.transform_programs import TransformProgram
from thunder_testing.difference import Comparison


@dataclass(frozen=True, eq=False)
class TestedTransform:
    """A transform under test.

    Attributes:
        transform: the transform itself.
        settings: the settings of compilation with it.
        without: the same settings without it.
        comparison: how values are compared.
        changes_results: whether programs that it changes may compute other values, from other random numbers.
    """

    transform: Transform
    settings: Settings
    without: Settings
    comparison: Comparison
    changes_results: bool = False

    def comparison_of(self, program: TransformProgram, *, gradients: bool) -> Comparison:
        """How a program is compared with eager PyTorch: if its values may differ, in everything else."""
        how = replace(self.comparison, gradients=gradients)
        return replace(how, values=False, random_state=False) if self.may_differ(program) else how

    def may_differ(self, program: TransformProgram) -> bool:
        """Whether a program may compute other values than eager PyTorch; False if it cannot be compiled."""
        try:
            return self.changes_results and self.changes(program)
        except Exception:  # noqa: BLE001 - the check that compares the program reports it
            return False

    def changes(self, program: TransformProgram) -> bool:
        """Whether the transform changes the compiled program, or the state of the module."""
        ours, theirs = (called(program, settings) for settings in (self.settings, self.without))
        return text_of(ours) != text_of(theirs) or state_of(ours) != state_of(theirs)


def compiled(program: Callable[..., Any], settings: Settings) -> Any:
    """The program compiled by `thunder.jit`."""
    if not isinstance(program, nn.Module):
        return ThunderFunction(program, settings)
    for transform in settings.transforms:
        changed = transform.on_module(program)
        program = program if changed is None else changed
    return compile_module(program, settings)


@contextmanager
def verified() -> Iterator[None]:
    """A context in which every trace is verified between passes (``THUNDER_VERIFY=1``)."""
    before = os.environ.get("THUNDER_VERIFY")
    os.environ["THUNDER_VERIFY"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["THUNDER_VERIFY"]
        else:
            os.environ["THUNDER_VERIFY"] = before


def arguments_of(program: TransformProgram) -> Arguments:
    """The arguments of a call."""
    given = program.arguments()
    return given if isinstance(given, Arguments) else Arguments(*given)


def called(program: TransformProgram, settings: Settings) -> Any:
    """The compiled program after one call with gradients."""
    with quietly():
        compiled_ = compiled(program.make(), settings)
        given = arguments_of(program)
        compiled_(*given.args, **given.kwargs)
    return compiled_


def text_of(compiled_: Any) -> str:
    """The compiled forward and backward as Python code, without the names of the passes that wrote them."""
    inner: Compiled = compiled_of(compiled_) if isinstance(compiled_, nn.Module) else compiled_
    if inner.last is None:
        return ""
    traces = list(inner.last.program.executed.values())
    lines = "\n".join(trace.python() for trace in traces).split("\n")
    return "\n".join(line for line in lines if not line.startswith("# provenance:"))


def state_of(compiled_: Any) -> str:
    """The metadata of a module's state dict; empty for a function."""
    if not isinstance(compiled_, nn.Module):
        return ""
    return str({name: (value.shape, value.dtype) for name, value in compiled_.state_dict().items()})


def difference(one: str, other: str) -> str:
    """The lines that differ between two programs."""
    lines = list(difflib.unified_diff(one.splitlines(), other.splitlines(), "without", "with", n=1, lineterm=""))
    return "\n".join(f"    {line}" for line in lines[:60]) or "    none"


def changed_lines(tested: TestedTransform, program: TransformProgram) -> str:
    """The changes by the transform in the compiled program, if it can be compiled."""
    try:
        texts = [text_of(called(program, settings)) for settings in (tested.without, tested.settings)]
    except Exception as error:  # noqa: BLE001 - the failure that is being reported is what matters
        return f"  The program with the transform cannot be shown: {type(error).__name__}: {error}"
    return f"  What the transform changes in the program that runs:\n{difference(*texts)}"
