"""Compiled regions: equal ones are compiled once, whatever layer or program they are from, and kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from thunder_core.errors import ThunderError
from thunder_core.executors.defects import declined_by_failing
from thunder_core.executors.executor import FusionExecutor
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.keys import trace_key
from thunder_core.ir.trace import Trace
from thunder_core.passes.region_artifacts import RegionArtifacts

Compiled = Callable[..., Sequence[Any]]
Request = tuple[FusionExecutor, Trace]
"""A region to be compiled, and by whom."""

_cache: Final = BoundedCache[Compiled | str](1024)


@dataclass(slots=True)
class RegionCounts:
    """What became of the regions of a compilation.

    Attributes:
        regions: how many there are.
        known: different ones that were compiled before in this process.
        read: different ones that were read from disk.
        compiled: different ones that were compiled, or refused.
        notes: what went wrong with artifacts on disk.
    """

    regions: int = 0
    known: int = 0
    read: int = 0
    compiled: int = 0
    notes: list[str] = field(default_factory=list)


def flags() -> tuple[Hashable, ...]:
    """PyTorch's settings that compiled code may depend on."""
    return (
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def compiled_once(requests: Sequence[Request], counts: RegionCounts) -> list[Compiled | str]:
    """For each region what its executor gave for an equal one, or gives for this one.

    Those that are neither known in this process nor on disk are handed to their executors together.
    """
    settings = flags()
    own = [trace_key(region) for _, region in requests]
    keys: list[Hashable] = [
        (index,) if key is None else (executor, key, settings)
        for index, (key, (executor, _)) in enumerate(zip(own, requests, strict=True))
    ]
    different = {key: index for index, key in reversed([*enumerate(keys)])}
    answers = _cache.lookup(different)
    counts.regions += len(requests)
    counts.known += len(answers)
    for executor in dict.fromkeys([requests[index][0] for key, index in different.items() if key not in answers]):
        wanted = {
            k: i for k, i in sorted(different.items(), key=_second) if k not in answers and requests[i][0] == executor
        }
        found = _made(executor, [requests[i][1] for i in wanted.values()], [own[i] for i in wanted.values()], counts)
        answers.update(zip(wanted, found, strict=True))
        for (key, index), answer in zip(wanted.items(), found, strict=True):
            if own[index] is not None:
                _cache.add(key, answer)
    return [answers[key] for key in keys]


def _made(
    executor: FusionExecutor, regions: Sequence[Trace], keys: Sequence[Hashable | None], counts: RegionCounts
) -> list[Compiled | str]:
    """Read from disk, or compiled."""
    artifacts = RegionArtifacts.of(executor, flags(), counts.notes)
    found: list[Compiled | str | None] = [artifacts.read(*item) for item in zip(regions, keys, strict=True)]
    missing = [index for index, answer in enumerate(found) if answer is None]
    counts.read += len(regions) - len(missing)
    counts.compiled += len(missing)
    if missing:
        for index, answer in zip(missing, _fused(executor, [regions[index] for index in missing]), strict=True):
            found[index] = answer
            if not isinstance(answer, str):
                artifacts.write(answer, regions[index], keys[index])
        artifacts.prune()
    return [answer for answer in found if answer is not None]


def _fused(executor: FusionExecutor, regions: Sequence[Trace]) -> Sequence[Compiled | str]:
    """What the executor compiled, or why not; of several of which one makes it fail, all others."""
    problem: Exception | str
    try:
        answers = executor.fuse_all(regions)
        fits = isinstance(answers, Sequence) and len(answers) == len(regions)
        if fits and all(callable(answer) or isinstance(answer, str) for answer in answers):
            return answers
        problem = "returned something else than a function, or a reason, for each region"
    except ThunderError:
        raise
    except Exception as error:  # noqa: BLE001 - told as a reason
        problem = error
    if len(regions) > 1:
        return [answer for region in regions for answer in _fused(executor, [region])]
    first, count = regions[0].symbols[0], len(regions[0].symbols)
    what = f"a region of {count} lines that begins with {first.symbol.name}"
    return [declined_by_failing(executor.name, what, "fuse", first.location, problem)]


def _second(item: tuple[Hashable, int]) -> int:
    return item[1]
