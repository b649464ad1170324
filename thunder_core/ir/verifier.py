"""The verifier: check that a trace satisfies the invariants of its stage."""

from __future__ import annotations

import keyword
import os
from collections.abc import Iterable

import torch

from thunder_core.errors import TraceError, VerificationError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.geometry import end
from thunder_core.ir.literals import RESERVED_NAMES, LiteralPrinter
from thunder_core.ir.printer import FunctionPrinter
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.size import SizeExpr
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import iterate_leaves, iterate_proxies

_AROUND = 5


def _excerpt(trace: Trace, index: int) -> str:
    """The printed ops around op ``index``, which is marked: up to five before and five after it.

    Index -1 is the signature, ``len(trace.symbols)`` the return.
    """
    printer = FunctionPrinter(LiteralPrinter(lambda body: body.name), lowered=False, comments=True)
    lines = []
    for number in range(max(-1, index - _AROUND), min(len(trace.symbols), index + _AROUND) + 1):
        marker = "-->" if number == index else "   "
        lines.append(f"{marker} {_line(printer, trace, number)}")
    return "\n".join(lines)


def _line(printer: FunctionPrinter, trace: Trace, number: int) -> str:
    if number == -1:
        return f"def {trace.name}({', '.join(str(proxy.name) for proxy in trace.inputs)}):"
    if number == len(trace.symbols):
        return f"    return {_returned(printer, trace)}"
    return f"    {_call(printer, trace.symbols[number])}"


def _call(printer: FunctionPrinter, bound: BoundSymbol) -> str:
    try:
        return printer.line(bound)
    except (TraceError, AttributeError, TypeError, IndexError) as error:
        return f"<a line of {getattr(bound, 'symbol', bound)!r} that cannot be printed: {error}>"


def _returned(printer: FunctionPrinter, trace: Trace) -> str:
    try:
        return printer.literals.expression(trace.output)
    except TraceError as error:
        return f"<an output that cannot be printed: {error.problem}>"


# The result of such an op is the only tensor in its storage, so that the size of the storage is known.
_OWNING_TAGS = frozenset({Tag.ELEMENTWISE, Tag.MATMUL, Tag.REDUCTION})


def verification_requested() -> bool:
    """Whether the environment enables checks between passes and in each run (``THUNDER_VERIFY=1``)."""
    return os.environ.get("THUNDER_VERIFY", "") not in ("", "0")


Checked = dict[int, BoundSymbol]
"""Ops whose arguments and results were checked to be literals and proxies, by identity."""


def verify(trace: Trace, maker: str | None = None, checked: Checked | None = None) -> None:
    """Raise VerificationError, which shows the offending op and those around it, if ``trace`` is malformed.

    Args:
        trace: the trace to check.
        maker: the pass that produced it, for the message; by default its provenance, which can be an earlier pass.
        checked: ops of earlier traces, to which those of this one are added. What depends on nothing but the op is not
            checked again.
    """
    _Verifier(trace, maker or repr(trace.provenance), {} if checked is None else checked).verify()


def malformed(trace: Trace, maker: str, index: int, problem: str) -> VerificationError:
    """The error about op ``index``: -1 is the signature, ``len(trace.symbols)`` the return.

    Its location is that of the op; of an op without one, such as an inserted op, that of the last op before it.
    """
    ops = trace.symbols
    lines = [getattr(op, "location", None) for op in ops[: index + 1]]
    location = next((line for line in reversed(lines) if line is not None), None)
    place = "its signature" if index < 0 else f"symbols[{index}]" if index < len(ops) else "its return"
    stage = getattr(trace.stage, "value", trace.stage)
    where = f"In the {stage} trace {trace.name!r} produced by {maker}, at {place}"
    return VerificationError(f"{where}: {problem}\n{_excerpt(trace, index)}", location=location)


class _Broken(Exception):
    """Raised if an invariant does not hold; the verifier adds the position."""


