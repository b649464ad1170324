"""Comparison of a new program's collectives between ranks, before the program runs for the first time.

Each rank writes the ordered collectives of each process group of the program to the store of the default process group,
and reads those of the other members of the group. Nothing is communicated between devices, and calls of programs that
were compared before have no overhead. Published collectives remain in the store: a rank that compiles a program in a
later call than the others continues if they published the same collectives before.

A rank waits up to the timeout of the process group, as PyTorch does for a collective. It stops earlier if another rank
waits with different collectives, or raised an exception and compiled nothing since.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

import torch

from thunder.report.collectives_report import CollectiveReport
from thunder_core.errors import CollectiveMismatchError, OptionError, RunEagerly, UncacheableWarning
from thunder_core.forking import renew_in_child
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.trace import Trace
from thunder_core.passes.transform import Phase, Place, Transform, TransformContext
from thunder_core.pytorch_internals import process_group_named
from thunder_core.tracing.frames import warn_user
from thunder_frontend.record.program_exceptions import contents
from thunder_plugin_distributed.program_collectives import Collective, collectives_of_programs, issues_of_programs
from thunder_plugin_distributed.pytorch_internals import (
    backend_of_group,
    devices_of_group,
    get_default_store,
    timeout_of_backend,
)
from thunder_plugin_distributed.recording.object_collectives import ONE_SIDED, EagerOnAllRanks

VARIABLE: Final = "THUNDER_COLLECTIVES_TIMEOUT"
_SECONDS_AFTER_EXCEPTION: Final = 30.0
_RECENT: Final = 60.0  # seconds between an exception on one rank and the wait on another that it explains
_PAUSE: Final = 0.01  # initial seconds between two reads of the store
_LONGEST_PAUSE: Final = 0.1
_NOTHING: Final = json.dumps(["", 0, "", False])
"""The value that a rank writes if it does not wait."""


@dataclass(frozen=True)
class Agreement(Transform):
    """Compares the collectives of a new program between ranks before its first run, and reports them.

    It changes no trace. If a rank needs an eager call of the program, all ranks make it.
    """

    name: ClassVar[str] = "agreement"
    place: ClassVar[Place] = Place.LAST
    verified: ClassVar[bool] = False

    def applies(self, context: TransformContext) -> bool:
        return False

    def before_compilation(self) -> None:
        withdraw_exception()

    def before_first_run(
        self,
        name: str,
        programs: Mapping[Phase, Trace],
        groups: Mapping[str, tuple[int, ...]],
        raised: BaseException | None,
    ) -> None:
        if groups:
            agree(name, programs, groups, raised)

    def before_eager_call(self, name: str, needed: RunEagerly) -> None:
        if isinstance(needed, EagerOnAllRanks):
            join_eager_call(name, needed)

    def on_exception(self, name: str, error: Exception) -> None:
        publish_exception(name, error)

    def collectives(
        self, programs: Mapping[Phase, Trace], groups: Mapping[str, tuple[int, ...]]
    ) -> tuple[CollectiveReport, ...]:
        return collectives_of_programs(programs, groups)


def timeout(group: str) -> float:
    """Seconds that a rank waits for the other ranks to publish their collectives; 0 disables the comparison.

    The default is the timeout of the process group, as for eager collectives. The environment variable overrides it.

    Raises:
        OptionError: the environment variable is not a number.
    """
    seconds = _seconds_of_environment()
    if seconds is not None:
        return seconds
    process_group = process_group_named(group)
    backend = backend_of_group(process_group, devices_of_group(process_group)[0])
    waits: datetime.timedelta = timeout_of_backend(backend.options)
    return waits.total_seconds()


def _seconds_of_environment() -> float | None:
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise OptionError(f"{VARIABLE}={text!r} is not a number of seconds", advice=("write one; 0 compares nothing",))
    return seconds


def agree(
    name: str,
    programs: Mapping[Phase, Trace],
    groups: Mapping[str, tuple[int, ...]],
    raised: BaseException | None = None,
) -> None:
    """Wait until all ranks of the process groups of a program have published the same collectives as this one.

    Args:
        name: the name of the program, for messages.
        programs: the traces of the program that run, in order.
        groups: ranks of the process groups in which they communicate, by name.
        raised: the exception that the program ends with. If ranks do not agree, it is raised here, with a note.

    Raises:
        CollectiveMismatchError: another rank waits with different collectives, or publishes none within `timeout`.
    """
    try:
        _agree(name, programs, groups, raised)
    except CollectiveMismatchError as error:
        if raised is None:
            raise
        if contents(raised) is not None:  # it holds tensors that only a run computes
            raise error from raised
        mismatch = error
    else:
        return
    raised.add_note(f"Thunder: the program did not communicate before, as {mismatch}")
    raise raised


def _agree(
    name: str,
    programs: Mapping[Phase, Trace],
    groups: Mapping[str, tuple[int, ...]],
    raised: BaseException | None,
) -> None:
    if _seconds_of_environment() == 0:
        return
    compared = {group: ranks for group, ranks in groups.items() if _can_compare(group, ranks)}
    found: dict[str, list[Collective]] = {group: [] for group in compared}
    for _, issue in issues_of_programs(programs) if compared else ():
        for collective in issue.collectives:
            if collective.group in found and collective.kind not in ONE_SIDED:
                found[collective.group].append(collective)
    comparisons = [
        _Comparison.of(name, group, compared[group], found[group], raised) for group in compared if found[group]
    ]
    new = [each for each in comparisons if each.key not in _agreed(each.store)]
    for each in new:
        each.publish()
    start = time.monotonic()
    for place, each in enumerate(new):
        try:
            eager = each.wait(start)
        except CollectiveMismatchError:
            for other in (*new[:place], *new[place + 1 :]):
                other.withdraw()
            raise
        if eager:
            for other in new:
                other.withdraw()
            raise EagerOnAllRanks("another rank runs the call in eager PyTorch", compared)
        _agreed(each.store).add(each.key)


def join_eager_call(name: str, needed: EagerOnAllRanks) -> None:
    """Wait until all ranks of the process groups of a program are about to run this call of it in eager PyTorch.

    Each rank writes the number of such calls at ``prefix/rank/eager``. A rank that waits with a compiled program, and
    finds a larger number than its own, joins.

    Args:
        name: the name of the program, for messages.
        needed: the reason, of which there is one warning.

    Raises:
        CollectiveMismatchError: a rank does not join within `timeout`.
    """
    if _seconds_of_environment() == 0:
        return
    store = get_default_store()
    known, rank = _of_store(store), torch.distributed.get_rank()
    compared = {group: ranks for group, ranks in needed.groups.items() if _can_compare(group, ranks)}
    prefixes = {group: _prefix_of(group, ranks) for group, ranks in compared.items()}

    def count(calls: int) -> None:
        for prefix in prefixes.values():
            known.eager_calls[prefix] += calls
            store.set(f"{prefix}/{rank}/eager", str(known.eager_calls[prefix]))

    count(1)
    if (name, str(needed)) not in known.told:
        known.told.add((name, str(needed)))
        warn_user(f"{name} is run by eager PyTorch on all ranks: {needed}", UncacheableWarning)
    start, pause = time.monotonic(), _PAUSE
    for group, ranks in compared.items():
        prefix = prefixes[group]
        while absent := [
            other for other in ranks if other != rank and _eager_calls(store, prefix, other) < known.eager_calls[prefix]
        ]:
            if time.monotonic() >= start + timeout(group):
                count(-1)
                raise CollectiveMismatchError(
                    f"rank {rank} runs a call of {name} in eager PyTorch, as {needed}, and rank {_listed(absent)} of "
                    f"process group {group!r} did not join within {timeout(group):.3g} s",
                    advice=("have all ranks take the same path through the program",),
                )
            time.sleep(pause)
            pause = min(pause * 1.1, _LONGEST_PAUSE)


def _eager_calls(store: Any, prefix: str, rank: int) -> int:
    """The number of calls that a rank runs or ran in eager PyTorch on all ranks of a process group."""
    key = f"{prefix}/{rank}/eager"
    return int(store.get(key)) if store.check([key]) else 0


def _prefix_of(group: str, ranks: tuple[int, ...]) -> str:
    return f"thunder_collectives/{group}/{hashlib.sha256(repr(ranks).encode()).hexdigest()[:16]}"


def publish_exception(name: str, error: Exception) -> None:
    """Write to the store that a call of a compiled program raised an exception, for ranks that wait for this one.

    Args:
        name: the name of the program.
        error: the exception. A note is added to it if the store of the process group cannot be written.
    """
    if not _compares():
        return
    try:
        store = get_default_store()
        known = _of_store(store)
        known.exceptions += 1
        known.shows_exception = True
        notice = [known.exceptions, f"{_text_of(error)}, in a call of {name}", time.time()]
        store.set(_key_of_exception(torch.distributed.get_rank()), json.dumps(notice))
    except RuntimeError as lost:  # of the store, for example if another rank has ended
        error.add_note(f"Thunder: ranks that wait for this one cannot be notified: {lost}")


def withdraw_exception() -> None:
    """Remove this rank's exception from the store, because the rank continues: other ranks keep waiting for it."""
    if not _compares():
        return
    store = get_default_store()
    known = _of_store(store)
    if known.shows_exception:
        known.shows_exception = False
        store.set(_key_of_exception(torch.distributed.get_rank()), json.dumps([known.exceptions, "", 0]))


