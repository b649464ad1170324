"""Block sizes of kernels: chosen by a table, or by timing on first use and kept on disk.

Choices are artifacts of the core's store, which any number of processes share. Nothing is timed while a stream is
captured into a CUDA graph, in Triton's interpreter, or where the choice must not depend on times: under the option
``autotune: false`` and `torch.use_deterministic_algorithms`. There the first candidate is taken, so that candidates
begin with one that is good without timing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

import torch
import triton
from triton.runtime.errors import OutOfResources
from triton.testing import do_bench

from thunder_core.executors.artifacts import (
    ArtifactCache,
    DamagedArtifact,
    artifact_cache,
    hardware,
    software,
    source_hash,
)
from thunder_plugin_triton.environment import INTERPRETED

Configuration = dict[str, int]
"""Keyword arguments of a launch: block sizes, ``num_warps``, ``num_stages``."""
Launch = Callable[[Configuration], object]
Key = tuple[Hashable, ...]

_FIXED: Final = ContextVar("thunder_plugin_triton_fixed_choice", default=False)
_WARM_UP, _REPEAT = 5, 20  # milliseconds for each candidate


@contextmanager
def fixed_choice() -> Iterator[None]:
    """Kernels that are launched inside are not tuned."""
    token = _FIXED.set(True)
    try:
        yield
    finally:
        _FIXED.reset(token)


def rows_bucket(rows: int) -> int:
    """Numbers of rows that share a choice: up to 256, 2048, 16384, and so on."""
    bucket = 256
    while bucket < rows:
        bucket *= 8
    return bucket


@dataclass(frozen=True, eq=False)
class Tunable:
    """A launch whose block sizes are chosen.

    Attributes:
        name: in the key on disk.
        candidates: configurations for a key, at most eight; the first is what is taken without timing.
    """

    name: str
    candidates: Callable[..., Sequence[Configuration]]
    _tuned: dict[tuple[torch.device, Key], Configuration] = field(default_factory=dict, init=False, repr=False)
    _fixed: dict[tuple[torch.device, Key], Configuration] = field(default_factory=dict, init=False, repr=False)

    def run(self, device: torch.device, key: Key, launch: Launch) -> None:
        """Launch with the configuration for ``key``.

        Args:
            device: of all tensors; it becomes the current one for the launch.
            key: what ``candidates`` is called with: sizes, or buckets of them, and dtypes.
            launch: called once, or many times while candidates are timed. It overwrites its results and changes nothing
                else.
        """
        if not _is_current(device):
            with torch.cuda.device(device):
                return self.run(device, key, launch)
        if _FIXED.get() or torch.are_deterministic_algorithms_enabled():
            chosen = self._fixed.get((device, key)) or self._first(device, key)
        else:
            chosen = self._tuned.get((device, key)) or self._choose(device, key, launch)
        if INTERPRETED:
            _without_warnings(launch, chosen)
        else:
            launch(chosen)
        return None

    def _first(self, device: torch.device, key: Key) -> Configuration:
        self._fixed[device, key] = chosen = self.candidates(*key)[0]
        return chosen

    def _choose(self, device: torch.device, key: Key, launch: Launch) -> Configuration:
        candidates = self.candidates(*key)
        if len(candidates) > 1 and not INTERPRETED:
            if torch.cuda.is_current_stream_capturing():
                return candidates[0]  # and not kept: the next launch outside of a capture may time them
            chosen = fastest(f"{self.name} {key}", device, candidates, launch)
        else:
            chosen = candidates[0]
        self._tuned[device, key] = chosen
        return chosen


def _without_warnings(launch: Launch, chosen: Configuration) -> None:
    """The interpreter computes with NumPy, which warns of infinities; a GPU does not."""
    import numpy

    with numpy.errstate(all="ignore"):
        launch(chosen)


def _is_current(device: torch.device) -> bool:
    return INTERPRETED or device.index == torch.cuda.current_device()


def fastest(name: str, device: torch.device, candidates: Sequence[Configuration], launch: Launch) -> Configuration:
    """The candidate that an earlier process found, or the one that takes the least time now."""
    text = f"triton tuning {triton.__version__}; {name}; {hardware(device)}; {software()}; "
    text += f"{source_hash('thunder_plugin_triton')}; {json.dumps(candidates)}"
    store = artifact_cache()
    kept = None if store is None else _kept(store, text)
    if kept is not None and kept in candidates:
        return kept
    times = [_milliseconds(launch, candidate) for candidate in candidates]
    chosen = candidates[times.index(min(times))]
    if store is not None:
        store.put(text, json.dumps(chosen).encode())  # where that is not possible, the next process times again
    return chosen


def _kept(store: ArtifactCache, key: str) -> Configuration | None:
    if store.unsuitable() is not None:
        return None
    try:
        data = store.get(key)
    except DamagedArtifact:
        store.discard(key)
        return None
    found: Configuration | None = None if data is None else json.loads(data)
    return found


def _milliseconds(launch: Launch, candidate: Configuration) -> float:
    """The median time of a launch; infinity for one that needs more than the GPU has."""
    try:
        found: float = do_bench(lambda: launch(candidate), warmup=_WARM_UP, rep=_REPEAT, return_mode="median")
    except OutOfResources:
        return math.inf
    return found
