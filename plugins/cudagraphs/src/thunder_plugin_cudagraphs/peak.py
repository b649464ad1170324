"""An estimate of the memory that a program needs."""

from __future__ import annotations

from thunder_core.ir.proxy import TensorProxy, storages_of
from thunder_core.ir.storage_sizes import LiveStorages, storage_bytes
from thunder_core.ir.trace import Trace


def peak_bytes(trace: Trace) -> int:
    """Bytes of the storages that a program creates, where most are alive; without workspaces of its ops.

    Args:
        trace: the program, with deletions.
    """
    given = storages_of(trace.inputs)
    sizes = storage_bytes([proxy for op in trace.symbols for proxy in op.outputs()])
    storages, peak = LiveStorages(), 0
    for index, op in enumerate(trace.symbols):
        for proxy in op.outputs():
            if isinstance(proxy, TensorProxy) and proxy.storage not in given:
                storages.hold(proxy.storage, proxy.name, sizes[proxy.storage])
        peak = max(peak, storages.total)
        for name in trace.deletions.get(index, ()):
            storages.release(name)
    return peak
