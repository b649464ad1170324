"""All graphs of one device: their lock, their pools, and which of them has to go."""

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
    """The graphs of one device. They share memory and library workspaces, so they run one after the other.

    Attributes:
        backend: captures and replays.
        lock: held while memory of graphs is looked at or written; not while programs run without one.
        pools: graphs share the first one as long as none has to avoid results in it.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.lock = threading.RLock()
        self.pools: list[Pool] = []
        self._graphs: weakref.WeakSet[Graph] = weakref.WeakSet()
        self._clock = itertools.count(1)

    def tick(self) -> int:
        """A number that grows."""
        return next(self._clock)

    def new_pool(self) -> Pool:
        """A pool that no graph uses yet."""
        pool = Pool(self.backend.new_pool())
        self.pools.append(pool)
        return pool

    def find(self, address: int) -> tuple[Pool, Held] | None:
        """What was given out at this address, and is alive."""
        for pool in self.pools:
            held = pool.find(address)
            if held is not None:
                return pool, held
        return None

    def add(self, graph: Graph) -> None:
        """Remember a graph for as long as its program does."""
        self._graphs.add(graph)

    def make_room(self, most: int) -> None:
        """Drop graphs, those first that were not used for longest, until one more is not too many."""
        graphs = sorted(self._graphs, key=lambda graph: graph.last_used)
        for graph in graphs[: max(0, len(graphs) - most + 1)]:
            self.drop(graph)

    def drop(self, graph: Graph) -> None:
        """Free a graph. Results of it that somebody holds stay as they are."""
        self.backend.synchronize()
        self._graphs.discard(graph)
        graph.forget()

    def release(self) -> None:
        """Give back pools that no graph uses and of which nothing is held."""
        with self.lock:
            used = {id(graph.pool) for graph in self._graphs}
            self.pools = [pool for pool in self.pools if id(pool) in used or pool.alive()]
            for pool in self.pools:
                pool.trim()

    @property
    def nbytes(self) -> int:
        """Memory of all pools."""
        with self.lock:
            return sum(self.backend.pool_bytes(pool.handle) for pool in self.pools)


def _cuda(device: torch.device) -> Backend:
    from thunder_plugin_cudagraphs.cuda import CUDABackend

    return CUDABackend(device)


BACKENDS: Final[dict[str, Callable[[torch.device], Backend]]] = {"cuda": _cuda}
"""What captures on devices of a type."""

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
    """Give memory of graphs back that are gone; PyTorch's allocator keeps it until `torch.cuda.empty_cache()`."""
    for device in tuple(_devices.values()):
        device.release()
