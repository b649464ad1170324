"""Resolvers of values that are the same in every run.

`Constant` computes values that depend on no input. `RandomRange` decides comparisons of a random number with a number
outside of its range: models that skip layers at random compare ``torch.rand([]) < self.layerdrop``, and with a
probability of 0 the result is False for each random number. The random call remains in the trace, so that the generator
advances as in eager.

To support another random function, add its range to ``_RANDOM_FUNCTIONS``. The range must hold for every dtype, device
and argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.errors import DataDependentError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import map_leaves, tensors_in
from thunder_core.pytorch_internals import disable_current_modes
from thunder_core.symbols.generators import generator_states
from thunder_core.tracing.frames import user_location
from thunder_frontend.record.data_dependence import Declined, Resolved, ValueRequest
from thunder_frontend.record.open_trace import producer, slice_of
from thunder_frontend.record.prefix import NotEvaluated, beside_the_program, execute, real_calls
from thunder_frontend.record.recorder import Recorder

Tensor: Any = torch.Tensor  # its methods are descriptors; the stubs declare functions


class Constant:
    """Resolver that runs a call on constant arguments, or replaces constant tensors among them by numbers."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_frontend.record.data_dependence.Resolver`."""
        symbol, args, kwargs, call = request.symbol, request.args, request.kwargs, request.call
        if not request.reads:
            numbers = map_leaves(lambda leaf: _as_number(recorder, leaf), (args, kwargs))
            resolved = request.recorded_with(recorder, *numbers)
            if resolved is not None:
                return resolved
        if not call.foldable:
            return Declined("an argument is an object that has no literal")
        varying = [variable.proxy.name for variable in call.variables if not recorder.tensors.is_constant(variable)]
        if varying:
            return Declined(f"{', '.join(dict.fromkeys(varying))} may differ in each run")
        try:
            value = evaluate(recorder, symbol.target, args, kwargs)
        except NotEvaluated as reason:
            return Declined(str(reason))
        if any(tensor.layout is not torch.strided for tensor in tensors_in(value)):  # it consists of the arguments
            recorder.trace.storages.in_sparse.update([proxy.storage for proxy in call.proxies])
        return Resolved(map_leaves(lambda leaf: _copied(recorder, leaf), value))