def _compares() -> bool:
    """Whether there are other ranks that may wait for this one."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() < 2:
        return False
    return distributed.get_backend() != "fake" and _seconds_of_environment() != 0


def _key_of_exception(rank: int) -> str:
    return f"thunder_collectives/exception/{rank}"


def _text_of(error: BaseException) -> str:
    text = str(error).partition("\n")[0]
    name = type(error).__name__
    return f"{name}: {text[:200]}" if text else name


def _can_compare(group: str, ranks: tuple[int, ...]) -> bool:
    if len(ranks) < 2 or torch.distributed.get_rank() not in ranks:
        return False
    return torch.distributed.get_backend(process_group_named(group)) != "fake"


@dataclass
class _Known:
    """The collectives that this process published and compared, in one store."""

    published: dict[str, _Comparison] = field(default_factory=dict)  # the published programs, by key
    agreed: set[str] = field(default_factory=set)
    mismatches: Counter[str] = field(default_factory=Counter)  # by process group; equal on all of its ranks
    eager_calls: Counter[str] = field(default_factory=Counter)  # on all ranks, by prefix
    told: set[tuple[str, str]] = field(default_factory=set)  # names of programs and reasons of these calls
    exceptions: int = 0  # number of exceptions that calls raised
    shows_exception: bool = False  # whether the store has the last exception


_lock: Final = threading.Lock()
renew_in_child(sys.modules[__name__], "_lock")
_known: Final[WeakKeyDictionary[Any, _Known]] = WeakKeyDictionary()  # each default process group has another store


def _of_store(store: Any) -> _Known:
    with _lock:
        return _known.setdefault(store, _Known())


def _agreed(store: Any) -> set[str]:
    return _of_store(store).agreed


@dataclass(frozen=True)
class _Comparison:
    """The collectives of one program in one process group, and where ranks publish them.

    At ``prefix/rank/digest`` a rank writes the texts of its collectives, and the exception with which the program ends.
    At ``prefix/rank`` it writes the digest that it waits for (empty if it does not wait) and the number of earlier
    mismatches. All ranks count the same mismatches, so a wait with a smaller number has ended.

    A program with varying sizes on one rank agrees with a program of constant sizes on another, because ranks may have
    been called with different sizes before: ``base`` is the digest without numbers of elements. Ranks with programs of
    this base write ``prefix/rank/any/base``, and those with varying sizes also ``prefix/rank/varies/base``.
    """

    name: str
    group: str
    ranks: tuple[int, ...]
    collectives: Sequence[Collective]
    rank: int
    prefix: str
    digest: str
    base: str
    varies: bool
    raised: str

    @classmethod
    def of(
        cls,
        name: str,
        group: str,
        ranks: tuple[int, ...],
        collectives: Sequence[Collective],
        raised: BaseException | None,
    ) -> _Comparison:
        signatures = list(map(_signature, collectives))
        digest = hashlib.sha256(repr(signatures).encode()).hexdigest()
        base = hashlib.sha256(repr([(kind, *others) for kind, _, *others in signatures]).encode()).hexdigest()
        varies = any(each.varies for each in collectives)
        prefix = _prefix_of(group, ranks)
        text = "" if raised is None else _text_of(raised)
        rank = torch.distributed.get_rank()
        return cls(name, group, ranks, collectives, rank, prefix, digest, base, varies, text)

    @property
    def store(self) -> Any:
        """The store of the default process group. It is not a field: `_known` would keep the store alive."""
        return get_default_store()

    @property
    def key(self) -> str:
        return f"{self.prefix}/{self.digest}"

    def publish(self) -> None:
        """Write the collectives to the store, and that this rank waits for them."""
        known = _of_store(self.store)
        self.store.set(f"{self.prefix}/{self.rank}/{self.digest}", json.dumps([self._texts(), self.raised]))
        for path in self._base_paths:
            self.store.set(path, self.digest)
        known.published[self.key] = self
        waits_for = [self.digest, known.mismatches[self.prefix], self.base, self.varies]
        self.store.set(f"{self.prefix}/{self.rank}", json.dumps(waits_for))

    @property
    def _base_paths(self) -> list[str]:
        kinds = ("any", "varies") if self.varies else ("any",)
        return [f"{self.prefix}/{self.rank}/{kind}/{self.base}" for kind in kinds]

    def _is_published_by(self, rank: int) -> bool:
        """Whether another rank has published a program with the same collectives."""
        path = f"{self.prefix}/{rank}"
        matching = "any" if self.varies else "varies"
        return any(self.store.check([each]) for each in (f"{path}/{self.digest}", f"{path}/{matching}/{self.base}"))

    def _texts(self) -> list[list[str]]:
        return [[repr(_signature(each)), each.describe()] for each in self.collectives]

    def wait(self, start: float) -> bool:
        """Block until all other ranks have published the same collectives.

        Args:
            start: when this rank began to wait, by `time.monotonic`.

        Returns:
            Whether another rank waits for all to run the call in eager PyTorch instead.

        Raises:
            CollectiveMismatchError: a rank waits with different collectives, or publishes none within `timeout`.
        """
        seconds = timeout(self.group)
        exceptions = _Exceptions(self.store)
        pause = _PAUSE
        waiting = [rank for rank in self.ranks if rank != self.rank]
        while waiting:
            waiting = [rank for rank in waiting if not self._is_published_by(rank)]
            joined = _of_store(self.store).eager_calls[self.prefix]
            if any(_eager_calls(self.store, self.prefix, rank) > joined for rank in waiting):
                return True
            for rank in waiting:
                self._compare_with_waiting(rank)
            if not waiting:
                break
            now = time.monotonic()
            ended = now >= start + seconds
            if ended or pause >= _LONGEST_PAUSE:  # an exception waits for long anyway
                raised = exceptions.read(waiting, now, at_once=ended)
                if ended or raised:
                    self.withdraw()
                    raise self._absent(waiting, now - start, raised)
            time.sleep(pause)
            pause = min(pause * 1.1, _LONGEST_PAUSE)
        self.store.set(f"{self.prefix}/{self.rank}", _NOTHING)
        return False

    def _compare_with_waiting(self, rank: int) -> None:
        """Raise if a rank waits for collectives that this one never published: both would wait forever."""
        known = _of_store(self.store)
        if not self.store.check([f"{self.prefix}/{rank}"]):
            return
        digest, mismatches, base, varies = json.loads(self.store.get(f"{self.prefix}/{rank}").decode())
        before = known.mismatches[self.prefix]
        if not digest or mismatches < before:
            return
        ours = [each for each in known.published.values() if each.prefix == self.prefix]
        if mismatches == before and any(
            each.digest == digest or (each.base == base and (each.varies or varies)) for each in ours
        ):
            return
        if self._is_published_by(rank):
            return  # in the meantime
        known.mismatches[self.prefix] += 1
        raise self._mismatch(rank, digest)

    def withdraw(self) -> None:
        """Remove the collectives from the store: this rank does not run them, so later ranks must not match them."""
        known = _of_store(self.store)
        known.published.pop(self.key, None)
        known.agreed.discard(self.key)
        remaining = {path for each in known.published.values() for path in each._base_paths}
        for path in (f"{self.prefix}/{self.rank}/{self.digest}", *self._base_paths):
            if path not in remaining:
                self.store.delete_key(path)
        self.store.set(f"{self.prefix}/{self.rank}", _NOTHING)

    def _mismatch(self, rank: int, digest: str) -> CollectiveMismatchError:
        theirs, raised = json.loads(self.store.get(f"{self.prefix}/{rank}/{digest}").decode())
        ours = self._texts()
        pairs = zip(ours, theirs, strict=False)
        place = next((at for at, (one, other) in enumerate(pairs) if one[0] != other[0]), min(len(ours), len(theirs)))
        shown = [f"{of[place][1]}" if place < len(of) else f"none, there are {place}" for of in (ours, theirs)]
        return CollectiveMismatchError(
            f"ranks {self.rank} and {rank} communicate differently in process group {self.group!r} of ranks "
            f"{_listed(self.ranks)}, in the first call of {self.name}. They differ from collective {place + 1} on: "
            f"rank {self.rank} has {shown[0]}; rank {rank} has {shown[1]}{_raising(self.rank, self.raised)}"
            f"{_raising(rank, raised)}",
            location=self._location(place),
            advice=(
                "have all ranks take the same path through the program",
                f"{VARIABLE}=0 in the environment compares nothing",
            ),
        )

    def _absent(self, ranks: Sequence[int], seconds: float, raised: Mapping[int, str]) -> CollectiveMismatchError:
        first = self.collectives[0].describe()
        advice: tuple[str, ...] = (
            "see what the other rank did: it may have ended, or taken another path",
            f"compare collectives on all ranks or on none: with {VARIABLE}=0, or without the transform "
            "distributed.agreement, a rank does not take part",
            f"give {VARIABLE} in the environment, or the process group, more seconds where ranks start, or compile, at "
            "different times",
        )
        if raised:
            advice = (
                "see to the exception of the other rank",
                f"give {VARIABLE} in the environment the seconds to wait for a rank that goes on after an exception",
            )
        return CollectiveMismatchError(
            f"rank {self.rank} is to communicate in process group {self.group!r} of ranks {_listed(self.ranks)}, in "
            f"the first call of {self.name}. Within {seconds:.3g} s rank {_listed(ranks)} has not compiled a program "
            f"with the same {len(self.collectives)} collectives, of which the first is {first}"
            + "".join([f". Rank {rank} raised {text}" for rank, text in list(raised.items())[:3]]),
            location=self._location(0),
            advice=advice,
        )

    def _location(self, place: int) -> SourceLocation | None:
        return self.collectives[min(place, len(self.collectives) - 1)].location


class _Exceptions:
    """The exceptions that other ranks raised, and the time at which this rank first read them."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._seen: dict[tuple[int, int], float] = {}
        self._start = time.time()
        self._waits = _seconds_of_environment() is None  # else for the number of seconds in the environment variable

    def read(self, ranks: Sequence[int], now: float, *, at_once: bool) -> dict[int, str]:
        """The exceptions by rank, if enough time to continue has passed since each; all of them with ``at_once``."""
        found = {}
        for rank in ranks:
            key = _key_of_exception(rank)
            if not self._store.check([key]):
                continue
            count, text, at = json.loads(self._store.get(key).decode())
            since = self._seen.setdefault((rank, count), now)
            if self._start - at < _RECENT and (at_once or (self._waits and now - since >= _SECONDS_AFTER_EXCEPTION)):
                found[rank] = text
        return found


def _raising(rank: int, text: str) -> str:
    return f". Rank {rank} then raises {text}" if text else ""


def _signature(collective: Collective) -> tuple[Any, ...]:
    """The properties of a collective that must be equal on all ranks of its process group."""
    sizes: list[int] | None = None
    if collective.even:
        sizes = [torch.Size(shape).numel() for shape, _ in collective.tensors]
    dtypes = sorted({str(dtype) for _, dtype in collective.tensors})
    return collective.kind, sizes, dtypes, collective.reduction


def _listed(ranks: Sequence[int]) -> str:
    shown = [str(rank) for rank in ranks[:8]]
    return ", ".join([*shown, f"{len(ranks) - 8} more"] if len(ranks) > 8 else shown)
