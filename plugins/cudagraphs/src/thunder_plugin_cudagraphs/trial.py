"""The decision whether the programs of a compilation are captured, from the times of their first calls."""

from __future__ import annotations

import enum
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

GAIN: Final = 0.02
"""The share of the time of a call that graphs must save, where they do not relieve the host."""
LOSS: Final = 0.01
"""The share of the time of a call that graphs may cost if they at least halve the time of the host.

The host may be slower later than in the calls that were timed: GPT-2 medium on an H200 was launched in 34 ms then, for
48 ms of the device, and later steps took 62 ms, with graphs 54.
"""
NEAR: Final = 0.5
"""Graphs are tried if the host needs at least this share of the time of the device: its time is that of the launches
alone, and a call also has guards, autograd and an optimizer."""
PATIENCE: Final = 50
"""Calls that cannot take part in a trial, after which it ends."""
_AHEAD: Final = 1.5
"""The device is kept busy for this many times the host's time, so that the host is ahead of it in the whole call."""


class Timer(Protocol):
    """The times of one call.

    Attributes:
        host: seconds in which the host enqueued the call.
    """

    host: float

    def stop(self) -> None:
        """The call has been enqueued."""
        ...

    def device(self) -> float:
        """Seconds from the start of the call on the device to its end. Waits for the end."""
        ...


class Mode(enum.Enum):
    """How a call is made."""

    UNTIMED = enum.auto()
    IDLE = enum.auto()
    """Timed from an idle device on. The host never waits for a full launch queue, unless the device takes longer."""
    AHEAD = enum.auto()
    """Timed on a device that is busy until the host is ahead: the device never waits for the host."""


class Stage(enum.Enum):
    """What is measured."""

    LAUNCHES = enum.auto()
    """Calls without a graph: the time of the host, and that of the device."""
    REPLAYS = enum.auto()
    """Calls with graphs, to compare them with those without."""
    DECIDED = enum.auto()


@dataclass
class Member:
    """One program of a compilation.

    Attributes:
        calls: the number of calls in the current stage.
        timers: of its timed calls.
    """

    calls: int = 0
    timers: dict[tuple[Stage, Mode], list[Timer]] = field(default_factory=dict)

    def of(self, stage: Stage, *modes: Mode) -> list[Timer]:
        """The timers of a stage."""
        return [timer for mode in modes for timer in self.timers.get((stage, mode), ())]

    @property
    def host(self) -> float:
        """Seconds of the host for a call without a graph, at best; infinite if none was timed."""
        return min([timer.host for timer in self.of(Stage.LAUNCHES, Mode.IDLE)], default=float("inf"))

    @property
    def device(self) -> float:
        """Seconds of the device for a call without a graph, at best."""
        return min([timer.device() for timer in self.of(Stage.LAUNCHES, Mode.IDLE, Mode.AHEAD)])


