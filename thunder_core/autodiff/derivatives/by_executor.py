"""The derivative of an op by the forward and backward functions of the executor that claims it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from thunder_core.autodiff.derivatives.derivative import PLAIN, Derivative, Query, dense_stride, sum_stand_in
from thunder_core.autodiff.partitioning.work import fresh_outputs
from thunder_core.errors import LoweringError, SizeVariesError, ThunderError
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.executor import DerivativePair, Executor, declined_by_failing, executor_symbol
from thunder_core.ir.bound_symbol import BoundSymbol, metadata_of, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.context import modes_for_fakes, only_kernels
from thunder_core.ir.proxy import PROXY_TYPES, OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.size import SizeExpr, from_fake, on_fakes
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tree import iterate_proxies, map_leaves, tensors_in
from thunder_core.symbols.registry import registry
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_fake, storage_address
from thunder_core.tracing.trace_call import refuse_objects

_LITERALS: Final = (type(None), bool, int, SizeExpr, float, str, torch.dtype, torch.device)


_CURES: Final = {
    (False, False): "functions that do not run on fake tensors need `DerivativePair(..., fake=...)`, a function that "
    "returns empty tensors of the right metadata",
    (False, True): "`fake` must run on fake tensors",
    (True, False): "its functions must return what the operation and its gradients are; correct them, or decline the "
    "call in the check of the claim",
    (True, True): "`fake` must return what `forward` does; correct it, or decline the call in the check of the claim",
}
"""What an author does about a pair that cannot be used: by whether its results are wrong, and whether it has `fake`."""


class WrongPair(Exception):
    """The functions of a pair violate the contract of `DerivativePair`."""


@dataclass(frozen=True, slots=True)
class PairValues:
    """The arguments and results of the two calls, as proxies.

    Values of the op keep their names; all others have names with a colon and storages with negative numbers, unless
    they share the storage of a value of the op.

    Attributes:
        residuals: as forward returns them.
        cotangents: by name of the op's output; outputs without cotangent are absent.
        gradients: one for each tensor argument of the op; None where no gradient is computed.
        wanted: whether a gradient is computed, for each tensor argument.
    """

    residuals: tuple[Any, ...]
    cotangents: dict[str, TensorProxy]
    gradients: tuple[TensorProxy | None, ...]
    wanted: tuple[bool, ...]


def _run_on_fakes(query: Query, pair: DerivativePair) -> PairValues:
    """Run forward and backward of the pair on fake tensors. The states of random generators are restored.

    Raises:
        WrongPair: the pair violates the contract of `DerivativePair`; the message describes how.
        Exception: whatever its functions raise.
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
        """Call forward; returns the residuals as fake tensors."""
        args, kwargs = map_leaves(self._fake, (self.bound.args, self.bound.kwargs))
        name = "forward" if self.pair.fake is None else "fake"
        returned = self._call(name, *args, **kwargs)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise WrongPair(f"its {name} does not return a tuple of the results and the residuals")
        outputs, residuals = returned
        tensors = tensors_in(outputs)
        problem = _result_problem(tensors, self.results)
        if problem is not None:
            raise WrongPair(f"its {name} returns {problem}")
        if not isinstance(residuals, tuple):
            raise WrongPair(f"the residuals of its {name} are not a tuple")
        for tensor, proxy in zip(tensors, self.results, strict=True):
            if storage_address(tensor) in self._storages:
                raise WrongPair(f"a result of its {name} shares memory with an argument, or with another result")
            self._know(tensor, proxy)
        return residuals

    def _gradients(
        self, residuals: tuple[Any, ...], cotangents: dict[str, TensorProxy]
    ) -> tuple[TensorProxy | None, ...]:
        """Call backward; returns one gradient for each tensor argument, None where none is computed."""
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
        returned = self._call("backward", residuals, given, self.wanted)
        problem = _gradient_problem(returned, self.arguments, self.wanted)
        if problem is not None:
            raise WrongPair(f"its backward {problem}")
        return tuple([None if gradient is None else self._tensor(gradient, "gradient") for gradient in returned])

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call the function of the pair with this name."""
        with self.mode.observing() as observed:
            result = getattr(self.pair, name)(*args, **kwargs)
        if any(address in observed.written for address in self._storages):
            raise WrongPair(f"its {name} writes to its arguments")
        return result

    def _fake(self, leaf: Any) -> Any:
        return self._fakes[leaf.name] if isinstance(leaf, TensorProxy) else on_fakes(leaf)

    def _know(self, fake: torch.Tensor, proxy: TensorProxy) -> None:
        self._known[id(fake)] = proxy
        self._fakes[proxy.name] = fake
        self._storages.setdefault(storage_address(fake), proxy.storage)

    def _new(self, what: str) -> dict[str, Any]:
        """The name and the storage of a new value, as keyword arguments of a proxy."""
        self._count += 1
        return {"name": f":{what}_{self._count}", "storage": -self._count}

    def _residual(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self._known.get(id(leaf)) or self._tensor(leaf, "residual")
        leaf = from_fake(leaf)
        return leaf if isinstance(leaf, _LITERALS) else OpaqueProxy(self._new("residual")["name"], type(leaf).__name__)

    def _tensor(self, fake: torch.Tensor, what: str) -> TensorProxy:
        """A proxy for a new value, which may share the storage of others."""
        new = self._new(what)
        storage = self._storages.setdefault(storage_address(fake), new["storage"])
        shape, stride, dtype, device = metadata_of(fake)
        proxy = TensorProxy(new["name"], shape, stride, dtype, device, False, storage, from_fake(fake.storage_offset()))
        self._know(fake, proxy)
        return proxy

    def _cotangent(self, proxy: TensorProxy) -> TensorProxy:
        stride = self.query.cotangent_strides.get(proxy.name, dense_stride(proxy))
        cotangent = replace(proxy, **self._new("cotangent"), stride=stride, offset=0, requires_grad=False)
        self._know(make_fake(self.mode, cotangent), cotangent)
        return cotangent


def _result_problem(returned: Sequence[torch.Tensor], results: Sequence[TensorProxy]) -> str | None:
    """The first mismatch between the tensors that forward returned and the op's results; None if there is none."""
    if len(returned) != len(results):
        return f"{len(returned)} tensors as results, not {len(results)}"
    for tensor, proxy in zip(returned, results, strict=True):
        if metadata_of(tensor) != metadata_of(proxy):
            given, expected = _description(tensor), _description(proxy)
            if given == expected:
                given, expected = (f"{given} with strides {metadata_of(each)[1]}" for each in (tensor, proxy))
            return f"{given} for {proxy.name}; expected is {expected}"
    return None


