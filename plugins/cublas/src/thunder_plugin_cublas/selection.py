"""Which algorithm computes a product: the fastest one here, kept on disk for other processes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

import torch

from thunder_core.errors import ExecutorError
from thunder_core.executors.artifacts import ArtifactCache, DamagedArtifact, artifact_cache
from thunder_core.executors.hardware import hardware, software, source_hash
from thunder_plugin_cublas import library
from thunder_plugin_cublas.library import Algorithm
from thunder_plugin_cublas.product import Product

ROUNDS: Final = 5
"""How often each algorithm is timed. They take turns: the clock of a busy GPU changes with what it computes."""
_TURN: Final = 0.5  # milliseconds; small products are repeated for as long


def must_not_time(device: torch.device) -> bool:
    """Whether a stream is captured, so that nothing can be waited for."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def fastest(
    product: Product, device: torch.device, algorithms: Sequence[Algorithm], launch: Callable[[Algorithm], None]
) -> Algorithm:
    """The algorithm that an earlier process found, or the one that takes the least time now.

    Args:
        product: what they compute.
        device: where; the current one.
        algorithms: one or more; of one, nothing is timed.
        launch: enqueues the product. It writes the result and nothing else.
    """
    if len(algorithms) == 1:
        return algorithms[0]
    codes = [algorithm.code.hex() for algorithm in algorithms]
    text = f"cublas {library.library().version}; {product}; {hardware(device)}; {software()}; "
    text += f"{source_hash('thunder_plugin_cublas')}; {codes}"
    store = artifact_cache()
    kept = None if store is None else _kept(store, text)
    if kept in codes:
        return algorithms[codes.index(kept)]
    times = milliseconds(algorithms, launch)
    place = times.index(min(times))
    if store is not None:
        store.put(text, json.dumps(codes[place]).encode())  # where that is not possible, the next process times again
    return algorithms[place]


def milliseconds(algorithms: Sequence[Algorithm], launch: Callable[[Algorithm], None]) -> list[float]:
    """The median time of each."""
    warm = _timed([(algorithm, 2) for algorithm in algorithms], launch)
    turns = [(algorithm, max(1, math.ceil(_TURN / time))) for algorithm, time in zip(algorithms, warm, strict=True)]
    rounds = [_timed(turns, launch) for _ in range(ROUNDS)]
    return [median(times) for times in zip(*rounds, strict=True)]


def _timed(turns: Sequence[tuple[Algorithm, int]], launch: Callable[[Algorithm], None]) -> list[float]:
    """The time of one launch of each, launched this often."""
    events = []
    for algorithm, repeated in turns:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeated):
            launch(algorithm)
        end.record()
        events.append((start, end, repeated))
    torch.cuda.synchronize()
    return [max(start.elapsed_time(end), 1e-4) / repeated for start, end, repeated in events]


def _kept(store: ArtifactCache, key: str) -> str | None:
    if store.unsuitable() is not None:
        return None
    try:
        data = store.get(key)
    except DamagedArtifact:
        store.discard(key)
        return None
    found: str | None = None if data is None else json.loads(data)
    return found


def no_algorithm(product: Product) -> ExecutorError:
    """What is raised where cuBLASLt proposes none."""
    return ExecutorError(
        f"cublas: cuBLASLt has no algorithm for {product}", advice=("leave the operation to others with `exclude`",)
    )