class Trial:
    """The trial of the programs of one compilation: inference alone, or forward with its backwards.

    Their times are added, because work of a forward may hide the launches of a backward. Graphs are captured if the
    host needs a large share of the time in which the device runs the kernels to launch them (`NEAR`), and freed again
    if they are not worth it (`worth`). Later backwards follow the decision.

    Args:
        warmup: calls of each program that are not timed, in which kernels are tuned and loaded.

    Attributes:
        stage: what is measured now.
        captured: whether graphs are captured; valid if decided.
        reason: for the decision.
    """

    def __init__(self, warmup: int) -> None:
        timed = (Mode.IDLE, Mode.IDLE, Mode.AHEAD, Mode.AHEAD)
        self._schedules = {
            Stage.LAUNCHES: (*(Mode.UNTIMED,) * warmup, *timed),
            Stage.REPLAYS: (*(Mode.UNTIMED,) * 3, Mode.IDLE, Mode.IDLE),  # a capture, replays that copy results
        }
        self._members: list[Member] = []
        self._lock = threading.Lock()
        self._timing = False
        self._disturbed = 0
        self.stage = Stage.LAUNCHES
        self.captured = False
        self.reason: str | None = None

    def join(self) -> Member:
        """A program is compiled."""
        member = Member()
        with self._lock:
            self._members.append(member)
        return member

    def next(self, member: Member) -> tuple[Stage, Mode, float]:
        """How the next call of a program is made: the stage, the mode, and how long the device is kept busy before."""
        with self._lock:
            if self._complete(member):
                self._decide()
            if self.stage is Stage.DECIDED:
                return self.stage, Mode.UNTIMED, 0.0
            schedule = self._schedules[self.stage]
            mode = schedule[member.calls] if member.calls < len(schedule) else Mode.UNTIMED
            if mode is not Mode.UNTIMED and self._timing:  # another thread's call is timed
                return self.stage, Mode.UNTIMED, 0.0
            member.calls += 1
            self._timing = self._timing or mode is not Mode.UNTIMED
            delay = _AHEAD * member.host if mode is Mode.AHEAD else 0.0
            return self.stage, mode, 0.0 if delay == float("inf") else delay

    def disturb(self, reason: str) -> None:
        """A call cannot take part, for this reason. After `PATIENCE` such calls nothing is captured."""
        with self._lock:
            self._disturbed += 1
            if self._disturbed >= PATIENCE:
                self._end(reason, captured=False)

    def add(self, member: Member, stage: Stage, mode: Mode, timer: Timer | None) -> None:
        """A timed call is enqueued. Without a timer, it raised an exception, and the next call is timed instead."""
        with self._lock:
            self._timing = False
            if timer is None:
                member.calls -= 1
            else:
                member.timers.setdefault((stage, mode), []).append(timer)

    def _complete(self, member: Member) -> bool:
        """Whether the stage ends: all programs that are called had their timed calls, or this one four times that."""
        if self.stage is Stage.DECIDED:
            return False
        count = len(self._schedules[self.stage])
        called = [one for one in self._members if one.calls]
        return member.calls >= count and (all(one.calls >= count for one in called) or member.calls >= 4 * count)

    def _decide(self) -> None:
        timed = _timed(self._members, Stage.LAUNCHES, Mode.IDLE)
        if self.stage is Stage.LAUNCHES:
            host, device = sum([one.host for one in timed]), sum([one.device for one in timed])
            what, it = ("a call", "it") if len(timed) == 1 else ("forward and backward", "them")
            self.reason = f"the host takes {_ms(host)} to launch {what}, and the device {_ms(device)} to run {it}"
            self.stage = Stage.REPLAYS if host > NEAR * device else Stage.DECIDED
            for member in self._members:
                member.calls = 0
            return
        both = _timed(timed, Stage.REPLAYS, Mode.IDLE)
        before, after = (Times.of(both, stage) for stage in (Stage.LAUNCHES, Stage.REPLAYS))
        reason = f"{self.reason}; with graphs {_ms(after.total)} pass until the end, without {_ms(before.total)}"
        self._end(reason, captured=worth(before, after))

    def _end(self, reason: str, *, captured: bool) -> None:
        self.stage, self.captured, self.reason = Stage.DECIDED, captured, reason
        for member in self._members:
            member.timers.clear()


@dataclass(frozen=True)
class Times:
    """Seconds of one call of each of some programs: of the ``host``, and in ``total`` until the end on the device."""

    host: float
    total: float

    @classmethod
    def of(cls, members: Iterable[Member], stage: Stage) -> Self:
        """The sums over programs of the best calls from an idle device on."""
        timers = [member.of(stage, Mode.IDLE) for member in members]
        host = sum([min([timer.host for timer in one]) for one in timers])
        return cls(host, sum([min([max(timer.host, timer.device()) for timer in one]) for one in timers]))


def worth(before: Times, after: Times) -> bool:
    """Whether graphs are kept, from the times without and with them: they save time, or relieve the host."""
    relieved = after.host <= before.host / 2
    return after.total < (1 - GAIN) * before.total or (relieved and 0 < after.total <= (1 + LOSS) * before.total)


def _timed(members: Iterable[Member], stage: Stage, mode: Mode) -> list[Member]:
    return [member for member in members if member.of(stage, mode)]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
