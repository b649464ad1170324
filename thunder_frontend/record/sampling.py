"""Metadata of calls that read values, inferred from results on sample values.

Some PyTorch functions read values only to validate them (``torch.cov``, ``gaussian_nll_loss``, ``ctc_loss``), or return
a shape that PyTorch's meta kernels cannot infer. Such a call is run on zeros, ones and random numbers. If all results
have the same metadata, the call is recorded with this metadata, followed by a check of the real result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from thunder_core.errors import UnsupportedError, trying
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import Size, from_fake, on_fakes
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import iterate_leaves, map_leaves, tensors_in
from thunder_core.pytorch_errata import trusts_values
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    EnableTorchFunction,
    FakeTensor,
    no_dispatch,
    storage_identity,
    temporarily_clear_interpreter_stack,
    version_of,
)
from thunder_core.symbols.checks import CHECK_METADATA
from thunder_core.tracing.fake_tensors import computed_from
from thunder_core.tracing.frames import user_location
from thunder_core.tracing.outcome import Outcome, infer
from thunder_frontend.record.arguments import CallArguments, check_layouts
from thunder_frontend.record.data_dependence import Declined, Resolved, ValueRequest, is_small
from thunder_frontend.record.prefix import real_calls
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.result_sizes import Geometry, Values, geometry_of, likely_geometry, samples, value_at

_RANDOM_SAMPLES_ONLY = frozenset({torch.linalg.lstsq})
"""Functions whose results have another shape for special inputs, such as rank-deficient matrices of zeros or ones."""


@dataclass(frozen=True, slots=True)
class CallMetadata:
    """The metadata of the results of a call that ran on real tensors.

    Attributes:
        result: the result with tensors on the meta device.
        requires_grad: whether each of its tensors requires grad, in order.
        views: whether any of its tensors is a view of an argument, at an offset that depends on values.
    """

    result: Any
    requires_grad: tuple[bool, ...]
    views: bool

    def with_geometries(self, geometries: Iterable[tuple[tuple[Size, ...], tuple[Size, ...]]]) -> CallMetadata:
        """The metadata with these shapes and strides of the tensors, in order."""
        others = iter(geometries)
        return replace(self, result=map_leaves(lambda leaf: _with_geometry(leaf, *next(others)), self.result))


class Sample:
    """The resolver that runs a call on sample values."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_frontend.record.data_dependence.Resolver`."""
        if request.reads:
            return Declined("samples do not determine a value")
        return record_sampled(recorder, request, request.symbol.target)


def record_sampled(recorder: Recorder, request: ValueRequest, target: Callable[..., Any]) -> Resolved | Declined:
    """Record a call whose metadata is inferred from samples, followed by a check of the real result.

    Args:
        target: the function that is run on the samples.
    """
    call = request.call
    with recorder.tensors.fake_mode.observing():
        metadata = _agreed_for_sizes(recorder, request, target)
    if metadata is None:
        return Declined("its metadata differs between samples, or it cannot be run on samples")
    if metadata.views and not recorder.trace.storages.written.isdisjoint(proxy.storage for proxy in call.proxies):
        return Declined("its result is a view of a storage that the program writes")
    outcome, fakes = as_outcome(recorder, metadata, call)
    result = record_checked(recorder, request.symbol, call, outcome, fakes)
    if metadata.views:
        results = map(recorder.tensors.proxy_of, tensors_in(result))
        recorder.trace.storages.entangled.update(proxy.storage for proxy in (*results, *call.proxies))
    return Resolved(result)


def _agreed_for_sizes(recorder: Recorder, request: ValueRequest, target: Callable[..., Any]) -> CallMetadata | None:
    """The metadata on which samples agree for several values of the varying sizes; None if they do not agree."""
    args, kwargs = recorder.tensors.fakes(request.args), recorder.tensors.fakes(request.kwargs)
    input_sizes = recorder.inputs.input_sizes
    if input_sizes is None:
        return _agreed_metadata(target, args, kwargs, {})
    runs: list[CallMetadata] = []
    points = samples(input_sizes.sizes)
    for values in points:
        metadata = _agreed_metadata(target, args, kwargs, values)
        if metadata is None:
            return None
        runs.append(metadata)
    return _with_symbolic_sizes(runs, request.call, points)


