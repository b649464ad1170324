"""Which values of a program keep their memory beyond one run of it."""

from __future__ import annotations

from thunder_core.acquire.acquire import Acquired
from thunder_core.autodiff.joint import Partitioned
from thunder_core.guards.source import ArgumentSource, KeywordSource
from thunder_core.ir.proxy import TensorProxy


def static_inputs(acquired: Acquired) -> frozenset[str]:
    """Names of the inputs that are not reached from the arguments of the call."""
    inputs = zip(acquired.trace.inputs, acquired.sources, strict=True)
    arguments = ArgumentSource | KeywordSource
    return frozenset([proxy.name for proxy, source in inputs if not isinstance(source.root, arguments)])


def computed_for_backward(partitioned: Partitioned) -> frozenset[str]:
    """Names of the saved values that share no memory with an input of the program."""
    inputs = partitioned.forward.inputs
    names = {proxy.name for proxy in inputs}
    memories = {proxy.storage for proxy in inputs if isinstance(proxy, TensorProxy)}
    return frozenset(
        proxy.name
        for proxy in partitioned.saved
        if proxy.name not in names and not (isinstance(proxy, TensorProxy) and proxy.storage in memories)
    )
