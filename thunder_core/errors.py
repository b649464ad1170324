"""The exceptions and warnings of Thunder.

Each message says what happened, where in the user's program, and what to do.
"""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from typing import Self

    from thunder_core.ir.location import SourceLocation


class _Raised(threading.local):
    ends: list[EndsRecording] | None = None


_raised = _Raised()


class EndsRecording(BaseException):
    """The program cannot be recorded as it runs now. It ends the recording even where the program catches it."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """The exception, which a `recording` around it notes."""
        error = super().__new__(cls, *args, **kwargs)
        if _raised.ends is not None:
            _raised.ends.append(error)
        return error


class RunEagerly(EndsRecording):
    """This call of the program has to run in eager PyTorch; the message has the reason. The program cannot catch it.

    Attributes:
        expected: the program has such calls by design: Thunder neither warns nor stops compiling it.
        around: creates a context manager in which PyTorch runs the call; None if none is needed.
    """

    def __init__(
        self, reason: str, *, expected: bool = False, around: Callable[[], AbstractContextManager[Any]] | None = None
    ) -> None:
        super().__init__(reason)
        self.expected = expected
        self.around = around


@contextmanager
def recording() -> Iterator[None]:
    """A context that raises, at its end, the first `EndsRecording` that code in it raised and caught."""
    outer, _raised.ends = _raised.ends, []
    try:
        yield
    except EndsRecording:
        _raised.ends.clear()  # an exception and a variable of a frame in its traceback form a cycle
        raise
    except Exception:  # the program may have raised it because of the other one
        if not _raised.ends:
            raise
    finally:
        raised, _raised.ends = _raised.ends, outer
    if raised:
        try:
            raise raised[0]
        finally:
            raised.clear()


@contextmanager
def trying() -> Iterator[None]:
    """A context in which an `EndsRecording` that is caught does not end the recording around it."""
    outer, _raised.ends = _raised.ends, None
    try:
        yield
    finally:
        _raised.ends = outer


_advice: Final[ContextVar[tuple[tuple[str, str], ...]]] = ContextVar("advice on absent plugins", default=())


@contextmanager
def without_plugins(advice: tuple[tuple[str, str], ...]) -> Iterator[None]:
    """Have refusals of calls that plugins can record say what to install, in this context.

    Args:
        advice: sentences, each with its subject. For each plugin that the configuration names and that cannot be used
            they are the reason, and the command that installs it. The subject is the calls or tensors that the plugin
            records, ``communication`` for example; empty if they are unknown.
    """
    token = _advice.set(advice)
    try:
        yield
    finally:
        _advice.reset(token)


def advice_on_plugins(subject: str) -> tuple[str, ...]:
    """The advice of the current context on a subject, with that whose subject is unknown."""
    return tuple([text for about, text in _advice.get() if about in (subject, "")])


class ThunderError(Exception):
    """Base class of the exceptions.

    Args:
        problem: what happened, one sentence.
        location: the user's line; None if there is none.
        advice: what to do about it; each item is printed on a separate line.
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


class NoTraceError(OptionError, IndexError):
    """The compiled program has no trace of this kind: no backward, for example."""


class ConfigError(OptionError):
    """A configuration is not accepted. The message has a line for each problem, with its file, line and place."""


class PluginError(ThunderError, RuntimeError):
    """A named plugin cannot be used. The advice has the command that repairs it."""


class RunEnds(BaseException):
    """Raised in a compiled program that is not valid for this call. Callers of compiled functions never see it."""


class WrongGuess(RunEnds):
    """A value differs from the recorded one, so that another entry has to run.

    Attributes:
        position: the number of checks of values before.
        actual: the value.
        sizes: the sizes that ops of the program have defined before.
    """

    def __init__(self, position: int, actual: object, expected: object, sizes: tuple[int, ...]) -> None:
        self.position = position
        self.actual = actual
        self.sizes = sizes
        super().__init__(f"the program was recorded with the value {expected!r}, which now is {actual!r}")