def _with_symbolic_sizes(
    runs: Sequence[CallMetadata], call: CallArguments, points: Sequence[Values]
) -> CallMetadata | None:
    """The metadata with symbolic sizes; None if they differ otherwise, or no expression has the sizes of all runs.

    Args:
        runs: the metadata for each of ``points``.
        points: values of the symbols.
    """
    leaves = [list(iterate_leaves(metadata.result)) for metadata in runs]
    if any((metadata.requires_grad, metadata.views) != (runs[0].requires_grad, runs[0].views) for metadata in runs):
        return None
    if any([leaf.dtype for leaf in other] != [leaf.dtype for leaf in leaves[0]] for other in leaves):
        return None
    arguments = [proxy.shape for proxy in call.proxies]
    geometries = []
    for versions in zip(*leaves, strict=True):
        geometry = likely_geometry(list(map(geometry_of, versions)), arguments, points)
        if geometry is None:
            return None
        geometries.append(geometry)
    return runs[0].with_geometries(geometries)


def _with_geometry(leaf: torch.Tensor, shape: tuple[Size, ...], stride: tuple[Size, ...]) -> torch.Tensor:
    """A tensor on the meta device with the dtype of ``leaf`` and this shape and stride."""
    with no_dispatch():
        return torch.empty_strided(*on_fakes((shape, stride)), dtype=leaf.dtype, device="meta")


def as_outcome(recorder: Recorder, metadata: CallMetadata, call: CallArguments) -> tuple[Outcome, list[Any]]:
    """The outcome of a call, and fakes of its results.

    The list of fakes is empty if results require grad, and fakes of this recording have no autograd graph.
    """
    graph = recorder.attempt.graph and any(metadata.requires_grad)
    with recorder.tensors.fake_mode.observing() as observed:
        device = call.proxies[0].device if call.proxies else torch.device("cpu")
        result = map_leaves(lambda leaf: FakeTensor(recorder.tensors.fake_mode, leaf, device), metadata.result)
        if graph:
            arguments = [recorder.tensors.fake(variable) for variable in call.variables]
            with recorder.tensors.fake_mode:
                result = computed_from(result, metadata.requires_grad, arguments)
        outcome, fakes = infer(lambda: result, (), {}, [], observed)
    if graph or not any(metadata.requires_grad):
        return outcome, fakes
    pairs = zip(outcome.results, metadata.requires_grad, strict=True)
    results = [replace(result, requires_grad=requires_grad) for result, requires_grad in pairs]
    return replace(outcome, results=tuple(results)), []


def record_checked(recorder: Recorder, symbol: Symbol, call: CallArguments, outcome: Outcome, fakes: list[Any]) -> Any:
    """Record a call, followed by a check of its real results.

    Args:
        outcome: the expected metadata of the real results.
        fakes: the fakes of the results, or an empty list.
    """
    result = recorder.writer.record(symbol, call, outcome, fakes, recorder.trace.context_of(symbol))
    op = recorder.trace.ops[-1]
    for proxy in op.outputs():
        assert isinstance(proxy, TensorProxy)
        checked = (proxy, proxy.shape, proxy.stride, proxy.dtype)
        recorder.trace.ops.append(
            BoundSymbol(CHECK_METADATA, checked, {}, None, Effects(external=True), op.context, op.location)
        )
    return result


def _agreed_metadata(
    target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], values: Values
) -> CallMetadata | None:
    """The metadata of a result; None if it depends on values, or the call cannot be run on samples.

    Args:
        args, kwargs: the arguments, with fake tensors.
        values: the values of the symbols in the sizes of arguments.
    """
    if not is_small(args, kwargs):
        return None
    fills = (
        (_random, _random)
        if target in _RANDOM_SAMPLES_ONLY
        else (torch.zeros, torch.ones, _random, _random, _first_larger, _numbers(3, 3), _numbers(30, -3))
    )
    results = _accepted_samples(target, args, kwargs, values, fills)
    if len(results) < 2 or any(_describe(metadata) != _describe(results[0]) for metadata in results):
        return None
    return results[0]


def _accepted_samples(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    values: Values,
    fills: Sequence[Callable[..., torch.Tensor]],
) -> list[CallMetadata]:
    """The metadata for each sample that the call accepts. The state of the random generator is restored.

    Args:
        fills: functions of a number of elements and a dtype that create the samples.
    """
    grad_enabled = torch.is_grad_enabled()  # leaving inference mode, where tensors have no versions, enables gradients
    with (
        real_calls(),
        EnableTorchFunction(),
        _CheckedCalls(),
        temporarily_clear_interpreter_stack(),
        torch.inference_mode(False),
        torch.set_grad_enabled(grad_enabled),
    ):
        sampled = [_sample_metadata(target, args, kwargs, values, fill) for fill in fills]
    return [metadata for metadata in sampled if metadata is not None]


