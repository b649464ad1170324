"""Results of the calls in a printed program, from calls on fake tensors as during acquisition."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder_core.ir.annotation import TensorAnnotation
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.context import Context, modes_for_fakes
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.pytorch_internals import no_dispatch
from thunder_core.symbols.checkpointing import CHECKPOINT, CHECKPOINT_WITH_WRITES
from thunder_core.symbols.checks import CHECK_METADATA, CHECK_TRUE, REQUIRED
from thunder_core.symbols.control_flow import COND
from thunder_core.symbols.functions import REBASED
from thunder_core.symbols.generators import CUDA_STATE, GET_RNG_STATE, NEW_GENERATOR, WRITES
from thunder_core.symbols.printing import LOG_VALUES, PRINT_VALUES, WARN
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_alias, make_derived, make_fake
from thunder_core.tracing.outcome import Outcome, Result, Slot, infer
from thunder_frontend.record import data_dependence
from thunder_saving.module_syntax import CallSyntax, ModuleSyntax

DEPENDS_ON_VALUES = data_dependence.EXCEPTIONS
"""Exceptions of calls whose results cannot be derived from metadata."""


class FakeRun:
    """Runs the operations of a trace in order on fake tensors.

    Args:
        inputs: the trace's inputs.
        leaves: whether inputs that require grad are leaves of the autograd graph, like parameters.
    """

    def __init__(self, inputs: Sequence[Proxy], *, leaves: bool) -> None:
        self._mode = ObservingFakeMode()
        self._fakes: dict[str, torch.Tensor] = {}
        self._storages: dict[int, Any] = {}
        with self._mode.observing():
            for proxy in inputs:
                if isinstance(proxy, TensorProxy):
                    self._fakes[proxy.name] = self._input(proxy, leaves)

    def call(self, bound: BoundSymbol, ambient: Context) -> Outcome:
        """Run ``bound``, whose output is not known yet. Raises the exceptions of the call.

        Exceptions in `DEPENDS_ON_VALUES` mean that the call needs more than metadata.
        """
        self._results: list[torch.Tensor] = []
        target = _STAND_INS.get(bound.symbol, bound.symbol.target)
        tensors = [self._fakes[proxy.name] for proxy in bound.inputs() if isinstance(proxy, TensorProxy)]
        args, kwargs = self._substitute(bound.args), self._substitute(bound.kwargs)
        with self._mode, self._mode.observing() as observed, modes_for_fakes(bound.context or ambient):
            try:
                outcome, self._results = infer(target, args, kwargs, tensors, observed)
            except DEPENDS_ON_VALUES:
                raise
            except Exception as error:  # noqa: BLE001 - any error of PyTorch about the arguments
                raise data_dependence.as_eager_raises(bound.symbol, args, kwargs, error) from None
        return outcome

    def name_results(self, proxies: Sequence[TensorProxy | None]) -> None:
        """Assign the names of the trace to the results of the last call, in order."""
        fakes: Sequence[torch.Tensor | None] = self._results or [None] * len(proxies)
        for proxy, fake in zip(proxies, fakes, strict=True):
            if proxy is not None:
                if fake is None:
                    with self._mode.observing():
                        fake = self._input(proxy, leaves=False)
                self._fakes[proxy.name] = fake
                self._storages.setdefault(proxy.storage, fake)

    def _input(self, proxy: TensorProxy, leaves: bool) -> torch.Tensor:
        base = self._storages.get(proxy.storage)
        if base is not None:
            return make_alias(base, proxy, leaf=leaves)
        if proxy.layout is not torch.strided:
            with no_dispatch():
                empty = torch.empty(
                    list(map(int, proxy.shape)), dtype=proxy.dtype, layout=proxy.layout, device=proxy.device
                )
            return self._mode.from_tensor(empty.requires_grad_(proxy.requires_grad))
        fake = make_fake(self._mode, proxy) if leaves else make_derived(self._mode, proxy)
        self._storages[proxy.storage] = fake
        return fake

    def _substitute(self, value: Any) -> Any:
        def leaf(item: Any) -> Any:
            if isinstance(item, TensorProxy):
                return self._fakes[item.name]
            if isinstance(item, OpaqueProxy):
                return _stand_in_object(item)
            if isinstance(item, NumberProxy):
                return item.python_type(1)
            return compile_trace(item) if isinstance(item, Trace) else item

        return map_leaves(leaf, value)


def _stand_in_object(proxy: OpaqueProxy) -> Any:
    if proxy.type_name == "Generator":
        return torch.Generator()
    raise data_dependence.ValueNeeded(f"the object {proxy.name}")


def _run_body(body: Callable[..., Any], *operands: Any, **options: Any) -> Any:
    """A checkpoint region returns the results of its body."""
    return body(*operands)


def _run_branch(pred: Any, true_branch: Callable[..., Any], false_branch: Callable[..., Any], operands: Any) -> Any:
    """A branch returns new tensors like those of the first branch; both branches may have effects."""
    false_branch(*operands)
    return map_leaves(_lookalike, true_branch(*operands))


def _lookalike(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    copy = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)
    return copy.requires_grad_() if leaf.requires_grad else copy


def _nothing(*_: Any) -> None:
    """While a program is read, random states are not changed, values are not checked, and nothing is reported."""


_SIZE_OF_CUDA_STATE = 16  # seed and offset
# Fake implementations of symbols that call programs, or that modify more than tensors.
_STAND_INS: dict[Symbol, Callable[..., Any]] = {
    CHECKPOINT: _run_body,
    CHECKPOINT_WITH_WRITES: lambda body, written, *operands, **options: body(*operands),
    COND: _run_branch,
    CHECK_TRUE: _nothing,
    **dict.fromkeys(REQUIRED.values(), _nothing),
    **{symbol: _nothing for _, _, symbol in WRITES},
    **dict.fromkeys((PRINT_VALUES, LOG_VALUES, WARN), _nothing),
    GET_RNG_STATE: lambda: torch.empty(torch.Generator().get_state().shape, dtype=torch.uint8),
    CUDA_STATE: lambda *device: torch.empty(_SIZE_OF_CUDA_STATE, dtype=torch.uint8),
}
SPECIAL_SYMBOLS = {symbol.name: symbol for symbol in (*_STAND_INS, NEW_GENERATOR, CHECK_METADATA, REBASED)}
"""Symbols that acquisition creates, by name."""


def assumed_outcome(
    module: ModuleSyntax,
    syntax: CallSyntax,
    bound: BoundSymbol,
    annotations: list[TensorAnnotation | None],
    owners: dict[str, int],
) -> Outcome:
    """The outcome that the target and the annotations of a line describe.

    Args:
        module: for error messages.
        syntax: the line.
        bound: the call.
        annotations: one for each name of the target.
        owners: storage numbers by the names that ``shares`` in an annotation refers to.

    Raises:
        TraceSyntaxError: an annotation is missing.
    """
    arguments = tensor_inputs_of(bound)
    writes = bound.symbol.style is CallStyle.METHOD and bound.symbol.name.endswith("_")
    results: list[Result] = []

    def structure(target: ast.expr | None) -> Any:
        if isinstance(target, ast.Tuple | ast.List):
            return tuple([structure(part) for part in target.elts])
        if not isinstance(target, ast.Name) or target.id == "_":
            return None
        annotation = annotations[len(results)]
        if annotation is None:
            raise module.error(
                f"what {ast.unparse(syntax.value)!r} returns depends on values, so the line needs an annotation",
                syntax.value,
                "add a comment behind it, such as  # f32[2, 3]",
            )
        results.append(_result(annotation, arguments, owners, writes))
        return Slot(len(results) - 1)

    return Outcome(
        structure(syntax.target), tuple(results), (0,) if writes else (), Tag.RANDOM in bound.symbol.tags, False
    )


def count_names(target: ast.expr | None) -> int:
    """The number of names in a target."""
    names = [node.id for node in ast.walk(target) if isinstance(node, ast.Name)] if target is not None else []
    return len([name for name in names if name != "_"])


def _result(annotation: TensorAnnotation, arguments: list[TensorProxy], owners: dict[str, int], writes: bool) -> Result:
    storages = [argument.storage for argument in arguments]
    owner = owners.get(annotation.shares or "")
    shares = storages.index(owner) if owner in storages else -1
    return Result(
        0 if writes else -1,
        shares,
        -1,
        annotation.shape,
        annotation.stride,
        annotation.offset,
        annotation.dtype,
        annotation.device,
        annotation.requires_grad,
        annotation.layout,
    )
