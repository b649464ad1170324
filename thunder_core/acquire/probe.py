"""Metadata of calls that look at values: try them on sample values.

Some PyTorch functions read values only to validate them (``torch.cov``, ``gaussian_nll_loss``, ``ctc_loss``), or have
a shape that PyTorch's meta kernels do not derive. Such a call is run on zeros, ones and random numbers. If the
results' metadata agree, that is what the program is recorded with, and a check of the real result is recorded after
it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch

from thunder_core.acquire.arguments import Call
from thunder_core.acquire.data_dependence import is_small
from thunder_core.acquire.likely_sizes import Geometry, Values, likely_geometry, samples, value_at
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.value_request import Declined, Resolved, ValueRequest
from thunder_core.errors import UnsupportedError, trying
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import Size, from_fake, on_fakes
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    FakeTensor,
    disable_current_modes,
    no_dispatch,
    storage_identity,
    temporarily_clear_interpreter_stack,
    version_of,
)
from thunder_core.symbols.checks import CHECK_METADATA
from thunder_core.tracing.fake_tensors import computed_from
from thunder_core.tracing.outcome import Outcome, infer
from thunder_core.tracing.user_frames import user_location

# Results whose shape is that of generic inputs, except on a set of measure zero (rank-deficient matrices).
_GENERIC = frozenset({torch.linalg.lstsq})


@dataclass(frozen=True, slots=True)
class Probed:
    """What the probes agree on.

    Attributes:
        result: the result with tensors on the meta device.
        requires_grad: of its tensors, in order.
        views: it shows memory of the arguments, at a place that depends on values.
    """

    result: Any
    requires_grad: tuple[bool, ...]
    views: bool


class Sample:
    """Tries a call on sample values."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_core.acquire.recorder.Resolver`."""
        if request.reads:
            return Declined("samples tell nothing about a value")
        return record_sampled(recorder, request, request.symbol.target)


def record_sampled(recorder: Recorder, request: ValueRequest, target: Callable[..., Any]) -> Resolved | Declined:
    """Record a call whose metadata is found by trying it on samples, with a check of the real result after it.

    Args:
        target: what is tried.
    """
    call = request.call
    with recorder.tensors.fake_mode.observing():
        found = _probe_sizes(recorder, request, target)
    if found is None:
        return Declined("its metadata differs between samples, or it cannot be tried")
    if found.views and not recorder.trace.storages.written.isdisjoint(proxy.storage for proxy in call.proxies):
        return Declined("it shows a part of a storage that the program writes")
    outcome, fakes = as_outcome(recorder, found, call)
    result = record_checked(recorder, request.symbol, call, outcome, fakes)
    if found.views:
        shown = [recorder.tensors.proxy_of(leaf) for leaf in iterate_leaves(result) if isinstance(leaf, torch.Tensor)]
        recorder.trace.storages.entangled.update(proxy.storage for proxy in (*shown, *call.proxies))
    return Resolved(result)


def _probe_sizes(recorder: Recorder, request: ValueRequest, target: Callable[..., Any]) -> Probed | None:
    """What the probes agree on, for several values of the sizes that vary."""
    args, kwargs = recorder.tensors.fakes(request.args), recorder.tensors.fakes(request.kwargs)
    sizes = recorder.inputs.input_sizes
    at: list[Values] = [{}] if sizes is None else samples(sizes.sizes)
    probes = [found for values in at if (found := probe(target, args, kwargs, values)) is not None]
    if len(probes) < len(at):
        return None
    return probes[0] if sizes is None else for_sizes(probes, request.call, at)