class _Verifier:
    def __init__(self, trace: Trace, maker: str, checked: Checked) -> None:
        self.trace = trace
        self.maker = maker
        self.checked = checked
        self.defined: dict[str, Proxy] = {}
        self.deleted: dict[str, int] = {}
        self.storages: dict[int, str] = {}
        self.storage_bytes: dict[int, int] = {}
        self.literals = LiteralPrinter(lambda body: body.name)

    def verify(self) -> None:
        index = -1
        try:
            self._check_header()
            self._check_deletions(-1)
            for index, bound in enumerate(self.trace.symbols):
                self._check_line(bound)
                self._check_deletions(index)
            index = len(self.trace.symbols)
            self._check_uses(iterate_proxies(self.trace.output), "returns")
            self.literals.expression(self.trace.output)
        except (_Broken, TraceError) as error:
            raise malformed(self.trace, self.maker, index, str(error)) from error

    def _check_header(self) -> None:
        trace = self.trace
        _expect(trace.name.isidentifier() and not keyword.iskeyword(trace.name), f"{trace.name!r} is not a name")
        _expect(isinstance(trace.stage, Stage), f"the stage is a {type(trace.stage).__name__}")
        _check_context(trace.context)
        for proxy in trace.inputs:
            _check_proxy(proxy)
            self._define(proxy)
            if isinstance(proxy, TensorProxy):
                self.storages.setdefault(proxy.storage, proxy.name)
        outside = [index for index in trace.deletions if not -1 <= index < len(trace.symbols)]
        _expect(not outside, f"deletions after lines {outside}, but there are {len(trace.symbols)} lines")

    def _check_line(self, bound: BoundSymbol) -> None:
        if not isinstance(bound, BoundSymbol):
            raise _Broken(f"a line is a {type(bound).__name__}, not a BoundSymbol")
        if not isinstance(bound.symbol, Symbol):
            raise _Broken(f"a line calls a {type(bound.symbol).__name__}, not a Symbol")
        arguments_fit = isinstance(bound.args, tuple) and isinstance(bound.kwargs, dict)
        _expect(arguments_fit, f"args and kwargs of {bound.symbol.name} must be a tuple and a dict")
        self._check_uses(bound.inputs(), "uses")
        if id(bound) not in self.checked:
            self._check_values(bound)
            self.checked[id(bound)] = bound
        self._check_effects(bound)
        arguments = list(bound.inputs())
        for proxy in bound.outputs():
            self._define(proxy)
            if isinstance(proxy, TensorProxy):
                self._check_memory(proxy, bound, arguments)

    def _check_values(self, bound: BoundSymbol) -> None:
        """Check what depends on nothing but the op."""
        self.literals.arguments(bound.args, bound.kwargs)
        for value in (*iterate_leaves(bound.args), *iterate_leaves(bound.kwargs)):
            if isinstance(value, Trace):
                verify(value)
        for leaf in iterate_leaves(bound.output):
            self.literals.expression(leaf)  # besides proxies, literals that the call always returns
        for proxy in bound.outputs():
            _check_proxy(proxy)
        if bound.context is not None:
            _check_context(bound.context)

    def _check_uses(self, proxies: Iterable[Proxy], verb: str) -> None:
        for proxy in proxies:
            name = proxy.name
            known = self.defined.get(name)
            if known is None:
                raise _Broken(f"it {verb} {name!r}, which is not defined before")
            if name in self.deleted:
                raise _Broken(f"it {verb} {name!r}, which is deleted after line {self.deleted[name]}")
            if known is not proxy and known != proxy:
                raise _Broken(f"it {verb} {proxy!r}, but that name is defined as {known!r}")

    def _define(self, proxy: Proxy) -> None:
        if proxy.name in self.defined:
            raise _Broken(f"{proxy.name!r} is defined twice")
        self.defined[proxy.name] = proxy

    def _check_effects(self, bound: BoundSymbol) -> None:
        mutates = bound.effects.mutates
        if not mutates:
            return
        _expect(self.trace.stage is not Stage.FUNCTIONAL, f"a functional trace mutates {', '.join(mutates)}")
        tensors = {proxy.name for proxy in bound.inputs() if isinstance(proxy, TensorProxy)}
        strangers = sorted(set(mutates) - tensors)
        _expect(not strangers, f"its effects mutate {', '.join(strangers)}, not a tensor among its arguments")

    def _check_memory(self, proxy: TensorProxy, bound: BoundSymbol, arguments: list[Proxy]) -> None:
        owner = self.storages.get(proxy.storage)
        if owner is None:
            self.storages[proxy.storage] = proxy.name
            if not _OWNING_TAGS.isdisjoint(bound.symbol.tags) and proxy.offset == 0:
                self._remember_size(proxy)
            return
        related: list[Proxy] = [*arguments, *bound.outputs()]
        shared = any(
            isinstance(item, TensorProxy) and item.storage == proxy.storage and item.name != proxy.name
            for item in related
        )
        if not shared:
            raise _Broken(f"{proxy.name!r} shares the storage of {owner!r}, which no argument of the op does")
        end, size = _end(proxy), self.storage_bytes.get(proxy.storage)
        if end is not None and size is not None and end > size:
            raise _Broken(f"{proxy.name!r} reaches byte {end} of a storage of {size} bytes")

    def _remember_size(self, proxy: TensorProxy) -> None:
        end = _end(proxy)
        if end is not None:
            self.storage_bytes[proxy.storage] = end

    def _check_deletions(self, index: int) -> None:
        for name in self.trace.deletions.get(index, ()):
            if name not in self.defined:
                raise _Broken(f"{name!r} is deleted but not defined")
            if name in self.deleted:
                raise _Broken(f"{name!r} is deleted twice")
            self.deleted[name] = index


