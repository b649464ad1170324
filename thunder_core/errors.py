"""Every error that Thunder raises on purpose, in one tree.

Each message says what happened, where in the user's program, and what to do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

    from thunder_core.ir.location import SourceLocation


class _Made(threading.local):
    ends: list[EndsRecording] | None = None


_made = _Made()


class EndsRecording(BaseException):
    """The program cannot be recorded as it runs now. It ends the recording even where the program catches it."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """An exception that a surrounding `recording` knows."""
        made = super().__new__(cls, *args, **kwargs)
        if _made.ends is not None:
            _made.ends.append(made)
        return made


@contextmanager
def recording() -> Iterator[None]:
    """Raises, at the end of the body, the first `EndsRecording` that this thread made and that something caught."""
    outer, _made.ends = _made.ends, []
    try:
        yield
    except EndsRecording:
        raise
    except Exception:  # it may be what the program made of the other one
        if not _made.ends:
            raise
    finally:
        made, _made.ends = _made.ends, outer
    if made:
        raise made[0]


@contextmanager
def trying() -> Iterator[None]:
    """In the body an `EndsRecording` ends nothing but the body."""
    outer, _made.ends = _made.ends, None
    try:
        yield
    finally:
        _made.ends = outer


class ThunderError(Exception):
    """Root of the tree.

    Args:
        problem: what happened, one sentence.
        location: the user's line it happened at, if there is one.
        advice: what to do about it, one item a line.
    """

    def __init__(self, problem: str, *, location: SourceLocation | None = None, advice: tuple[str, ...] = ()) -> None:
        self.problem = problem
        self.location = location
        self.advice = advice
        lines = [problem]
        if location is not None:
            lines.append(f"  at {location.describe()}")
        if advice:
            lines.append("What to do:")
            lines.extend(f"  - {item}" for item in advice)
        super().__init__("\n".join(lines))


class OptionError(ThunderError, ValueError):
    """An option of `thunder.jit` has a value that is not accepted."""


class ConfigError(OptionError):
    """A configuration is not accepted. The message has a line for each problem, with its file, line and place."""


class PluginError(ThunderError, RuntimeError):
    """A plugin that was asked for cannot be used; the advice says which command repairs it."""


class WrongGuess(BaseException):
    """A value is not the one that a program was recorded with: another program has to run.

    Callers of compiled functions never see it.

    Attributes:
        position: how many checks of values came before.
        actual: the value.
        sizes: those that lines of the program have defined by then.
    """

    def __init__(self, position: int, actual: object, expected: object, sizes: tuple[int, ...] = ()) -> None:
        self.position = position
        self.actual = actual
        self.sizes = sizes
        super().__init__(f"the program was recorded with the value {expected!r}, which now is {actual!r}")


class ExecutorError(ThunderError, RuntimeError):
    """An executor cannot do what it claims, or declined where the configuration forbids that."""


class WrongResultError(ExecutorError):
    """An executor returned something else than its line of the trace says.

    Attributes:
        rule: what differs: ``"structure"``, ``"dtype"``, ``"shape"``, ``"layout"``, ``"device"`` or ``"strides"``.
    """

    def __init__(
        self, rule: str, problem: str, *, location: SourceLocation | None = None, advice: tuple[str, ...] = ()
    ) -> None:
        self.rule = rule
        super().__init__(problem, location=location, advice=advice)


class TransformError(ThunderError, RuntimeError):
    """Transforms contradict each other, or one of them failed."""


class AcquisitionError(ThunderError, EndsRecording, RuntimeError):
    """The program could not be recorded as a trace."""


class DataDependentError(AcquisitionError):
    """The program needs the value, or a value-dependent shape, of a tensor that depends on an input."""


class LeakedTensorError(AcquisitionError):
    """A traced tensor survived acquisition outside the program's outputs, or is used after it."""


class UnsupportedError(AcquisitionError, NotImplementedError):
    """The program does something that Thunder knows it cannot do rightly."""


class UncacheableError(AcquisitionError):
    """The program consumed Python's or NumPy's random state under ``sharp_edges="error"``."""


class CollectiveMismatchError(ThunderError, RuntimeError):
    """Ranks are about to communicate differently in a process group, so that they would wait for each other."""


class FunctionalizationError(ThunderError, RuntimeError):
    """A mutation could not be expressed functionally."""


class TraceError(ThunderError):
    """A trace is malformed."""


class LoweringError(TraceError):
    """A line of a trace has no core-ATen form."""


class SizeVariesError(ThunderError, EndsRecording, RuntimeError):
    """A part of the compiler needs the value of a size that varies between calls: that compilation takes constants."""


class DeclaredSizeError(ThunderError, ValueError):
    """A call, or the program, contradicts the sizes that the option ``dynamic`` declares."""


class VerificationError(TraceError):
    """The verifier found a trace that breaks an invariant of its stage."""


class TraceSyntaxError(TraceError, SyntaxError):
    """A saved program could not be read back as a trace."""


class PrivateNameError(ThunderError, EndsRecording, RuntimeError):
    """The installed PyTorch, or a plugin's library, lacks a private name that a feature needs."""


class ConfigWarning(UserWarning):
    """A part of a configuration that has no effect."""


class PluginWarning(UserWarning):
    """Something about installed plugins that does not stop the program."""


class ExecutorWarning(UserWarning):
    """An executor declined a line that it was meant for, or failed to answer."""


class RecompileWarning(UserWarning):
    """A program is recompiled again and again; the message lists the reasons."""


class UncacheableWarning(UserWarning):
    """An entry was not cached because the program consumed Python's or NumPy's random state."""


def is_strict() -> bool:
    """Whether the environment asks that defects of plugins are errors (``THUNDER_STRICT=1``)."""
    return os.environ.get("THUNDER_STRICT", "") not in ("", "0")