def _gradient_problem(returned: Any, arguments: Sequence[TensorProxy], wanted: Sequence[bool]) -> str | None:
    """The first mismatch between the gradients that backward returned and those expected; None if there is none."""
    if not isinstance(returned, tuple | list) or len(returned) != len(arguments):
        count = f" of {len(returned)}" if isinstance(returned, tuple | list) else ""
        tensors = f"{len(arguments)} tensor{'s' if len(arguments) > 1 else ''}"
        kind = f"{type(returned).__name__}{count}"
        return f"returns a {kind}, not a tuple with an item for each of the {tensors} among the arguments"
    for index, (gradient, proxy, want) in enumerate(zip(returned, arguments, wanted, strict=True)):
        is_tensor = isinstance(gradient, torch.Tensor)
        if not want and gradient is not None:
            return f"returns a gradient at index {index}, where wanted[{index}] is False and None is expected"
        if want and not (is_tensor and _description(gradient) == _description(proxy)):
            given = _description(gradient) if is_tensor else f"a {type(gradient).__name__}"
            expected = f"a tensor like the argument {proxy.name}, {_description(proxy)}"
            return f"returns {given} at index {index}; expected is {expected}"
    return None


def _description(tensor: Any) -> str:
    """Shape, dtype and device as text. Strides may differ, so they are left out."""
    shape, _, dtype, device = metadata_of(tensor)
    return f"{str(dtype).removeprefix('torch.')}{list(shape)} on {device}"