def _check_proxy(proxy: Proxy) -> None:
    name = proxy.name
    if not name.isidentifier() or keyword.iskeyword(name) or name in RESERVED_NAMES:
        raise _Broken(f"{name!r} cannot be the name of a value")
    problem = _problem_of_tensor(proxy) if isinstance(proxy, TensorProxy) else ""
    if isinstance(proxy, NumberProxy) and not isinstance(proxy.python_type, type):
        problem = f"the type of {proxy.name!r} is {proxy.python_type!r}"
    if isinstance(proxy, OpaqueProxy) and not isinstance(proxy.type_name, str):
        problem = f"the type name of {proxy.name!r} is {proxy.type_name!r}"
    if problem:
        raise _Broken(problem)


def _problem_of_tensor(proxy: TensorProxy) -> str:
    """What is malformed in a tensor; empty if nothing is."""
    if len(proxy.stride) != (len(proxy.shape) if proxy.layout is torch.strided else 0):
        return f"{proxy.name!r} has sizes {proxy.shape} but strides {proxy.stride}"
    if not isinstance(proxy.dtype, torch.dtype):
        return f"the dtype of {proxy.name!r} is {proxy.dtype!r}"
    if not isinstance(proxy.device, torch.device):
        return f"the device of {proxy.name!r} is {proxy.device!r}"
    if not isinstance(proxy.requires_grad, bool):
        return f"requires_grad of {proxy.name!r} is {proxy.requires_grad!r}"
    if proxy.requires_grad and not proxy.can_require_grad:
        return f"{proxy.name!r} of {proxy.dtype} requires grad"
    for size in proxy.sizes:
        if type(size) is not SizeExpr and not (type(size) is int and size >= 0):
            return f"a size, stride or offset of {proxy.name!r} is {size!r}"
    return ""


def _check_context(context: Context) -> None:
    _expect(isinstance(context, Context), f"a context is {context!r}")
    kinds = [kind for kind, _ in context.autocast]
    _expect(len(set(kinds)) == len(kinds), f"a context names a device type twice: {context!r}")
    for _, dtype in context.autocast:
        _expect(isinstance(dtype, torch.dtype), f"a context casts to {dtype!r}")


def _end(proxy: TensorProxy) -> int | None:
    """The offset in bytes one past the tensor's last element; None if it depends on varying sizes."""
    if proxy.layout is not torch.strided or not all(type(size) is int for size in proxy.sizes):
        return None
    return 0 if 0 in proxy.shape else int(end(proxy) * proxy.dtype.itemsize)


def _expect(holds: bool, problem: str) -> None:
    if not holds:
        raise _Broken(problem)
