"""Run a random program eagerly and compiled, call by call, and compare all that its caller can see."""

from __future__ import annotations

import contextlib
import contextvars
import copy
import io
import itertools
import linecache
import random
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.differential import process_group
from tests.differential.programs import RandomProgram
from thunder_core.errors import RecompileWarning, ThunderError, UncacheableWarning
from thunder_testing.conformance.tolerance import DEFAULT
from thunder_testing.difference import Comparison, differences
from thunder_testing.seeding import seed_generators
from thunder_testing.snapshot import Entry, snapshot

Compile = Callable[[Any], Any]
_COMPARISON = Comparison(rtol=1e-4, atol=1e-5)
# A fused kernel does not round to bfloat16 what it computes on the way, such as the sum of two gradients of a weight
# that autocast cast once, and eager does: half a unit in the last place for each, 2 ** -9.
_FUSED_AUTOCAST = Comparison(rtol=DEFAULT[torch.bfloat16][0], atol=1e-5, gradient_rtol=DEFAULT[torch.bfloat16][0])
_STATE = ("SCALE", "COUNT", "CURRENT", "LOG", "TABLE", "HANDLES")
_NOT_COMPARED = ("by_node", "generator", "step", "read", "optimizer")
_numbers = itertools.count()


@dataclass(frozen=True)
class Verdict:
    """How a program went: ``"equal"``, ``"refused"``, ``"wrong"`` or ``"error"``, and why."""

    kind: str
    reason: str = ""


_OVERWRITTEN = (
    "modified by an inplace operation",
    # the same, where the value went into a module with a full backward hook
    "BackwardHookFunction is a view and its base or another view of its base has been modified inplace",
)
"""PyTorch's message where backward needs a value that the program overwrote."""


def judge(program: RandomProgram, compile: Compile, *, fuses: bool = False) -> Verdict:
    """Compare ``program`` with ``compile(program)``, over several calls with changed state between them.

    If ``compile`` ``fuses`` operations, programs with bfloat16 autocast may differ by its rounding.

    A program that Thunder refuses with one of its own errors is ``"refused"``, as is one whose exception says that
    writes are lost; the calls before that were equal.
    ``"error"`` is any other exception that eager does not raise. Within `process_group.running`.

    The context variables of programs do not remain: recordings compare all that are set, at each call.
    """
    return contextvars.copy_context().run(_judge, program, compile, fuses=fuses)


def _judge(program: RandomProgram, compile: Compile, *, fuses: bool) -> Verdict:
    module = _load(program)
    comparison = _FUSED_AUTOCAST if fuses and program.has_autocast else _COMPARISON
    eager, compiled = _Run(program, module, lambda subject: subject), _Run(program, module, compile)
    for number in range(len(program.changes)):
        expected, actual = eager.call(number), compiled.call(number)
        where = f"call {number}: "
        one, other = eager.exception, compiled.exception
        if isinstance(one, RuntimeError) and any(words in str(one) for words in _OVERWRITTEN) and other is None:
            break  # backward of values that the program overwrote: docs/using.md says that Thunder computes it
        if isinstance(other, ThunderError) and not isinstance(one, ThunderError):
            return Verdict("refused", where + f"{type(other).__name__}: {other}")
        if type(one) is not type(other):
            return Verdict(
                "wrong" if other is None else "error", where + f"eager raised {one!r}, the compiled program {other!r}"
            )
        if any("is not all written" in note for note in getattr(other, "__notes__", ())):
            return Verdict("refused", where + f"writes before {other!r} are lost, as its note says")
        found = differences(expected, actual, comparison)
        if found:
            return Verdict("wrong", where + "\n  ".join(found[:8]))
        if one is not None:
            break
    return Verdict("equal")


class _Run:
    """One of the two runs of a module, with the random state, the globals and the modes that it sees.

    Attributes:
        exception: what the last call raised.
    """

    def __init__(self, program: RandomProgram, module: types.ModuleType, compile: Compile) -> None:
        self.exception: Exception | None = None
        seed_generators(program.seed)
        self._random = torch.get_rng_state(), random.getstate()
        self._grad_enabled = True
        self._module = module
        self._globals = {name: copy.copy(getattr(module, name)) for name in _STATE}
        self._scale = module.Settings.scale
        self._world = self._module.World()
        self._subject = compile(self._module.Program() if program.module else self._module.program)
        self._x = torch.linspace(-1, 1, 6).view(2, 3)
        self._y = torch.linspace(0.5, 2, 6).view(2, 3).requires_grad_()

    def call(self, number: int) -> dict[str, Entry]:
        """Change the state, call the program, run backward from its results, and return the state after it."""
        before = process_group.collectives()
        torch.set_rng_state(self._random[0])
        random.setstate(self._random[1])
        world, module = self._world, self._module
        vars(module).update(self._globals)
        module.Settings.scale = self._scale
        printed, result, self.exception = io.StringIO(), None, None
        try:
            with contextlib.redirect_stdout(printed), _quiet():
                self._x, self._y = module.change(number, world, self._x, self._y)
                torch.set_grad_enabled(self._grad_enabled)
                result = self._subject(world, self._x, self._y)
                self._grad_enabled = torch.is_grad_enabled()
                _backward(result[0])
        except Exception as error:
            self.exception = error
        finally:
            torch.set_grad_enabled(True)
        self._random = torch.get_rng_state(), random.getstate()
        self._globals = {name: getattr(module, name) for name in _STATE}
        self._scale = module.Settings.scale
        return snapshot(
            result=result,
            x=self._x,
            y=self._y,
            world={name: value for name, value in vars(world).items() if name not in _NOT_COMPARED},
            by_node=[(node.value, value) for node, value in world.by_node.items()],
            state={name: value for name, value in self._globals.items() if name != "HANDLES"},
            scale=self._scale,
            cells=world.read(),
            printed=printed.getvalue(),
            collectives=process_group.collectives() - before,
            grad_enabled=self._grad_enabled,
            random_state=self._random[0],
            generator=world.generator.get_state(),
            python_random=hash(self._random[1]),  # of 625 numbers, which would be most of the entries
            momentum=[dict(state) for state in world.optimizer.state.values()],
        )


@contextlib.contextmanager
def _quiet() -> Any:
    with warnings.catch_warnings():
        for category in (RecompileWarning, UncacheableWarning):
            warnings.simplefilter("ignore", category)
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
        warnings.filterwarnings("ignore", "Full backward hook is firing when gradients are computed")
        warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
        warnings.filterwarnings("always", "note")  # of the programs
        warnings.showwarning = _show
        yield


def _show(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
    sys.stdout.write(f"{category.__name__} {lineno} {message}\n")


def _backward(results: list[torch.Tensor]) -> None:
    total = [(result * torch.linspace(0.1, 0.6, 6).view(2, 3)).sum() for result in results if result.requires_grad]
    if total:
        torch.stack(total).sum().backward()


def _load(program: RandomProgram) -> types.ModuleType:
    """The program's module, with its source where tracebacks find it."""
    name = f"<random program {program.seed}, {next(_numbers)}>"
    source = program.source
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    module = types.ModuleType(f"random_program_{program.seed}")
    exec(compile(source, name, "exec"), module.__dict__)
    return module
