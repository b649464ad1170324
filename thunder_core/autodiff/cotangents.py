"""Cotangents of the values of a program, as backward sums them up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder_core.autodiff.derivative import PLAIN, stand_in, sum_stand_in
from thunder_core.autodiff.emitter import JointEmitter
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.symbols.registry import registry


class Cotangents:
    """What each value of a program has as its cotangent so far, while the lines of backward are written.

    Args:
        emitter: takes the lines.

    Attributes:
        known: by name of the value.
    """

    def __init__(self, emitter: JointEmitter) -> None:
        self.emitter = emitter
        self.known: dict[str, TensorProxy] = {}

    def given(self, output: TensorProxy) -> TensorProxy:
        """A new input of the joint trace: the cotangent of an output of the program."""
        self.known[output.name] = self._new(output, self.emitter.builder.name(f"{output.name}_cotangent"))
        return self.known[output.name]

    def add(self, value: Proxy, gradient: TensorProxy, user: BoundSymbol) -> None:
        """Another part of the cotangent of ``value``, which a line for ``user`` gave."""
        known = self.known.get(value.name)
        if known is not None:
            name = self.emitter.builder.name(f"{value.name}_cotangent", numbered=True)
            total = sum_stand_in(known, gradient, name, self.emitter.builder.new_storage())
            self._call(torch.add, (known, gradient), {}, total, user)
            gradient = total
        self.known[value.name] = gradient

    def zeros(self, value: Proxy, user: BoundSymbol) -> TensorProxy:
        """A zero cotangent, for an output of several of which others have one."""
        assert isinstance(value, TensorProxy)
        zeros = self._new(value, self.emitter.builder.name(f"{value.name}_cotangent", numbered=True))
        self._call(torch.zeros, (tuple(value.shape),), {"dtype": value.dtype, "device": value.device}, zeros, user)
        return zeros

    def _new(self, like: TensorProxy, name: str) -> TensorProxy:
        return stand_in(like, name, self.emitter.builder.new_storage())

    def _call(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: TensorProxy,
        user: BoundSymbol,
    ) -> None:
        symbol, args, kwargs = registry.resolve(function, args, kwargs)
        self.emitter.add(self.emitter.line(BoundSymbol(symbol, args, kwargs, output, context=PLAIN), user))