class _CheckedCalls(TorchFunctionMode):
    """Refuses calls of kernels that do not check values, also by functions and modules that run on samples."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if trusts_values(func, args):
            raise ValueError(f"{func.__name__} does not check the values of its arguments")
        with DisableTorchFunction():  # the recorder's mode is below this one
            return func(*args, **(kwargs or {}))


def sampled_geometries(recorder: Recorder, request: ValueRequest) -> list[list[Geometry]]:
    """Shapes and strides of the results of a call, for each sample with the sizes of this call that it accepts.

    The list is empty if the call cannot be run on samples.
    """
    args, kwargs = recorder.tensors.fakes(request.args), recorder.tensors.fakes(request.kwargs)
    if not is_small(args, kwargs):
        return []
    input_sizes = recorder.inputs.input_sizes
    values = {} if input_sizes is None else input_sizes.sizes.values
    accepted = _accepted_samples(request.symbol.target, args, kwargs, values, (torch.zeros, torch.ones, _random))
    return [list(map(geometry_of, iterate_leaves(metadata.result))) for metadata in accepted]


def _sample_metadata(
    target: Callable[..., Any],
    args: Any,
    kwargs: Any,
    values: Values,
    fill: Callable[..., torch.Tensor],
) -> CallMetadata | None:
    """The metadata for one sample; None if the call rejects it, or as `run_metadata`."""

    def real(leaf: Any) -> Any:
        if not isinstance(leaf, FakeTensor):
            return value_at(from_fake(leaf), values)
        count = leaf.untyped_storage().nbytes() // leaf.element_size()
        geometry = (leaf.shape, leaf.stride(), leaf.storage_offset())
        count, shape, stride, offset = map_leaves(lambda size: value_at(from_fake(size), values), (count, *geometry))
        sample = fill(count, dtype=leaf.dtype).as_strided(shape, stride, offset)
        return sample.requires_grad_().view_as(sample) if leaf.requires_grad else sample

    try:
        with trying():
            return run_metadata(target, map_leaves(real, args), map_leaves(real, kwargs))
    except (RuntimeError, ValueError, IndexError):
        return None


def run_metadata(target: Callable[..., Any], args: Any, kwargs: Any) -> CallMetadata | None:
    """The metadata of the result of a call on real arguments.

    None if the call writes to its arguments, or its result has a leaf that is an argument or not a strided tensor.

    Raises:
        UnsupportedError: the result has a nested tensor with the strided layout.
        RunEagerly: the result has a tensor of a layout that ops cannot have, such as oneDNN's.
        Exception: any exception of the call.
    """
    tensors = tensors_in((args, kwargs))
    versions = [version_of(tensor) for tensor in tensors]
    result = target(*args, **kwargs)
    leaves: list[Any] = []
    map_leaves(leaves.append, result)  # the leaves that `_to_meta` will get: `iterate_leaves` enters subclasses of dict
    name = getattr(target, "__name__", str(target))
    check_layouts(name, [leaf.layout for leaf in leaves if isinstance(leaf, torch.Tensor)])
    if any(isinstance(leaf, torch.Tensor) and leaf.is_nested for leaf in leaves):
        raise UnsupportedError(
            f"{name} returns a nested tensor with the strided layout, which has no shape that a trace can represent",
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
    return CallMetadata(map_leaves(_to_meta, result), tuple([leaf.requires_grad for leaf in leaves]), views)


def _to_meta(leaf: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")


def _describe(metadata: CallMetadata) -> Any:
    """The metadata as values that can be compared."""
    return (
        metadata.views,
        metadata.requires_grad,
        [(*geometry_of(leaf), leaf.dtype) for leaf in iterate_leaves(metadata.result)],
    )


def _random(count: int, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.rand(count).to(dtype)
    return torch.randint(0, 2, (count,)).to(dtype)


def _first_larger(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Integers for lengths in descending order, (2, 1, 1, ...); other tensors are random."""
    if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool:
        return _random(count, dtype)
    sample = torch.ones(count, dtype=dtype)
    sample[:1] = 2
    return sample


def _numbers(first: int, step: int) -> Callable[[int, torch.dtype], torch.Tensor]:
    """A function that fills each tensor of one integer, which may be a bound or a size, with another number.

    Other tensors are filled with random numbers.

    Args:
        first, step: the first number, and the difference of the next ones; negative numbers are replaced by zero.
    """
    numbers = itertools.count(first, step)

    def fill(count: int, dtype: torch.dtype) -> torch.Tensor:
        integer = count == 1 and not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
        return torch.full((1,), max(next(numbers), 0), dtype=dtype) if integer else _random(count, dtype)

    return fill