def for_sizes(probes: Sequence[Probed], call: Call, at: Sequence[Values]) -> Probed | None:
    """A result with expressions of symbols for its sizes; None where none is known that has the values of all probes.

    Args:
        probes: one for each of ``at``, which are values of the symbols.
    """
    leaves = [list(iterate_leaves(found.result)) for found in probes]
    if any((found.requires_grad, found.views) != (probes[0].requires_grad, probes[0].views) for found in probes):
        return None
    if any([leaf.dtype for leaf in other] != [leaf.dtype for leaf in leaves[0]] for other in leaves):
        return None
    arguments = [proxy.shape for proxy in call.proxies]
    made = []
    for versions in zip(*leaves, strict=True):
        geometry = likely_geometry([(tuple(leaf.shape), leaf.stride()) for leaf in versions], arguments, at)
        if geometry is None:
            return None
        made.append(of_geometry(versions[0], *geometry))
    results = iter(made)
    return replace(probes[0], result=map_leaves(lambda leaf: next(results), probes[0].result))


def of_geometry(leaf: torch.Tensor, shape: tuple[Size, ...], stride: tuple[Size, ...]) -> torch.Tensor:
    """A tensor on the meta device, as ``leaf``, of another shape."""
    with no_dispatch():
        return torch.empty_strided(*on_fakes((shape, stride)), dtype=leaf.dtype, device="meta")


def as_outcome(recorder: Recorder, found: Probed, call: Call) -> tuple[Outcome, list[Any]]:
    """What a call gives, for the recorder, and fakes of its results; none where these have gradients and no graph."""
    graph = recorder.attempt.graph and any(found.requires_grad)
    with recorder.tensors.fake_mode.observing() as observed:
        device = call.proxies[0].device if call.proxies else torch.device("cpu")
        made = map_leaves(lambda leaf: FakeTensor(recorder.tensors.fake_mode, leaf, device), found.result)
        if graph:
            arguments = [recorder.tensors.fake(variable) for variable in call.variables]
            with recorder.tensors.fake_mode:
                made = computed_from(made, found.requires_grad, arguments)
        outcome, fakes = infer(lambda: made, (), {}, [], observed)
    if graph or not any(found.requires_grad):
        return outcome, fakes
    pairs = zip(outcome.results, found.requires_grad, strict=True)
    marked = [replace(result, requires_grad=recorded) for result, recorded in pairs]
    return replace(outcome, results=tuple(marked)), []


def record_checked(recorder: Recorder, symbol: Symbol, call: Call, outcome: Outcome, fakes: list[Any]) -> Any:
    """Record a call, and a check of its real results after it.

    Args:
        outcome: what the real results should look like.
        fakes: of the results; they may be left out.
    """
    result = recorder.writer.record(symbol, call, outcome, fakes or None, recorder.trace.context_of(symbol))
    line = recorder.trace.lines[-1]
    for proxy in line.outputs():
        assert isinstance(proxy, TensorProxy)
        checked = (proxy, proxy.shape, proxy.stride, proxy.dtype)
        recorder.trace.lines.append(
            BoundSymbol(CHECK_METADATA, checked, {}, None, Effects(external=True), line.context, line.location)
        )
    return result


def probe(target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], values: Values) -> Probed | None:
    """The metadata of a result, or None when it depends on values or cannot be tried.

    Args:
        args, kwargs: with fake tensors.
        values: of the symbols in their sizes.
    """
    if not is_small(args, kwargs):
        return None
    fills = (
        (_random, _random)
        if target in _GENERIC
        else (_zeros, _ones, _random, _random, _numbers(3, 3), _numbers(30, -3))
    )
    results = _tried(target, args, kwargs, values, fills)
    if len(results) < 2 or any(_describe(found) != _describe(results[0]) for found in results):
        return None
    return results[0]


def _tried(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    values: Values,
    fills: Sequence[Callable[[int, torch.dtype], torch.Tensor]],
) -> list[Probed]:
    """The results on samples that are accepted. Generators have their states back afterwards."""
    grad_enabled = torch.is_grad_enabled()  # leaving inference mode, where tensors have no versions, switches it on
    with ExitStack() as stack:
        stack.enter_context(disable_current_modes())
        stack.enter_context(DisableTorchFunction())
        stack.enter_context(temporarily_clear_interpreter_stack())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(grad_enabled))
        state = torch.random.get_rng_state()
        try:
            return [found for fill in fills if (found := _attempt(target, args, kwargs, values, fill)) is not None]
        finally:
            torch.random.set_rng_state(state)