class Diverged(RunEnds):
    """A function that each run calls as it is (`Tag.UNGUARDED`) does what the program was not compiled for.

    Eager PyTorch has to finish this call, in which functions that have run must not run again.

    Attributes:
        around: as for `RunEagerly`; in this context the function returns what it has returned.
        stays: whether the program stays valid for other calls.
    """

    def __init__(self, reason: str, around: Callable[[], AbstractContextManager[Any]], *, stays: bool = False) -> None:
        super().__init__(reason)
        self.around = around
        self.stays = stays


class ExecutorError(ThunderError, RuntimeError):
    """An executor cannot do what it claims, or declined where the configuration forbids that."""


class WrongResultError(ExecutorError):
    """The result of an executor differs from the metadata in the trace.

    Attributes:
        rule: what differs: ``"structure"``, ``"dtype"``, ``"shape"``, ``"layout"``, ``"device"`` or ``"strides"``.
    """

    def __init__(self, rule: str, problem: str, *, location: SourceLocation | None, advice: tuple[str, ...]) -> None:
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
    """The program does something that Thunder does not support."""


class UncacheableError(AcquisitionError):
    """The program consumed Python's or NumPy's random state under ``sharp_edges="error"``."""


class RecompileError(ThunderError, RuntimeError):
    """A call would compile a program where none may be compiled. The message names the guard that decides."""


class MemoryBudgetError(ThunderError, RuntimeError):
    """A program needs more memory than the option ``memory`` allows, whatever is recomputed.

    Attributes:
        least: the bytes that it needs at least.
    """

    def __init__(
        self, problem: str, *, least: int = 0, location: SourceLocation | None = None, advice: tuple[str, ...] = ()
    ) -> None:
        super().__init__(problem, location=location, advice=advice)
        self.least = least


class CollectiveMismatchError(ThunderError, RuntimeError):
    """Ranks are about to communicate differently in a process group, so that they would wait for each other."""


class FunctionalizationError(ThunderError, RuntimeError):
    """A mutation could not be expressed functionally."""


class TraceError(ThunderError):
    """A trace is malformed."""


class LoweringError(TraceError):
    """An op has no core-ATen form."""


class SizeVariesError(ThunderError, EndsRecording, RuntimeError):
    """The compiler needs the value of a size that varies between calls. It then compiles with constants."""


class InternalError(ThunderError, EndsRecording, RuntimeError):
    """A defect of Thunder: its own code raised an exception, the cause of this one, while it recorded the program."""


class DeclaredSizeError(ThunderError, ValueError):
    """A call, or the program, contradicts the sizes that the option ``dynamic`` declares."""


class VerificationError(TraceError):
    """A trace violates an invariant of its stage."""


class TraceSyntaxError(TraceError, SyntaxError):
    """A saved program could not be read back as a trace."""


class SavedProgramError(ThunderError, RuntimeError):
    """A file of compiled programs is damaged, or not for this environment, state or call."""


class PrivateNameError(ThunderError, EndsRecording, RuntimeError):
    """The installed PyTorch, or a plugin's library, lacks a private name that a feature needs."""


class ConfigWarning(UserWarning):
    """A part of a configuration has no effect."""


class CacheWarning(UserWarning):
    """The cache on disk, or a file in it, is not used, because another user can write to it."""


class PluginWarning(UserWarning):
    """An installed plugin has a problem that does not stop the program."""


class ExecutorWarning(UserWarning):
    """An executor declined an op that it was meant for, or failed when it was queried."""


class RecompileWarning(UserWarning):
    """A program is recompiled again and again; the message lists the reasons."""


class UncompiledWarning(UserWarning):
    """Methods of a compiled module call its submodules, and nothing that is compiled."""


class UncacheableWarning(UserWarning):
    """An entry was not cached because the program consumed Python's or NumPy's random state."""


def is_strict() -> bool:
    """Whether ``THUNDER_STRICT=1`` makes defects of plugins errors."""
    return os.environ.get("THUNDER_STRICT", "") not in ("", "0")


def suggestion(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """For messages, ``; did you mean 'nvfuser'?`` with the nearest known name; empty if none is near.

    Args:
        cutoff: the least similarity of the name, from 0 to 1.
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]!r}?" if near else ""
