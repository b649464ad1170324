"""Run a program through the registry: each torch call is replaced by its symbol's target and canonical arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.symbols.naming import evaluate
from thunder_core.symbols.registry import registry


class ResolvingMode(TorchFunctionMode):
    """Runs each call by its symbol, and checks what must hold for every call."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if registry.is_metadata(func):
            return func(*args, **(kwargs or {}))
        symbol, canonical_args, canonical_kwargs = registry.resolve(func, args, kwargs)
        check_canonical(symbol, canonical_args, canonical_kwargs)
        return symbol.target(*canonical_args, **canonical_kwargs)


def resolved(program: Callable[..., Any]) -> Callable[..., Any]:
    """``program``, run through the registry."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with ResolvingMode():
            return program(*args, **kwargs)

    return run


def check_canonical(symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Canonical calls resolve to themselves, by their target and by their printed name."""
    if Tag.LOCAL in symbol.tags:
        return
    assert registry.symbol_named(symbol.name, symbol.style) is symbol
    for function in (symbol.target, printed_function(symbol)):
        again, again_args, again_kwargs = registry.resolve(function, args, kwargs)
        assert again is symbol, f"{symbol} resolves to {again}"
        assert len(again_args) == len(args), f"{symbol}: {len(args)} arguments became {len(again_args)}"
        assert all(map(_same, again_args, args)), f"{symbol}: the arguments are not canonical"
        assert again_kwargs.keys() == kwargs.keys()


def printed_function(symbol: Symbol) -> Callable[..., Any]:
    """What the printed call calls, with the tensor first for methods and attributes."""
    if symbol.style is CallStyle.FUNCTION:
        return evaluate(symbol.name)
    if symbol.style is CallStyle.METHOD:
        return getattr(torch.Tensor, symbol.name)
    if symbol.style is CallStyle.ATTRIBUTE:
        return getattr(torch.Tensor, symbol.name).__get__
    return torch.Tensor.__getitem__


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and (isinstance(one, torch.Tensor) or one == other))
