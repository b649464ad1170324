"""Communication with other processes: a plugin records it; without one the core refuses programs that communicate.

The core knows which calls communicate (`thunder_core.symbols.channels`) and preserves their order
(`thunder_core.ir.effects.Effects`). The functions of `torch.distributed` call operators of ``torch.ops.c10d``, whose
schemas do not declare what they write and when it is there. A plugin that records these has a `Communication` in its
table of interceptions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from thunder_core.errors import UnsupportedError, advice_on_plugins
from thunder_core.symbols.opaque import called_name
from thunder_core.tracing.frames import user_location

if TYPE_CHECKING:
    from thunder_core.ir.symbol import Symbol
    from thunder_core.pytorch_internals import OpOverload
    from thunder_frontend.observe.observer import Observer
    from thunder_frontend.record.recorder import Recorder


class Communication(ABC):
    """Records communication. A plugin has one instance in its table of interceptions."""

    @abstractmethod
    def record(self, recorder: Recorder, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of an operator of ``torch.ops.c10d``, and return results as its schema declares them.

        Raises:
            UnsupportedError: the call cannot be recorded.
        """

    @abstractmethod
    def finish(self, recorder: Recorder) -> None:
        """Complete the recording after the program has ended, before its result is read."""

    @abstractmethod
    def check(self, recorder: Recorder, observer: Observer) -> None:
        """Check a recording.

        Raises:
            AcquisitionError: the recording is not valid for other calls.
        """


class _RefusedCommunication(Communication):
    """The core's default: refuses each operator."""

    def record(self, recorder: Recorder, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise _refusal(str(operator))

    def finish(self, recorder: Recorder) -> None:
        return None

    def check(self, recorder: Recorder, observer: Observer) -> None:
        return None


SUBJECT: Final = "communication"
"""The subject of advice on absent plugins (`thunder_core.errors.advice_on_plugins`)."""
_REFUSED: Final = _RefusedCommunication()
_added: Final[list[Communication]] = []


def add_communication(communication: Communication) -> None:
    """Use ``communication`` for all recordings that begin later. Adding the same object again has no effect.

    Raises:
        ValueError: another one was added before.
    """
    if communication not in _added:
        if _added:
            raise ValueError(f"communication is already recorded by {type(_added[0]).__qualname__}")
        _added.append(communication)


def communication() -> Communication:
    """The `Communication` of the plugins in use; else one that refuses each operator."""
    return _added[0] if _added else _REFUSED


def check_channels(symbol: Symbol, channels: tuple[str, ...]) -> None:
    """Refuse a call of ``symbol`` that communicates, unless a plugin records communication.

    Raises:
        UnsupportedError: no plugin does.
    """
    if channels and not _added:
        raise _refusal(called_name(symbol))


def _refusal(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"the program communicates with other processes, by {name}",
        location=user_location(),
        advice=(*advice_on_plugins(SUBJECT), "communicate outside of the compiled function"),
    )
