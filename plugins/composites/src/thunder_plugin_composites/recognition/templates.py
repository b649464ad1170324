"""Templates of spellings: recorded on samples for matching, then on the matched values for verification."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import torch

from thunder_core.errors import LoweringError
from thunder_core.ir.annotation import StorageNumbers, read_input
from thunder_core.ir.bound_symbol import BoundSymbol, metadata_of
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.context import Context, modes_for_fakes
from thunder_core.ir.keys import call_key
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import producers_of
from thunder_core.pytorch_internals import EnableTorchFunction
from thunder_core.tracing.fake_tensors import make_fake
from thunder_core.tracing.tracer import Level, Tracer
from thunder_plugin_composites.recognition.pattern import Pattern

_cache: Final = BoundedCache["Template | LoweringError"](1024)
_SAMPLED_UNDER: Final = Context(grad_enabled=False, inference=False)


@dataclass(frozen=True, slots=True)
class Hole:
    """A placeholder for the argument of a parameter that is not a tensor."""

    name: str


@dataclass(frozen=True, slots=True)
class Template:
    """A spelling as operations.

    Attributes:
        parameters: names of its tensor parameters; other parameters are holes.
        result: the result.
        producers: the operations, by the names of their results.
        meant: metadata of the composite's results for the same arguments, from `metadata_of`; None for a sample.
    """

    parameters: frozenset[str]
    result: TensorProxy
    producers: Mapping[str, BoundSymbol]
    meant: tuple[Any, ...] | None


@cache
def sampled(pattern: Pattern) -> Template:
    """The pattern on its sample, with holes."""
    storages = StorageNumbers()
    sample = {
        name: read_input(name, value, storages) if isinstance(value, str) and "[" in value else value
        for name, value in pattern.sample.items()
    }
    template = _recorded(pattern, sample, _SAMPLED_UNDER, real=True)
    holes = {(type(value), value): Hole(name) for name, value in sample.items() if not isinstance(value, TensorProxy)}

    def leaf(value: Any) -> Any:
        return holes.get((type(value), value), value)

    producers = {name: op.map_arguments(leaf) for name, op in template.producers.items()}
    return replace(template, producers=producers)


def recorded(pattern: Pattern, values: Mapping[str, Any], composite: BoundSymbol, ambient: Context) -> Template:
    """The pattern with these arguments; one object for equal metadata.

    Args:
        pattern: the pattern.
        values: for each parameter a value of the program.
        composite: the composite with these arguments.
        ambient: the context of the program.

    Raises:
        LoweringError: the spelling cannot be called with these arguments.
    """
    context = composite.context or ambient
    key = call_key(composite, context)

    def record() -> Template | LoweringError:
        try:
            return _recorded(pattern, values, context)
        except LoweringError as error:
            return error

    template = _cache.get(None if key is None else (pattern, key), record)
    if isinstance(template, LoweringError):
        raise template
    return template


def _recorded(pattern: Pattern, values: Mapping[str, Any], context: Context, real: bool = False) -> Template:
    """Record one call of the spelling; on real tensors, which is faster if they are small, or on fake ones."""
    tracer = Tracer(Level.TORCH, merge=False)
    tensors = {name: proxy for name, proxy in values.items() if isinstance(proxy, TensorProxy)}
    arguments, parameters = dict(values), {}
    for name, proxy in tensors.items():
        arguments[name] = _real(proxy) if real else make_fake(tracer.mode, replace(proxy, requires_grad=False))
        parameters[tracer.input(arguments[name], proxy).name] = name
    with nullcontext() if real else tracer.mode, modes_for_fakes(context), EnableTorchFunction():
        try:
            with tracer.recording(context, fake=not real):
                result = pattern.spelling(**arguments)
            meant = None if real else pattern.composite(**arguments, **pattern.arguments)
        except Exception as error:  # for these arguments, which only resemble the pattern's
            raise LoweringError(f"{pattern.composite.__name__}: {type(error).__name__}: {error}") from error
        computed = tracer.proxy(result)
    ops = [op.map_arguments(lambda leaf: _named(leaf, parameters)) for op in tracer.ops]
    meaning = None if meant is None else metadata_of(meant)
    return Template(frozenset(tensors), _named(computed, parameters), producers_of(ops), meaning)


def _named(leaf: Any, parameters: Mapping[str, str]) -> Any:
    """An input of the trace as the parameter of the spelling; other leaves unchanged."""
    return replace(leaf, name=parameters[leaf.name]) if getattr(leaf, "name", None) in parameters else leaf


def _real(proxy: TensorProxy) -> torch.Tensor:
    return torch.zeros(list(map(int, proxy.shape)), dtype=proxy.dtype, device=proxy.device)
