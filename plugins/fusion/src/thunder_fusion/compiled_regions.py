"""A cache of compiled regions: equal regions of all layers and programs are compiled once, and stored on disk."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final

from thunder_core.errors import ThunderError
from thunder_core.executors.executor import (
    CompiledRegions,
    RegionCall,
    RegionCounts,
    declined_by_failing,
    problem_of_calls,
)
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.trace import Trace
from thunder_fusion.artifacts import RegionArtifacts
from thunder_fusion.behind import Candidate, candidates, replaced_together
from thunder_fusion.keys import trace_key
from thunder_fusion.requests import flags

if TYPE_CHECKING:
    from thunder_fusion.executor import FusionExecutor

_cache: Final = BoundedCache[RegionCall | str](1024)


def compiled_once(executor: FusionExecutor, regions: Sequence[Trace]) -> CompiledRegions:
    """For each region the executor's result for an equal one, or for this one.

    Regions that are neither cached in this process nor on disk are passed to the executor together. Regions that are
    smaller than the executor's limit are declined.
    """
    settings, own = flags(), executor.compiling_ahead()
    calls: dict[int, RegionCall | str] = {}
    keys: dict[int, Hashable] = {}
    keys_of_all: dict[int, Hashable | None] = {}
    for index, region in enumerate(regions):
        count = len(region.symbols)
        if count < executor.smallest:
            calls[index] = f"its region has {count} of {executor.smallest} required operations"
            continue
        keys_of_all[index] = trace_key(region)
        keys[index] = (index,) if keys_of_all[index] is None else (own, keys_of_all[index], settings)
    different = {key: index for index, key in reversed(keys.items())}
    results = _cache.lookup(different)
    known = len(results)
    wanted = {key: index for index, key in keys.items() if different[key] == index and key not in results}
    compiled, counts = _compiled(
        executor, [regions[index] for index in wanted.values()], [keys_of_all[i] for i in wanted.values()]
    )
    for (key, index), result in zip(wanted.items(), compiled, strict=True):
        results[key] = result
        if keys_of_all[index] is not None and not isinstance(result, Candidate):
            _cache.add(key, result)
    calls.update({index: results[key] for index, key in keys.items()})
    together = replaced_together([calls[index] for index in range(len(regions))])
    return CompiledRegions(together, RegionCounts(regions=len(keys), known=known) + counts)


def _compiled(
    executor: FusionExecutor, regions: Sequence[Trace], keys: Sequence[Hashable | None]
) -> tuple[list[RegionCall | str], RegionCounts]:
    """Compiled regions, from disk or from the executor."""
    if not regions:
        return [], RegionCounts()
    notes: list[str] = []
    settings = flags()
    artifacts = RegionArtifacts.of(executor, settings, notes)
    compiled: list[RegionCall | str | None] = [artifacts.read(*item) for item in zip(regions, keys, strict=True)]
    missing = [index for index, result in enumerate(compiled) if result is None]
    count = len(missing)
    if missing and executor.compiles_behind:
        own = executor.compiling_ahead()
        known = [None if keys[index] is None else (own, keys[index], settings) for index in missing]
        found = candidates(own, [regions[index] for index in missing], known, _cache.add)
        for index, candidate in zip(missing, found, strict=True):
            compiled[index] = candidate
        missing = [index for index, candidate in zip(missing, found, strict=True) if candidate is None]
    if missing:
        for index, result in zip(missing, _fused(executor, [regions[index] for index in missing]), strict=True):
            compiled[index] = result
            if not isinstance(result, str):
                artifacts.write(result, regions[index], keys[index])
        artifacts.prune()
    counts = RegionCounts(read=len(regions) - count, compiled=count, notes=tuple(notes))
    return [result for result in compiled if result is not None], counts


def _fused(executor: FusionExecutor, regions: Sequence[Trace]) -> Sequence[RegionCall | str]:
    """The executor's results, or reasons. If one of several regions raises, the others are still compiled."""
    problem: Exception | str
    try:
        results = executor.fuse_all(regions)
        problem = problem_of_calls(results, len(regions))
        if not problem:
            return results
    except ThunderError:
        raise
    except Exception as error:  # noqa: BLE001 - becomes the reason
        problem = error
    if len(regions) > 1:
        return [result for region in regions for result in _fused(executor, [region])]
    first, count = regions[0].symbols[0], len(regions[0].symbols)
    what = f"a region of {count} operations that begins with {first.symbol.name}"
    return [declined_by_failing(executor.name, what, "fuse", first.location, problem)]
