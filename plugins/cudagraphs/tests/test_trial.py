"""The decision by times of calls: from times of a fake clock, without a device."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from thunder_plugin_cudagraphs.trial import Member, Mode, Stage, Times, Trial, worth

WARMUP = 2
CALLS = WARMUP + 4
"""Calls without a graph before the first decision."""


@dataclass
class Clock:
    """The times of one program: without a graph from an idle device on and with the host ahead; and with a graph."""

    host: float
    span: float
    device: float
    replay: tuple[float, float] = (0.1, 0.1)


@dataclass
class Fake:
    host: float
    seconds: float

    def stop(self) -> None:
        raise AssertionError("the test stops no timers")

    def device(self) -> float:
        return self.seconds


def call(trial: Trial, member: Member, clock: Clock) -> tuple[Stage, Mode, float]:
    stage, mode, delay = trial.next(member)
    if mode is not Mode.UNTIMED:
        ahead = Fake(clock.host + clock.device, clock.device)  # the host waited for a full launch queue
        launches = ahead if mode is Mode.AHEAD else Fake(clock.host, clock.span)
        trial.add(member, stage, mode, launches if stage is Stage.LAUNCHES else Fake(*clock.replay))
    return stage, mode, delay


def trial_of(*clocks: Clock) -> Trial:
    """A trial of one program for each clock, whose calls take the times of that clock, after 30 calls of each."""
    trial = Trial(WARMUP)
    members = [trial.join() for _ in clocks]
    for _ in range(30):
        for member, clock in zip(members, clocks, strict=True):
            call(trial, member, clock)
    assert trial.stage is Stage.DECIDED
    return trial


DECODE = Clock(host=5.0, span=5.2, device=1.0, replay=(0.2, 1.1))
BOUND_BY_THE_DEVICE = Clock(host=3.0, span=9.0, device=9.0)
CASES = {
    "the host is the longer": ((DECODE,), True),
    "a long kernel last": ((Clock(host=1.0, span=1.3, device=0.8, replay=(0.1, 0.8)),), True),
    "the device is the longer": ((BOUND_BY_THE_DEVICE,), False),
    "the host waits for a full queue": ((Clock(host=4.4, span=9.0, device=9.0, replay=(0.1, 9.0)),), False),
    "both are equal, and replays start sooner": ((Clock(host=5.0, span=5.5, device=5.1, replay=(0.1, 5.1)),), True),
    "both are equal, and replays relieve the host": ((Clock(host=5.0, span=5.2, device=4.9, replay=(0.1, 5.1)),), True),
    "both are equal, and replays are slower": ((Clock(host=5.0, span=5.2, device=4.9, replay=(0.1, 5.4)),), False),
    "the host is ahead": ((Clock(host=3.0, span=5.5, device=5.0, replay=(0.1, 5.4)),), True),
    "the host is far ahead": ((Clock(host=2.0, span=5.0, device=5.0, replay=(0.1, 4.0)),), False),
    "replays are no faster": ((Clock(host=5.0, span=5.2, device=1.0, replay=(5.0, 5.1)),), False),
    "the host is as slow with graphs": ((Clock(host=5.0, span=5.2, device=1.0, replay=(5.2, 1.0)),), False),
    "forward by the host, backward by the device": (
        (Clock(host=5.0, span=5.2, device=4.0), Clock(host=2.0, span=12.0, device=12.0)),
        False,
    ),
    "the host takes longer in sum": (
        (
            Clock(host=9.0, span=9.1, device=3.0, replay=(0.2, 3)),
            Clock(host=6.0, span=7.0, device=7.0, replay=(0.2, 7)),
        ),
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_decisions(name: str) -> None:
    clocks, captured = CASES[name]
    assert trial_of(*clocks).captured is captured


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        *[((1.0, 1.0), (1.0, after), kept) for after, kept in ((0.5, True), (0.97, True), (0.99, False), (1.0, False))],
        *[((1.0, 1.0), (0.5, after), kept) for after, kept in ((0.99, True), (1.0, True), (1.02, False), (2.0, False))],
        ((0.0, 0.0), (0.0, 0.0), False),
    ],
)
def test_what_is_worth_graphs(before: tuple[float, float], after: tuple[float, float], kept: bool) -> None:
    """Times of the host and until the end."""
    assert worth(Times(*before), Times(*after)) is kept


def test_reasons_have_the_times() -> None:
    assert trial_of(Clock(0.003, 0.009, 0.009)).reason == (
        "the host takes 3 ms to launch a call, and the device 9 ms to run it"
    )
    assert trial_of(Clock(0.005, 0.0052, 0.001, replay=(0.0002, 0.0011))).reason == (
        "the host takes 5 ms to launch a call, and the device 1 ms to run it; "
        "with graphs 1.1 ms pass until the end, without 5.2 ms"
    )


def test_the_calls_of_a_trial() -> None:
    """Two calls warm up, two find an idle device, in two the host is ahead; three capture and settle, two are timed."""
    trial = Trial(WARMUP)
    member = trial.join()
    calls = [call(trial, member, DECODE) for _ in range(12)]
    untimed, idle, ahead = Mode.UNTIMED, Mode.IDLE, Mode.AHEAD
    assert [mode for _, mode, _ in calls] == [
        *(untimed, untimed, idle, idle, ahead, ahead),
        *(untimed, untimed, untimed, idle, idle),
        untimed,
    ]
    assert [delay for _, mode, delay in calls if mode is ahead] == [1.5 * DECODE.host] * 2
    stages = [stage for stage, _, _ in calls]
    assert stages == [Stage.LAUNCHES] * CALLS + [Stage.REPLAYS] * 5 + [Stage.DECIDED]
    assert trial.captured
    assert member.timers == {}  # with their events


def test_a_forward_without_backward_is_decided_alone() -> None:
    trial = Trial(WARMUP)
    forward, _ = trial.join(), trial.join()
    for _ in range(CALLS + 1):
        call(trial, forward, BOUND_BY_THE_DEVICE)
    assert (trial.stage, trial.captured) == (Stage.DECIDED, False)


def test_a_backward_that_is_called_less_often_is_waited_for() -> None:
    trial = Trial(WARMUP)
    forward, backward = trial.join(), trial.join()
    launches = Clock(host=5.0, span=5.2, device=5.0)
    for turn in range(2 * CALLS):
        call(trial, forward, launches)
        if turn % 2:
            call(trial, backward, Clock(host=2.0, span=20.0, device=20.0))
    assert trial.stage is Stage.LAUNCHES
    call(trial, forward, launches)
    assert (trial.stage, trial.captured) == (Stage.DECIDED, False)


def test_one_that_is_called_once_is_not_waited_for_forever() -> None:
    trial = Trial(WARMUP)
    forward, backward = trial.join(), trial.join()
    call(trial, backward, BOUND_BY_THE_DEVICE)
    for _ in range(4 * CALLS + 1):
        call(trial, forward, DECODE)
    assert trial.stage is Stage.REPLAYS


def test_a_program_that_comes_later_follows() -> None:
    for clock, captured in ((DECODE, True), (BOUND_BY_THE_DEVICE, False)):
        trial = trial_of(clock)
        stage, mode, _ = call(trial, trial.join(), BOUND_BY_THE_DEVICE)
        assert (stage, mode, trial.captured) == (Stage.DECIDED, Mode.UNTIMED, captured)


def test_calls_that_raise() -> None:
    """Others are timed in their place."""
    trial = Trial(WARMUP)
    member = trial.join()
    for _ in range(10):
        stage, mode, _ = trial.next(member)
        if mode is not Mode.UNTIMED:
            trial.add(member, stage, mode, None)
    assert (trial.stage, member.calls) == (Stage.LAUNCHES, WARMUP)
    for _ in range(5):
        call(trial, member, BOUND_BY_THE_DEVICE)
    assert trial.stage is Stage.DECIDED


def test_one_call_is_timed_at_a_time() -> None:
    trial = Trial(warmup=0)
    first, second = trial.join(), trial.join()
    stage, mode, _ = trial.next(first)
    assert mode is Mode.IDLE
    assert trial.next(second)[1] is Mode.UNTIMED
    assert second.calls == 0  # it is timed later
    trial.add(first, stage, mode, Fake(1.0, 1.0))
    assert trial.next(second)[1] is Mode.IDLE


def test_threads() -> None:
    trial = Trial(WARMUP)
    member = trial.join()

    def run() -> None:
        for _ in range(50):
            call(trial, member, DECODE)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (trial.stage, trial.captured) == (Stage.DECIDED, True)