def evaluate(recorder: Recorder, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a call on the values of its arguments, after the recorded ops on which these depend.

    All tensor arguments must be constants.

    Raises:
        DataDependentError: the result is random, or a tensor is on a device without data.
    """
    values = _values(recorder, {recorder.tensors.proxy_of(tensor).storage for tensor in tensors_in((args, kwargs))})

    def real(leaf: Any) -> Any:
        return values[recorder.tensors.proxy_of(leaf).name] if isinstance(leaf, torch.Tensor) else leaf

    with real_calls() as before, torch.inference_mode(False), torch.no_grad():
        try:
            result = function(*map_leaves(real, args), **map_leaves(real, kwargs))
        finally:
            if any(not torch.equal(*states) for states in zip(before, generator_states(), strict=False)):
                raise DataDependentError(
                    f"{getattr(function, '__name__', function)} draws random numbers, and the shape of its result "
                    "depends on a tensor's values",
                    location=user_location(),
                    advice=("pass sizes as Python numbers", "call it outside of the compiled function"),
                )
        return result


def _copied(recorder: Recorder, leaf: Any) -> Any:
    """The value to return to the program. For a tensor, records a clone, so that each run returns a new tensor."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return recorder.call(torch.clone, (recorder.inputs.constant(leaf),), {})


def _as_number(recorder: Recorder, leaf: Any) -> Any:
    """The number in a constant integer tensor that is used as a size or an index; other values unchanged."""
    if isinstance(leaf, torch.Tensor):
        variable = recorder.tensors.variable(leaf)
        integer = not variable.proxy.shape and not variable.proxy.dtype.is_floating_point
        if integer and recorder.tensors.is_constant(variable):
            return evaluate(recorder, torch.Tensor.item, (leaf,), {})
    return leaf


def _values(recorder: Recorder, storages: set[int]) -> dict[str, Any]:
    """The values of the constant tensors with these storages, by name."""
    ops = slice_of(recorder.trace.all_ops(), storages)
    for op in ops:
        _check_device(op)
    with beside_the_program():
        values: dict[str, Any] = {
            item.proxy.name: item.value.detach().clone()
            for item in recorder.inputs
            if isinstance(item.proxy, TensorProxy) and item.proxy.storage in storages
        }
        return {**values, **execute(ops, values, recorder.trace.ambient)}


def _check_device(op: BoundSymbol) -> None:
    for proxy in op.outputs():
        if isinstance(proxy, TensorProxy) and proxy.device.type == "meta":
            raise DataDependentError(
                f"the value of {proxy.name} is needed, but it is on the meta device and has no data",
                location=op.location,
                advice=("create the model on a real device", "avoid reading values into Python"),
            )


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from ``low``, inclusive, to ``high``, which is inclusive if the range is ``closed``."""

    low: float
    high: float
    closed: bool = True

    def below(self, limit: float) -> bool | None:
        """True if all numbers are less than ``limit``, False if none is, otherwise None."""
        if self.high < limit or (self.high == limit and not self.closed):
            return True
        return False if self.low >= limit else None

    def at_most(self, limit: float) -> bool | None:
        """True if all numbers are at most ``limit``, False if none is, otherwise None."""
        if self.high <= limit:
            return True
        return False if self.low > limit else None


_UNIT: Final = Range(0, 1, closed=False)
_BIT: Final = Range(0, 1)


def _uniform(_tensor: Any, low: Any = 0, high: Any = 1, **_options: Any) -> Range | None:
    if not (isinstance(low, int | float) and isinstance(high, int | float)):
        return None
    if low != 0:  # ``low`` is added to a scaled number, and the sum may be rounded beyond ``high``
        return Range(low, math.inf)
    return _UNIT if high == 1 else Range(0, high)


_RANDOM_FUNCTIONS: Final[dict[Any, Callable[..., Range | None]]] = {
    torch.rand: lambda *_, **__: _UNIT,
    torch.rand_like: lambda *_, **__: _UNIT,
    Tensor.uniform_: _uniform,
    torch.bernoulli: lambda *_, **__: _BIT,
    Tensor.bernoulli_: lambda *_, **__: _BIT,
}

_COMPARISONS: Final[dict[Any, Callable[[Range, float], bool | None]]] = {
    torch.lt: Range.below,
    torch.le: Range.at_most,
    torch.gt: lambda numbers, limit: _negated(numbers.at_most(limit)),
    torch.ge: lambda numbers, limit: _negated(numbers.below(limit)),
}

_READS: Final = frozenset({Tensor.__bool__, Tensor.item, Tensor.is_nonzero, torch.is_nonzero})
"""Calls that return the result of a comparison with one element as a Python bool."""


class RandomRange:
    """Resolver for comparisons that have the same result for all numbers of a random function."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_frontend.record.data_dependence.Resolver`."""
        if request.symbol.target not in _READS:
            return Declined("it does not read the result of a comparison")
        known = _truth(recorder.trace.all_ops(), request.call.proxies[0])
        if known is None:
            return Declined("no range of random numbers decides the comparison")
        return Resolved(known)


def _truth(ops: Sequence[BoundSymbol], proxy: TensorProxy) -> bool | None:
    """The value of a comparison's only element in every run, or None if it is not known.

    Args:
        ops: the program up to the read.
        proxy: the result of the comparison, under its current name.
    """
    index = producer(ops, proxy)
    if index is None or proxy.numel != 1:
        return None
    comparison = ops[index]
    compare = _COMPARISONS.get(comparison.symbol.target)
    if compare is None or comparison.kwargs:
        return None
    number, limit = comparison.args
    if not (isinstance(number, TensorProxy) and number.dtype.is_floating_point and isinstance(limit, int | float)):
        return None
    index = producer(ops[:index], number)
    if index is None:
        return None
    call = ops[index]
    range_of = _RANDOM_FUNCTIONS.get(call.symbol.target)
    possible = range_of(*call.args, **call.kwargs) if range_of is not None else None
    if possible is None:
        return None
    low, high, rounded = _rounded((possible.low, possible.high, limit), number.dtype)
    possible = Range(low, high, possible.closed)
    # kernels differ in whether they round the number to the tensor's dtype before they compare
    results = {compare(possible, float(limit)), compare(possible, rounded)}
    return results.pop() if len(results) == 1 else None


def _rounded(numbers: Iterable[float], dtype: torch.dtype) -> list[float]:
    with disable_current_modes():
        rounded: list[float] = torch.tensor([float(number) for number in numbers], dtype=dtype).tolist()
        return rounded


def _negated(result: bool | None) -> bool | None:
    return None if result is None else not result
