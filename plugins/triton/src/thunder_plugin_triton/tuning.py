"""Block sizes of kernels, from a table or by timing on first use, with a cache on disk.

Choices are artifacts of the core's store, which processes share. The first candidate is used without timing while a
CUDA graph is captured, in Triton's interpreter, and where results must not depend on times: with the option ``autotune:
false`` and under `torch.use_deterministic_algorithms`. So the first candidate must be a good default.
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
_WARM_UP, _REPEAT = 5, 20  # milliseconds per candidate


@contextmanager
def fixed_choice() -> Iterator[None]:
    """A context in which kernels are not tuned."""
    token = _FIXED.set(True)
    try:
        yield
    finally:
        _FIXED.reset(token)


def rows_bucket(rows: int) -> int:
    """A key for numbers of rows that share a choice: up to 256, 2048, 16384, and so on."""
    bucket = 256
    while bucket < rows:
        bucket *= 8
    return bucket


@dataclass(frozen=True, eq=False)
class Tunable:
    """A kernel launch with tunable block sizes.

    Attributes:
        name: part of the key on disk.
        candidates: from a key to at most eight configurations; the first is the default without timing.
    """

    name: str
    candidates: Callable[..., Sequence[Configuration]]
    _tuned: dict[tuple[torch.device, Key], Configuration] = field(default_factory=dict, init=False, repr=False)
    _fixed: dict[tuple[torch.device, Key], Configuration] = field(default_factory=dict, init=False, repr=False)

    def run(self, device: torch.device, key: Key, launch: Launch) -> None:
        """Launch with the configuration for ``key``.

        Args:
            device: the device of all tensors, which is the current device during the launch.
            key: the arguments of ``candidates``: sizes, or buckets of them, and dtypes.
            launch: called once, or many times for timing. It must overwrite its results and change nothing else.
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
                return candidates[0]  # not cached, so that the next launch outside of a capture can time them
            chosen = fastest(f"{self.name} {key}", device, candidates, launch)
        else:
            chosen = candidates[0]
        self._tuned[device, key] = chosen
        return chosen


def _without_warnings(launch: Launch, chosen: Configuration) -> None:
    """Launch without NumPy's warnings about infinities in the interpreter; a GPU does not warn."""
    import numpy

    with numpy.errstate(all="ignore"):
        launch(chosen)


def _is_current(device: torch.device) -> bool:
    return INTERPRETED or device.index == torch.cuda.current_device()


def fastest(name: str, device: torch.device, candidates: Sequence[Configuration], launch: Launch) -> Configuration:
    """The candidate that an earlier process chose, or the one with the least time."""
    text = f"triton tuning {triton.__version__}; {name}; {hardware(device)}; {software()}; "
    text += f"{source_hash('thunder_plugin_triton')}; {json.dumps(candidates)}"
    store = artifact_cache()
    cached = None if store is None else _cached(store, text)
    if cached is not None and cached in candidates:
        return cached
    times = [_milliseconds(launch, candidate) for candidate in candidates]
    chosen = candidates[times.index(min(times))]
    if store is not None:
        store.put(text, json.dumps(chosen).encode())  # if that fails, the next process times again
    return chosen


def _cached(store: ArtifactCache, key: str) -> Configuration | None:
    try:
        data = store.get(key)
        configuration: Configuration | None = None if data is None else json.loads(data)
    except (DamagedArtifact, ValueError, RecursionError):
        store.discard(key)
        return None
    return configuration


def _milliseconds(launch: Launch, candidate: Configuration) -> float:
    """The median time of a launch; infinity if it exceeds the resources of the GPU."""
    try:
        median: float = do_bench(lambda: launch(candidate), warmup=_WARM_UP, rep=_REPEAT, return_mode="median")
    except OutOfResources:
        return math.inf
    return median
