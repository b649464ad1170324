"""The derivative that the executor gives that claims a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from thunder_core.autodiff.derivative import PLAIN, Derivative, Query, dense_stride, sum_stand_in
from thunder_core.autodiff.work import fresh_outputs
from thunder_core.errors import LoweringError
from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.executor import DerivativePair, Executor, declined_by_failing, executor_symbol
from thunder_core.ir.bound_symbol import BoundSymbol, metadata_of, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.context import modes_for_fakes, only_kernels
from thunder_core.ir.proxy import PROXY_TYPES, OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.size import SizeExpr, from_fake, on_fakes
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tree import iterate_leaves, iterate_proxies, map_leaves
from thunder_core.symbols.registry import registry
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_fake, storage_address
from thunder_core.tracing.trace_call import refuse_objects

_LITERALS: Final = (type(None), bool, int, SizeExpr, float, str, torch.dtype, torch.device)


class WrongGradients(LoweringError):
    """Backward returns something else than the gradients that the contract of `DerivativePair` asks for."""


@dataclass(frozen=True, slots=True)
class PairValues:
    """What the two calls take and give.

    Values of the line are called as in the line; all others have names with a colon and storages with negative numbers,
    unless they share the memory of a value of the line.

    Attributes:
        residuals: as forward returns them.
        cotangents: for each output of the line that gets one, by name.
        gradients: for each tensor among the line's arguments its gradient, or None where it is not wanted.
        wanted: where it is.
    """

    residuals: tuple[Any, ...]
    cotangents: dict[str, TensorProxy]
    gradients: tuple[TensorProxy | None, ...]
    wanted: tuple[bool, ...]


def run_on_fakes(query: Query, pair: DerivativePair) -> PairValues:
    """Make both calls as the line would. Random generators keep their states.

    Raises:
        WrongGradients: backward does not return what the contract of `DerivativePair` asks for.
        LoweringError: they break it otherwise; how.
    """
    run = _Run(query, pair)
    with torch.random.fork_rng(devices=[]), run.mode, modes_for_fakes(PLAIN):
        return run.values()


class _Run:
    def __init__(self, query: Query, pair: DerivativePair) -> None:
        self.query = query
        self.pair = pair
        self.bound = query.bound
        self.mode = ObservingFakeMode()
        self.arguments = tensor_inputs_of(self.bound)
        self.results = tensor_outputs_of(self.bound)
        self.wanted = tuple([proxy.name in query.wanted for proxy in self.arguments])
        self._known: dict[int, Proxy] = {}
        self._fakes: dict[str, torch.Tensor] = {}
        self._storages: dict[int, int] = {}
        self._count = 0
        for proxy in self.arguments:
            if proxy.name not in self._fakes:
                self._know(make_fake(self.mode, replace(proxy, requires_grad=False)), proxy)

    def values(self) -> PairValues:
        residuals = self._forward()
        known = map_leaves(self._residual, residuals)
        cotangents = {p.name: self._cotangent(p) for p in self.results if p.name in self.query.reached}
        return PairValues(known, cotangents, self._gradients(residuals, cotangents), self.wanted)

    def _forward(self) -> tuple[Any, ...]:
        """The residuals, of fake tensors."""
        args, kwargs = map_leaves(self._fake, (self.bound.args, self.bound.kwargs))
        outputs, residuals = self._call(self.pair.fake or self.pair.forward, *args, **kwargs)
        found = [leaf for leaf in iterate_leaves(outputs) if isinstance(leaf, torch.Tensor)]
        if [metadata_of(tensor) for tensor in found] != [metadata_of(proxy) for proxy in self.results]:
            raise LoweringError("its result is another than that of the line")
        if not isinstance(residuals, tuple):
            raise LoweringError("its residuals are no tuple")
        for tensor, proxy in zip(found, self.results, strict=True):
            if storage_address(tensor) in self._storages:
                raise LoweringError("its result shares memory with an argument, or with another result")
            self._know(tensor, proxy)
        return residuals

    def _gradients(
        self, residuals: tuple[Any, ...], cotangents: dict[str, TensorProxy]
    ) -> tuple[TensorProxy | None, ...]:
        """For each argument its gradient, or None where it is not wanted."""
        if self.pair.fake is not None:
            return tuple(
                [
                    replace(proxy, **self._new("gradient"), stride=dense_stride(proxy), offset=0, requires_grad=False)
                    if want
                    else None
                    for proxy, want in zip(self.arguments, self.wanted, strict=True)
                ]
            )
        given = tuple([self._fakes[cotangents[p.name].name] if p.name in cotangents else None for p in self.results])
        found = self._call(self.pair.backward, residuals, given, self.wanted)
        problem = _gradient_problem(found, self.arguments, self.wanted)
        if problem is not None:
            raise WrongGradients(f"its backward {problem}")
        return tuple([None if gradient is None else self._tensor(gradient, "gradient") for gradient in found])

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self.mode.observing() as observed:
            result = function(*args, **kwargs)
        if any(address in observed.written for address in self._storages):
            raise LoweringError("it writes to its arguments")
        return result

    def _fake(self, leaf: Any) -> Any:
        return self._fakes[leaf.name] if isinstance(leaf, TensorProxy) else on_fakes(leaf)

    def _know(self, fake: torch.Tensor, proxy: TensorProxy) -> None:
        self._known[id(fake)] = proxy
        self._fakes[proxy.name] = fake
        self._storages.setdefault(storage_address(fake), proxy.storage)

    def _new(self, what: str) -> dict[str, Any]:
        """Name and storage of a new value."""
        self._count += 1
        return {"name": f":{what}_{self._count}", "storage": -self._count}

    def _residual(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self._known.get(id(leaf)) or self._tensor(leaf, "residual")
        leaf = from_fake(leaf)
        return leaf if isinstance(leaf, _LITERALS) else OpaqueProxy(self._new("residual")["name"], type(leaf).__name__)

    def _tensor(self, fake: torch.Tensor, what: str) -> TensorProxy:
        """A new value, which may share the memory of others."""
        new = self._new(what)
        storage = self._storages.setdefault(storage_address(fake), new["storage"])
        shape, stride, dtype, device = metadata_of(fake)
        proxy = TensorProxy(new["name"], shape, stride, dtype, device, False, storage, from_fake(fake.storage_offset()))
        self._know(fake, proxy)
        return proxy

    def _cotangent(self, proxy: TensorProxy) -> TensorProxy:
        stride = self.query.cotangent_strides.get(proxy.name, dense_stride(proxy))
        made = replace(proxy, **self._new("cotangent"), stride=stride, offset=0, requires_grad=False)
        self._know(make_fake(self.mode, made), made)
        return made


def _gradient_problem(found: Any, arguments: Sequence[TensorProxy], wanted: Sequence[bool]) -> str | None:
    """What is wrong with what backward returned, and what was expected; None if nothing is."""
    if not isinstance(found, tuple | list) or len(found) != len(arguments):
        what = f"{type(found).__name__} of {len(found)}" if isinstance(found, tuple | list) else type(found).__name__
        tensors = f"{len(arguments)} tensor{'s' if len(arguments) > 1 else ''}"
        return f"returns a {what}, not a tuple with an item for each of the {tensors} among the arguments"
    for index, (gradient, proxy, want) in enumerate(zip(found, arguments, wanted, strict=True)):
        is_tensor = isinstance(gradient, torch.Tensor)
        if not want and gradient is not None:
            return f"returns a gradient at index {index}, where wanted[{index}] is False and None is expected"
        if want and not (is_tensor and _what(gradient) == _what(proxy)):
            given = _what(gradient) if is_tensor else f"a {type(gradient).__name__}"
            return (
                f"returns {given} at index {index}; expected is a tensor like the argument {proxy.name}, {_what(proxy)}"
            )
    return None


def _what(tensor: Any) -> str:
    """Shape, dtype and device in words; strides do not matter."""
    shape, _, dtype, device = metadata_of(tensor)
    return f"{str(dtype).removeprefix('torch.')}{list(shape)} on {device}"


def derive_by_executor(
    query: Query, executors: Sequence[Executor], answers: tuple[Decision, ...]
) -> Derivative | Declined | None:
    """The pair of the executor that claims the line. None if nobody does; if the one that does has none, its reason.

    Args:
        answers: what the executors said to the line.

    Raises:
        ExecutorError: backward of the pair returns no such gradients as it should, and ``THUNDER_STRICT=1``; there is
            a warning otherwise.
    """
    if not answers or not isinstance(answers[-1], Claimed):
        return None
    executor = next(one for one in executors if one.name == answers[-1].executor)
    with only_kernels(None if query.bound.context is None else query.bound.context.attention):
        pair = executor.derivative(query.bound)
    if pair is None:
        return Declined(executor.name, "it has no derivative of its own for this call", not executor.fuses)
    try:
        return replace(_derivative(query, executor.name, pair), answers=answers)
    except WrongGradients as error:
        bound = query.bound
        told = declined_by_failing(
            executor.name, bound.symbol.name, "derivative pair", bound.location, f"failed: {error}"
        )
        return Declined(
            executor.name, told.replace("its derivative pair", f"the pair of {executor.name}", 1), failed=True
        )
    except Exception as error:  # noqa: BLE001 - a bug of the executor, or a pair that does not work on fake tensors
        what = str(error) if isinstance(error, LoweringError) else f"{type(error).__name__}: {error}"
        return Declined(executor.name, f"the pair of {executor.name} failed: {what}", failed=True)


def _derivative(query: Query, executor: str, pair: DerivativePair) -> Derivative:
    bound = query.bound
    refuse_objects(bound)
    if bound.effects.mutates or len(fresh_outputs(bound)) != len(bound.outputs()):
        raise LoweringError("the line writes memory, or shares it with its arguments")
    values = run_on_fakes(query, pair)
    own = {proxy.name for proxy in (*bound.inputs(), *bound.outputs())}

    def made(leaf: Any) -> Any:
        return leaf if isinstance(leaf, PROXY_TYPES) and leaf.name not in own else None

    forward = replace(
        bound,
        symbol=executor_symbol(pair.forward, executor, bound.symbol.tags - {Tag.OPAQUE}, bound.symbol),
        output=(bound.output, map_leaves(made, values.residuals)),
        effects=bound.effects if pair.pure else replace(bound.effects, external=True),
        context=replace(bound.context or PLAIN, grad_enabled=False),
    )
    backward = BoundSymbol(
        executor_symbol(pair.backward, executor, frozenset({Tag.BACKWARD}), bound.symbol),
        (values.residuals, tuple([values.cotangents.get(p.name) for p in bound.outputs()]), values.wanted),
        {},
        values.gradients,
        context=PLAIN,
        location=bound.location,
    )
    others = iterate_proxies((values.residuals, values.cotangents, values.gradients))
    taken = [proxy.storage for proxy in others if isinstance(proxy, TensorProxy)]
    sums, gradients = _by_name(bound, values.gradients, min([0, *taken]))
    return Derivative(bound, (forward,), (backward, *sums), values.cotangents, gradients, executor)


def _by_name(
    bound: BoundSymbol, gradients: Iterable[TensorProxy | None], lowest_storage: int
) -> tuple[list[BoundSymbol], dict[str, Proxy]]:
    """The gradients by the names of the arguments, with lines that sum those of an argument that stands twice."""
    lines: list[BoundSymbol] = []
    found: dict[str, TensorProxy] = {}
    for proxy, gradient in zip(tensor_inputs_of(bound), gradients, strict=True):
        if gradient is None:
            continue
        if proxy.name in found:
            symbol, args, kwargs = registry.resolve(torch.add, (found[proxy.name], gradient), {})
            storage = lowest_storage - 1 - len(lines)
            gradient = sum_stand_in(found[proxy.name], gradient, f":sum_{len(lines)}", storage)
            lines.append(BoundSymbol(symbol, args, kwargs, gradient, context=PLAIN, location=bound.location))
        found[proxy.name] = gradient
    return lines, {**found}