def other_geometries(recorder: Recorder, request: ValueRequest) -> list[list[Geometry]]:
    """Shapes and strides of the results of a call on samples of this call's sizes; empty where that cannot be tried."""
    args, kwargs = recorder.tensors.fakes(request.args), recorder.tensors.fakes(request.kwargs)
    sizes = recorder.inputs.input_sizes
    found = (
        []
        if not is_small(args, kwargs)
        else _tried(
            request.symbol.target, args, kwargs, {} if sizes is None else sizes.sizes.values, (_zeros, _ones, _random)
        )
    )
    return [[(tuple(leaf.shape), leaf.stride()) for leaf in iterate_leaves(probed.result)] for probed in found]


def _attempt(
    target: Callable[..., Any],
    args: Any,
    kwargs: Any,
    values: Values,
    fill: Callable[[int, torch.dtype], torch.Tensor],
) -> Probed | None:
    """The result for one way of filling tensors; None when the values are not accepted, or it is not a new tensor."""

    def real(leaf: Any) -> Any:
        if not isinstance(leaf, FakeTensor):
            return value_at(from_fake(leaf), values)
        count = leaf.untyped_storage().nbytes() // leaf.element_size()
        geometry = (leaf.shape, leaf.stride(), leaf.storage_offset())
        count, shape, stride, offset = map_leaves(lambda size: value_at(from_fake(size), values), (count, *geometry))
        sample = fill(count, leaf.dtype).as_strided(shape, stride, offset)
        return sample.requires_grad_().view_as(sample) if leaf.requires_grad else sample

    try:
        with trying():
            return outcome_of(target, map_leaves(real, args), map_leaves(real, kwargs))
    except (RuntimeError, ValueError, IndexError):
        return None


def outcome_of(target: Callable[..., Any], args: Any, kwargs: Any) -> Probed | None:
    """What a call gives for real arguments; None if it gives other things than new tensors.

    Raises:
        Exception: what the call raises.
    """
    tensors = [leaf for leaf in iterate_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    versions = [version_of(tensor) for tensor in tensors]
    result = target(*args, **kwargs)
    leaves: list[Any] = []
    map_leaves(leaves.append, result)
    if any(isinstance(leaf, torch.Tensor) and leaf.is_nested for leaf in leaves):
        name = getattr(target, "__name__", str(target))
        raise UnsupportedError(
            f"{name} gives a nested tensor of the strided layout, which has no shape that a line could have",
            location=user_location(),
            advice=(
                "compute with padded tensors: torch.nested.to_padded_tensor",
                "call it outside of the compiled function",
            ),
        )
    if not all(isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided for leaf in leaves):
        return None
    if any(leaf is tensor for leaf in leaves for tensor in tensors):
        return None
    if versions != [version_of(tensor) for tensor in tensors]:
        return None
    addresses = {storage_identity(tensor.untyped_storage()) for tensor in tensors}
    views = any(storage_identity(leaf.untyped_storage()) in addresses for leaf in leaves)
    return Probed(map_leaves(_to_meta, result), tuple([leaf.requires_grad for leaf in leaves]), views)


def _to_meta(leaf: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")


def _describe(found: Probed) -> Any:
    return (
        found.views,
        found.requires_grad,
        [(tuple(leaf.shape), leaf.stride(), leaf.dtype) for leaf in iterate_leaves(found.result)],
    )


def _zeros(count: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(count, dtype=dtype)


def _ones(count: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.ones(count, dtype=dtype)


def _random(count: int, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.rand(count).to(dtype)
    return torch.randint(0, 2, (count,)).to(dtype)


def _numbers(first: int, step: int) -> Callable[[int, torch.dtype], torch.Tensor]:
    """Fills tensors of one integer, which may be bounds or sizes, with numbers that differ; others at random."""
    numbers = itertools.count(first, step)

    def fill(count: int, dtype: torch.dtype) -> torch.Tensor:
        integer = count == 1 and not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
        return torch.full((1,), max(next(numbers), 0), dtype=dtype) if integer else _random(count, dtype)

    return fill
