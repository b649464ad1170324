"""All graphs of one device: their lock, their pools, and their eviction."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import torch

from thunder_plugin_cudagraphs.backend import Backend
from thunder_plugin_cudagraphs.memory import Held, Pool

if TYPE_CHECKING:
    from thunder_plugin_cudagraphs.graph import Graph


class DeviceGraphs:
    """The graphs of one device. They share memory and library workspaces, so replays are serialized.

    Attributes:
        backend: captures and replays.
        lock: held while memory of graphs is read or written; not while programs run without a graph.
        pools: graphs share the first one unless they must not overwrite results in it.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.lock = threading.RLock()
        self.pools: list[Pool] = []
        self._graphs: weakref.WeakSet[Graph] = weakref.WeakSet()
        self._clock = itertools.count(1)

    def tick(self) -> int:
        """The next value of a counter."""
        return next(self._clock)

    def new_pool(self) -> Pool:
        """A new pool."""
        pool = Pool(self.backend.new_pool())
        self.pools.append(pool)
        return pool

    def find(self, address: int) -> tuple[Pool, Held] | None:
        """The live block at this address."""
        for pool in self.pools:
            held = pool.find(address)
            if held is not None:
                return pool, held
        return None

    def add(self, graph: Graph) -> None:
        """Register a graph for as long as its program holds it."""
        self._graphs.add(graph)

    def make_room(self, most: int) -> None:
        """Evict the least recently used graphs until there is room for one more."""
        graphs = sorted(self._graphs, key=lambda graph: graph.last_used)
        for graph in graphs[: max(0, len(graphs) - most + 1)]:
            self.drop(graph)

    def drop(self, graph: Graph) -> None:
        """Free a graph. Its results that are in use keep their contents."""
        self.backend.synchronize()
        self._graphs.discard(graph)
        graph.forget()

    def release(self) -> None:
        """Release pools that no graph uses and without results in use."""
        with self.lock:
            used = {id(graph.pool) for graph in self._graphs}
            self.pools = [pool for pool in self.pools if id(pool) in used or pool.alive()]
            for pool in self.pools:
                pool.trim()

    @property
    def nbytes(self) -> int:
        """The memory of all pools, in bytes."""
        with self.lock:
            return sum(self.backend.pool_bytes(pool.handle) for pool in self.pools)


def _cuda(device: torch.device) -> Backend:
    from thunder_plugin_cudagraphs.cuda import CUDABackend

    return CUDABackend(device)


BACKENDS: Final[dict[str, Callable[[torch.device], Backend]]] = {"cuda": _cuda}
"""The backend for each type of device."""

_devices: dict[torch.device, DeviceGraphs] = {}
_devices_lock: Final = threading.Lock()


def device_graphs(device: torch.device) -> DeviceGraphs:
    """The graphs of ``device``; the same object each time."""
    with _devices_lock:
        known = _devices.get(device)
        if known is None:
            known = _devices[device] = DeviceGraphs(BACKENDS[device.type](device))
        return known


def release_memory() -> None:
    """Release memory of freed graphs; PyTorch's allocator caches it until `torch.cuda.empty_cache()`."""
    for device in tuple(_devices.values()):
        device.release()
