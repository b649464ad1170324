"""Sample calls of an operation, from PyTorch's OpInfo database and from the author of the executor."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.private_names import is_missing
from thunder_core.symbols.registry import registry
from thunder_testing.conformance.call import Call, can_require_grad
from thunder_testing.conformance.failure import ConformanceError, NotApplicable
from thunder_testing.conformance.recording import ops_of, record
from thunder_testing.conformance.running import quietly, run
from thunder_testing.conformance.subject import Subject
from thunder_testing.opinfo_samples import sample_inputs
from thunder_testing.seeding import seed_generators

if TYPE_CHECKING:
    from thunder_testing.pytorch_internals import OpInfo


DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.int64, torch.bool,
)  # fmt: skip
"""The default dtypes, of those that OpInfo lists for the operation."""

OWN_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
"""The default dtypes of operations that are not in OpInfo."""

PROGRAM_DTYPES = (torch.float32, torch.bfloat16)
"""The default dtypes of the suite's programs."""


def dtypes_of(subject: Subject, device: str) -> tuple[torch.dtype, ...]:
    """The default dtypes for testing an operation."""
    if subject.calls is not None:
        return PROGRAM_DTYPES
    operators = opinfos(subject)
    if not operators:
        return OWN_DTYPES
    kind = torch.device(device).type
    supported = {dtype for operator in operators for dtype in operator.supported_dtypes(kind)}
    return tuple([dtype for dtype in DTYPES if dtype in supported])


def calls(subject: Subject, device: str, dtype: torch.dtype) -> list[Call]:
    """All calls that eager PyTorch accepts, beginning with the author's. The same in each call."""
    if subject.calls is not None:
        return subject.calls(device, dtype)
    with quietly():
        found = [*_given(subject, device, dtype), *_from_opinfo(subject, device, dtype)]
    return [call for call in found if accepts(call)]


def accepts(call: Call) -> bool:
    """Whether eager PyTorch runs the call and returns something.

    An index out of range on a GPU makes CUDA unusable for the process. So calls with integers are tried on the CPU
    first, unless PyTorch has no kernel for them there.
    """
    if _is_empty_attention(call):
        return False
    try:
        if any(_may_be_places(tensor) for tensor in call.tensors()):
            with suppress(NotImplementedError):
                run(call.map_tensors(torch.Tensor.cpu).copy())
        performed = run(call.copy())
    except Exception:  # noqa: BLE001 - whatever eager refuses is not a case
        return False
    return performed.result is not None


def _is_empty_attention(call: Call) -> bool:
    """On a GPU, PyTorch 2.11 returns None, ends the process, or reads out of bounds, depending on the kernel."""
    attention = call.function is torch.nn.functional.scaled_dot_product_attention
    return attention and any(tensor.is_cuda and not tensor.numel() for tensor in call.tensors())


def _may_be_places(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda and not can_require_grad(tensor) and tensor.dtype is not torch.bool


def draws(call: Call) -> bool:
    """Whether eager PyTorch draws random numbers for the call."""
    device = next((tensor.device for tensor in call.tensors()), torch.device("cpu"))
    state = torch.cuda.get_rng_state if device.type == "cuda" else torch.get_rng_state
    copied = call.copy()
    with quietly():
        before = state()
        copied.function(*copied.args, **copied.kwargs)
        return not torch.equal(before, state())


def finds_positions(call: Call) -> bool:
    """Whether the results are integers and no input is: indices of elements, which are ambiguous for equal elements."""
    performed = [tensor.dtype for tensor in run(call.copy()).tensors()]
    return torch.int64 in performed and all(tensor.dtype is not torch.int64 for tensor in call.tensors())


def _given(subject: Subject, device: str, dtype: torch.dtype) -> Iterator[Call]:
    if subject.samples is not None and subject.function is not None:
        for number, (args, kwargs) in enumerate(subject.samples(device, dtype)):
            yield Call(f"sample {number} of those given", subject.function, tuple(args), dict(kwargs), given=True)


def _from_opinfo(subject: Subject, device: str, dtype: torch.dtype) -> Iterator[Call]:
    for operator in opinfos(subject):
        if dtype not in operator.supported_dtypes(torch.device(device).type):
            continue
        seed_generators(0)
        samples = list(sample_inputs(operator, device, dtype))
        found = [
            Call(f"sample {number} of OpInfo's {operator.full_name!r}", operator.op, (s.input, *s.args), dict(s.kwargs))
            for number, s in enumerate(samples)
        ]
        function = _spelling(subject, operator, found)
        if function is not None:
            yield from [replace(call, function=function) for call in found]


def recorded_instead(subject: Subject, device: str) -> set[str]:
    """The names under which calls of the subject's function are recorded, if they differ from the subject."""
    found: set[str] = set()
    function = subject.function
    if function is None:
        return found
    for operator in opinfos(subject):
        dtype = min(operator.supported_dtypes(torch.device(device).type), key=str)
        for sample in itertools.islice(sample_inputs(operator, device, dtype), 1):
            call = Call("", function, (sample.input, *sample.args), dict(sample.kwargs))
            if accepts(call):
                found.update(op.symbol.name for op in record(call).trace.symbols)
    return found


def _spelling(subject: Subject, operator: OpInfo, found: Sequence[Call]) -> Callable[..., Any] | None:
    """The function to call with the samples so that the subject is recorded: its function, or one of the entry."""
    variants = (subject.function, operator.op, operator.method_variant, operator.inplace_variant)
    for function in [variant for variant in variants if variant is not None]:
        for call in found[:3]:
            spelled = replace(call, function=function)
            if accepts(spelled) and _is_recorded(subject, spelled):
                return function
    return None


def _is_recorded(subject: Subject, call: Call) -> bool:
    try:
        return bool(ops_of(subject, record(call)))
    except NotApplicable:
        return False


def opinfos(subject: Subject) -> list[OpInfo]:
    """The entries of the database for an operation; may be empty."""
    found = {operator.full_name: operator for symbol in subject.symbols for operator in _index().get(symbol, ())}
    return [found[name] for name in sorted(found)]  # the same order in every process


@cache
def _index() -> dict[Symbol, list[OpInfo]]:
    """The entries of the database, by the symbols as which they may be recorded in any spelling."""
    found: dict[Symbol, list[OpInfo]] = {}
    for operator in _database():
        for symbol in _symbols(operator):
            found.setdefault(symbol, []).append(operator)
    return found


def _symbols(operator: OpInfo) -> set[Symbol]:
    variants = (operator.op, operator.method_variant, operator.inplace_variant, operator.operator_variant)
    symbols = {registry.symbol_of(variant) for variant in variants if variant is not None}
    packet = getattr(torch.ops.aten, (operator.aten_name or operator.name).rpartition(".")[2], None)
    if packet is not None:
        overloads = [getattr(packet, name) for name in packet.overloads()]
        symbols.update(registry.symbol_of(function) for function in (packet, *overloads))
    for name in (f"torch.{operator.name}", *[f"torch.{alias.name}" for alias in operator.aliases]):
        try:
            symbols.add(registry.symbol_named(name))
        except LookupError:  # an entry of the database that is not a torch function
            continue
    return {symbol for symbol in symbols if Tag.LOCAL not in symbol.tags}


def _database() -> Any:
    from thunder_testing.pytorch_internals import op_db

    if is_missing(op_db):
        raise ConformanceError(
            f"PyTorch's OpInfo database, where samples come from, cannot be imported: {op_db!r}",
            advice=("pip install expecttest numpy",),
        )
    return op_db
