"""Infer the metadata of a call's results by running it on fake tensors."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, Final

import torch

from thunder_core.ir.context import Context
from thunder_core.ir.geometry import end
from thunder_core.ir.keys import CanonicalNames, value_key
from thunder_core.ir.proxy import NumberProxy, TensorProxy
from thunder_core.ir.size import Size, known_at_most, on_fakes
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import iterate_proxies, map_leaves
from thunder_core.pytorch_internals import FakeTensor
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_alias, make_fake
from thunder_core.tracing.outcome import Outcome, infer

_ANY_FLOAT: Final = 0.5  # also a probability, an epsilon and a width


def _lesser_offset(one: Size, other: Size) -> Size:
    """The smaller of two offsets; 0 if the facts about varying sizes do not decide which one it is."""
    if known_at_most(other, one):
        return other
    return one if known_at_most(one, other) else 0


class Metadata:
    """Infers and caches outcomes of calls."""

    def __init__(self) -> None:
        self._mode = ObservingFakeMode()
        self._known: dict[Hashable, Outcome | None] = {}

    def outcome(
        self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any], context: Context
    ) -> Outcome | None:
        """The outcome of a call without ints or objects of the trace; None if the call rejects its arguments.

        Floats of the trace decide values of results alone (`Tag.TAKES_FLOATS`), so any float takes their place; except
        in a user's function, which may compare them: then the outcome is None, too.

        Its offsets are relative to the first element of the storage that an argument covers.
        """
        starts: dict[int, Size] = {}
        for proxy in iterate_proxies((args, kwargs)):
            if isinstance(proxy, NumberProxy) and issubclass(proxy.python_type, float) and Tag.LOCAL not in symbol.tags:
                continue
            if not isinstance(proxy, TensorProxy):
                return None
            starts[proxy.storage] = _lesser_offset(proxy.offset, starts.get(proxy.storage, proxy.offset))

        def shifted(leaf: Any) -> Any:
            if isinstance(leaf, TensorProxy) and starts[leaf.storage] != 0:
                return replace(leaf, offset=leaf.offset - starts[leaf.storage])
            return _ANY_FLOAT if isinstance(leaf, NumberProxy) else leaf

        args, kwargs = map_leaves(shifted, (args, kwargs))
        key = (symbol, context, value_key((args, kwargs), CanonicalNames(gradients=True)))
        if key not in self._known:
            self._known[key] = self._infer(symbol, args, kwargs, context)
        return self._known[key]

    def _infer(self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any], context: Context) -> Outcome | None:
        fakes: dict[str, FakeTensor] = {}
        with self._mode, self._mode.observing() as observed, torch.inference_mode(False):
            tensors = [self._fake(proxy, fakes) for proxy in iterate_proxies((args, kwargs))]

            def fake(leaf: Any) -> Any:
                return fakes[leaf.name] if isinstance(leaf, TensorProxy) else on_fakes(leaf)

            args, kwargs = map_leaves(fake, args), map_leaves(fake, kwargs)
            with torch.set_grad_enabled(context.grad_enabled and not context.inference):
                try:
                    return infer(symbol.target, args, kwargs, tensors, observed)[0]
                except Exception:  # noqa: BLE001 - a twin may reject arguments that the in-place method accepts
                    return None

    def _fake(self, proxy: Any, fakes: dict[str, FakeTensor]) -> torch.Tensor:
        if proxy.name not in fakes:
            base = fakes.get(f"storage {proxy.storage}")
            if base is None:
                base = fakes[f"storage {proxy.storage}"] = make_fake(self._mode, proxy, storage_size=end(proxy))
                fakes[proxy.name] = base
            else:
                fakes[proxy.name] = make_alias(base, proxy)
        return fakes[proxy.name]
