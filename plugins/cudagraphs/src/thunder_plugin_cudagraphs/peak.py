"""An estimate of the memory that a program needs."""

from __future__ import annotations

from thunder_core.ir.proxy import TensorProxy, storages_of
from thunder_core.ir.storage_sizes import storage_bytes
from thunder_core.ir.trace import Trace


def peak_bytes(trace: Trace) -> int:
    """Bytes of the storages that a program creates, where most are alive; without workspaces of its ops.

    Args:
        trace: the program, with deletions.
    """
    given = storages_of(trace.inputs)
    sizes = storage_bytes([proxy for op in trace.symbols for proxy in op.outputs()])
    storage_of: dict[str, int] = {}
    names: dict[int, int] = {}
    alive = peak = 0
    for index, op in enumerate(trace.symbols):
        for proxy in op.outputs():
            if isinstance(proxy, TensorProxy) and proxy.storage not in given and proxy.name not in storage_of:
                storage_of[proxy.name] = proxy.storage
                names[proxy.storage] = names.get(proxy.storage, 0) + 1
                alive += sizes[proxy.storage] if names[proxy.storage] == 1 else 0
        peak = max(peak, alive)
        for name in trace.deletions.get(index, ()):
            storage = storage_of.pop(name, None)
            if storage is not None:
                names[storage] -= 1
                alive -= 0 if names[storage] else sizes[storage]
    return peak
