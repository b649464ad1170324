"""PyTorch's stance on compilation, which `torch.compiler.set_stance` sets. Programs follow it in each call.

PyTorch holds it in Dynamo, which nothing here imports: until something else does, the stance is the default one.

| stance | a call that an entry covers | any other call |
|---|---|---|
| ``default`` | runs it | compiles |
| ``force_eager`` | eager PyTorch | eager PyTorch |
| ``eager_on_recompile`` | runs it | eager PyTorch |
| ``fail_on_recompile`` | runs it | `RecompileError` |
| ``eager_then_compile``, ``aot_eager_then_compile`` | runs it | the first one in eager PyTorch, later ones compile |

Its other settings do not concern these programs: all guards are checked under ``skip_guard_eval_unsafe``, and
``force_backend`` is a backend of `torch.compile`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from thunder_core.errors import RecompileError, RunEagerly, UnsupportedError

_DYNAMO: Final = "torch._dynamo.eval_frame"
FORCE_EAGER: Final = "force_eager"
_DEFAULT: Final = "default"
_AFTER_FIRST: Final = frozenset({"eager_then_compile", "aot_eager_then_compile"})
_IN_COMPILATION: Final = frozenset({_DEFAULT, "eager_on_recompile", "fail_on_recompile", *_AFTER_FIRST})


class _Known:
    """Objects that Dynamo holds.

    Attributes:
        dynamo: the module with the stance; None until it is imported and called for.
        usual: the last one under which the calls that an entry covers run it.
        placed, before: the one of a front end that records a program, and that of the user, which it replaces.
    """

    dynamo: Any = None
    usual: Any = None
    placed: Any = None
    before: Any = None


known: Final = _Known()


def place(stance: Any, before: Any) -> None:
    """A front end replaces the stance while it records: programs that other threads call follow the one ``before``."""
    known.placed, known.before = stance, before


def find_dynamo() -> Any:
    """The module with the stance, if it has been imported; else None."""
    module = sys.modules.get(_DYNAMO)
    if module is not None and hasattr(module, "_stance"):  # it may just be imported
        known.dynamo = module
    return known.dynamo


def current() -> str:
    """The name of the current stance."""
    dynamo = known.dynamo or find_dynamo()
    if dynamo is None:
        return _DEFAULT
    held = dynamo._stance
    if held is known.placed:
        held = known.before
    if held.stance in _IN_COMPILATION:
        known.usual = held
    return str(held.stance)


def forces_eager() -> bool:
    """Whether eager PyTorch runs all calls.

    Raises:
        UnsupportedError: the stance is unknown.
    """
    stance = current()
    if stance == FORCE_EAGER:
        return True
    if stance not in _IN_COMPILATION:
        raise UnsupportedError(
            f"torch.compiler.set_stance({stance!r}) is a stance that programs of thunder.jit cannot follow",
            advice=("set another one for their calls: with torch.compiler.set_stance('default')",),
        )
    return False


def check_may_compile(name: str, reason: Callable[[], str], *, first: bool) -> None:
    """Check that the stance allows a compilation.

    Args:
        name: of the program.
        reason: returns why it would be compiled.
        first: whether it is the first call of the program that no entry covers.

    Raises:
        RunEagerly: eager PyTorch has to run the call instead.
        RecompileError: neither of them may.
    """
    stance = current()
    if stance == "fail_on_recompile":
        raise RecompileError(
            f"{name} would be compiled, and torch.compiler.set_stance({stance!r}) forbids it: {reason()}",
            advice=(
                "make such calls before the stance is set",
                "run them in eager PyTorch: torch.compiler.set_stance('eager_on_recompile')",
            ),
        )
    if stance in (FORCE_EAGER, "eager_on_recompile") or (first and stance in _AFTER_FIRST):
        raise RunEagerly(described(stance), expected=True)


def described(stance: str) -> str:
    """The reason why eager PyTorch runs a call under a stance, for the report."""
    return f"torch.compiler.set_stance({stance!r})"
