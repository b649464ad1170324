"""Ranks compare the collectives of a new program before it runs for the first time.

Each rank publishes the ordered collectives of each process group of the program in the store of the default process
group, and looks for those of the other members of the group. Nothing is communicated on devices, and calls of programs
that are known pay nothing. What was published stays: a rank that compiles a program at another call than the others
goes on where its collectives are among those that they published before.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch

from thunder_core.errors import CollectiveMismatchError, OptionError
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.trace import Trace
from thunder_core.passes.base import Phase
from thunder_core.pytorch_internals import get_default_store, process_group_named
from thunder_core.runtime.collectives import Collective, issues_of_programs

VARIABLE: Final = "THUNDER_COLLECTIVES_TIMEOUT"
_SECONDS: Final = 30.0
_PAUSE: Final = 0.01  # seconds between two looks at the store
_ONE_SIDED: Final = frozenset({"send", "recv"})


def timeout() -> float:
    """Seconds that a rank waits for what the others publish; 0 where nothing is compared.

    Raises:
        OptionError: the environment variable is no number.
    """
    text = os.environ.get(VARIABLE, "").strip()
    try:
        seconds = float(text) if text else _SECONDS
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise OptionError(f"{VARIABLE}={text!r} is no number of seconds", advice=("write one; 0 compares nothing",))
    return seconds


def agree(name: str, programs: Mapping[Phase, Trace], groups: Mapping[str, tuple[int, ...]]) -> None:
    """Wait until all ranks of the process groups of a program have published the same collectives as this one.

    Args:
        name: of the program, for messages.
        programs: its parts that run, in order.
        groups: ranks of the process groups that they communicate in, by name.

    Raises:
        CollectiveMismatchError: another rank waits with other collectives, or publishes none in the time of `timeout`.
    """
    compared = {group: ranks for group, ranks in groups.items() if _can_compare(group, ranks)}
    seconds = timeout() if compared else 0.0
    if not seconds:
        return
    found: dict[str, list[Collective]] = {group: [] for group in compared}
    for _, issue in issues_of_programs(programs):
        for collective in issue.collectives:
            if collective.group in found and collective.kind not in _ONE_SIDED:
                found[collective.group].append(collective)
    comparisons = [_Comparison.of(name, group, compared[group], found[group]) for group in compared if found[group]]
    new = [each for each in comparisons if each.key not in _agreed(each.store)]
    for each in new:
        each.publish()
    end = time.monotonic() + seconds
    for place, each in enumerate(new):
        try:
            each.wait(end, seconds)
        except CollectiveMismatchError:
            for other in (*new[:place], *new[place + 1 :]):
                other.withdraw()
            raise
        _agreed(each.store).add(each.key)


def _can_compare(group: str, ranks: tuple[int, ...]) -> bool:
    if len(ranks) < 2 or torch.distributed.get_rank() not in ranks:
        return False
    return torch.distributed.get_backend(process_group_named(group)) != "fake"


@dataclass
class _Known:
    """What this process published and agreed on, in one store."""

    published: set[str] = field(default_factory=set)
    agreed: set[str] = field(default_factory=set)
    mismatches: Counter[str] = field(default_factory=Counter)  # so far, by process group: as many on all its ranks


_lock: Final = threading.Lock()
_known: Final[WeakKeyDictionary[Any, _Known]] = WeakKeyDictionary()  # each default process group has a store of its own


def _of_store(store: Any) -> _Known:
    with _lock:
        return _known.setdefault(store, _Known())


def _agreed(store: Any) -> set[str]:
    return _of_store(store).agreed


@dataclass(frozen=True)
class _Comparison:
    """The collectives of one program in one process group, and where ranks publish them.

    A rank writes the texts of its collectives at ``prefix/rank/digest``, and at ``prefix/rank`` the digest that it
    waits for, empty for none, with the number of mismatches before. A mismatch is one on all ranks, so what a rank with
    fewer waits for is over.
    """

    name: str
    group: str
    ranks: tuple[int, ...]
    collectives: Sequence[Collective]
    store: Any
    rank: int
    prefix: str
    digest: str

    @classmethod
    def of(cls, name: str, group: str, ranks: tuple[int, ...], collectives: Sequence[Collective]) -> _Comparison:
        members = hashlib.sha256(repr(ranks).encode()).hexdigest()[:16]
        digest = hashlib.sha256(repr(list(map(_signature, collectives))).encode()).hexdigest()
        prefix = f"thunder_collectives/{group}/{members}"
        store, rank = get_default_store(), torch.distributed.get_rank()
        return cls(name, group, ranks, collectives, store, rank, prefix, digest)

    @property
    def key(self) -> str:
        return f"{self.prefix}/{self.digest}"

    def publish(self) -> None:
        """Let the others see the collectives, and that this rank waits for them."""
        known = _of_store(self.store)
        texts = [[repr(_signature(each)), each.describe()] for each in self.collectives]
        self.store.set(f"{self.prefix}/{self.rank}/{self.digest}", json.dumps(texts))
        known.published.add(self.key)
        self.store.set(f"{self.prefix}/{self.rank}", json.dumps([self.digest, known.mismatches[self.prefix]]))

    def wait(self, end: float, seconds: float) -> None:
        """Return when all other ranks have published the same.

        Raises:
            CollectiveMismatchError: one waits with other collectives, or has published none when ``end`` has come.
        """
        waiting = [rank for rank in self.ranks if rank != self.rank]
        while waiting:
            waiting = [rank for rank in waiting if not self.store.check([f"{self.prefix}/{rank}/{self.digest}"])]
            for rank in waiting:
                self._compare_with_waiting(rank)
            if waiting and time.monotonic() >= end:
                self.withdraw()
                raise self._absent(waiting, seconds)
            if waiting:
                time.sleep(_PAUSE)
        self.store.set(f"{self.prefix}/{self.rank}", json.dumps(["", 0]))

    def _compare_with_waiting(self, rank: int) -> None:
        """Raise for a rank that waits for collectives that this one never published: both would wait for ever."""
        known = _of_store(self.store)
        if not self.store.check([f"{self.prefix}/{rank}"]):
            return
        digest, mismatches = json.loads(self.store.get(f"{self.prefix}/{rank}").decode())
        before = known.mismatches[self.prefix]
        if not digest or mismatches < before:
            return
        if mismatches == before and f"{self.prefix}/{digest}" in known.published:
            return
        if self.store.check([f"{self.prefix}/{rank}/{self.digest}"]):
            return  # it published ours in the meantime
        known.mismatches[self.prefix] += 1
        raise self._mismatch(rank, digest)

    def withdraw(self) -> None:
        """As this rank does not run the program, no rank that comes later is to take it for one that does."""
        known = _of_store(self.store)
        known.published.discard(self.key)
        known.agreed.discard(self.key)
        self.store.delete_key(f"{self.prefix}/{self.rank}/{self.digest}")
        self.store.set(f"{self.prefix}/{self.rank}", json.dumps(["", 0]))

    def _mismatch(self, rank: int, digest: str) -> CollectiveMismatchError:
        theirs = json.loads(self.store.get(f"{self.prefix}/{rank}/{digest}").decode())
        ours = [[repr(_signature(each)), each.describe()] for each in self.collectives]
        pairs = zip(ours, theirs, strict=False)
        place = next((at for at, (one, other) in enumerate(pairs) if one[0] != other[0]), min(len(ours), len(theirs)))
        shown = [f"{of[place][1]}" if place < len(of) else f"none, there are {place}" for of in (ours, theirs)]
        return CollectiveMismatchError(
            f"ranks {self.rank} and {rank} communicate differently in process group {self.group!r} of ranks "
            f"{_listed(self.ranks)}, in the first call of {self.name}. They differ from collective {place + 1} on: "
            f"rank {self.rank} has {shown[0]}; rank {rank} has {shown[1]}",
            location=self._location(place),
            advice=(
                "have all ranks take the same path through the program",
                f"{VARIABLE}=0 in the environment compares nothing",
            ),
        )

    def _absent(self, ranks: Sequence[int], seconds: float) -> CollectiveMismatchError:
        first = self.collectives[0].describe()
        return CollectiveMismatchError(
            f"rank {self.rank} is to communicate in process group {self.group!r} of ranks {_listed(self.ranks)}, in "
            f"the first call of {self.name}. Within {seconds:g} s rank {_listed(ranks)} has not compiled a program "
            f"with the same {len(self.collectives)} collectives, of which the first is {first}",
            location=self._location(0),
            advice=(
                "see what the other rank did: it may have raised an error, or taken another path",
                f"give {VARIABLE} in the environment more seconds where ranks start, or compile, at different times",
            ),
        )

    def _location(self, place: int) -> SourceLocation | None:
        return self.collectives[min(place, len(self.collectives) - 1)].location


def _signature(collective: Collective) -> tuple[Any, ...]:
    """What has to be the same on all ranks of its process group."""
    sizes: list[int] | None = None
    if collective.even:
        sizes = [torch.Size(shape).numel() for shape, _ in collective.tensors]
    dtypes = sorted({str(dtype) for _, dtype in collective.tensors})
    return collective.kind, sizes, dtypes, collective.reduction


def _listed(ranks: Sequence[int]) -> str:
    shown = [str(rank) for rank in ranks[:8]]
    return ", ".join([*shown, f"{len(ranks) - 8} more"] if len(ranks) > 8 else shown)