def derive_by_executor(
    query: Query, executors: Sequence[Executor], decisions: tuple[Decision, ...]
) -> Derivative | Declined | None:
    """The derivative by the pair of the executor that claims the op.

    None if no executor claims it; a decline with the reason if the executor that claims it has no pair for it.

    Args:
        decisions: of the executors about the op.

    A pair that fails or violates its contract is a decline with a warning. The option ``on_decline`` of the executor
    applies to all declines of its pair.

    Raises:
        ExecutorError: the pair fails and ``THUNDER_STRICT=1``, or it is declined and ``on_decline="error"``.
    """
    if not decisions or not isinstance(decisions[-1], Claimed):
        return None
    bound = query.bound
    executor = next(one for one in executors if one.name == decisions[-1].executor)
    with only_kernels(None if bound.context is None else bound.context.attention):
        pair = executor.derivative(bound)
    if pair is None:
        return Declined(executor.name, "it has no derivative of its own for this call", not executor.fuses)
    outcome = _derivative_or_decline(query, executor.name, pair)
    if isinstance(outcome, Derivative):
        return replace(outcome, decisions=decisions)
    if isinstance(executor, ConfiguredExecutor):
        executor.report(bound, outcome)
    return outcome


def _derivative_or_decline(query: Query, executor: str, pair: DerivativePair) -> Derivative | Declined:
    """The derivative by the pair; a decline if it cannot be used. If that is its fault, this warns.

    Raises:
        ExecutorError: it is, and ``THUNDER_STRICT=1``.
    """
    bound = query.bound
    try:
        refuse_objects(bound)
        if bound.effects.mutates or len(fresh_outputs(bound)) != len(bound.outputs()):
            raise LoweringError("the op writes to a storage, or its results share storage with its arguments")
        values = _run_on_fakes(query, pair)
    except (LoweringError, SizeVariesError) as error:
        return Declined(executor, f"the pair of {executor} cannot be used: {error.problem}", failed=True)
    except ThunderError:
        raise
    except Exception as error:  # noqa: BLE001 - a bug of the executor, or a pair that does not work on fake tensors
        problem = f"failed: {error}" if isinstance(error, WrongPair) else error
        cure = _CURES[isinstance(error, WrongPair), pair.fake is not None]
        reason = declined_by_failing(executor, bound.symbol.name, "derivative pair", bound.location, problem, cure)
        return Declined(executor, reason.replace("its derivative pair", f"the pair of {executor}", 1), failed=True)
    return _derivative(query, executor, pair, values)


def _derivative(query: Query, executor: str, pair: DerivativePair, values: PairValues) -> Derivative:
    bound = query.bound
    own = {proxy.name for proxy in bound.proxies()}

    def new(leaf: Any) -> Any:
        return leaf if isinstance(leaf, PROXY_TYPES) and leaf.name not in own else None

    forward = replace(
        bound,
        symbol=executor_symbol(pair.forward, executor, bound.symbol.tags - {Tag.OPAQUE}, bound.symbol),
        output=(bound.output, map_leaves(new, values.residuals)),
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
    """The gradients by the names of the arguments, with ops that add those of an argument passed twice."""
    ops: list[BoundSymbol] = []
    sums: dict[str, TensorProxy] = {}
    for proxy, gradient in zip(tensor_inputs_of(bound), gradients, strict=True):
        if gradient is None:
            continue
        if proxy.name in sums:
            symbol, args, kwargs = registry.resolve(torch.add, (sums[proxy.name], gradient), {})
            storage = lowest_storage - 1 - len(ops)
            gradient = sum_stand_in(sums[proxy.name], gradient, f":sum_{len(ops)}", storage)
            ops.append(BoundSymbol(symbol, args, kwargs, gradient, context=PLAIN, location=bound.location))
        sums[proxy.name] = gradient
    return ops, {**sums}
