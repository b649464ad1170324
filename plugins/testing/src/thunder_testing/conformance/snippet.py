"""Code that reproduces a failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from thunder_core.errors import TraceError
from thunder_core.ir.literals import LiteralPrinter
from thunder_core.ir.tree import map_leaves
from thunder_testing.conformance.call import Call, describe_call, recorded_whole
from thunder_testing.conformance.failure import Breach

_MOST_VALUES: Final = 128
"""Number of elements above which the code has random values."""

_DIGITS: Final = {torch.float32: 9, torch.float16: 5, torch.bfloat16: 4}
"""Digits that distinguish the numbers of a dtype."""


def explained(
    title: str, subject: str, breach: Breach, call: Call | None, executors: str | None, setup: Sequence[str] = ()
) -> str:
    """The message of a failure: the rule, the call, and code that reproduces it. The arguments are as for `snippet`.

    Args:
        title: what was tested, at the beginning of the message.
        subject: the name of the called operation.
        call: None if the failure concerns no single call.
    """
    head = f"{title}: the rule of {breach.rule} is broken\n  {breach.problem}"
    if call is None:
        return head
    code = snippet(call, breach.cotangents, executors, setup)
    lines = [head, f"  call: {subject}({describe_call(call)})", f"  from: {call.what}", "To see it again:"]
    return "\n".join([*lines, *[f"    {line}".rstrip() for line in code.splitlines()]])


def snippet(
    call: Call, cotangents: Sequence[torch.Tensor | None], executors: str | None, setup: Sequence[str] = ()
) -> str:
    """Python code that runs the call with eager PyTorch and compiled, and prints both results.

    Args:
        executors: the argument of `thunder.jit` as code, and other arguments after it; None for an executor without a
            name.
        setup: lines before the compilation.
    """
    literals = LiteralPrinter()
    lines: list[str] = []
    names: dict[int, str] = {}
    for index, tensor in enumerate(call.tensors()):
        names[id(tensor)] = f"x{index}"
        lines.append(f"x{index} = {_tensor(tensor)}{_note(tensor)}")
    arguments = _arguments(literals, call, names)
    called = _called(literals, call.function, arguments)
    given = ", ".join(names.values())
    lines += ["", f"def program({given}):", f"    return {called}", ""]
    lines += setup
    if executors is None:
        lines.append("# executor: the one that the suite was given")
    lines.append(f"compiled = thunder.jit(program, executors={executors or '[executor]'})")
    lines.append("for run in (program, compiled):")
    lines.append("    torch.manual_seed(0)")
    wanted = [name for name, tensor in zip(names.values(), call.tensors()) if tensor.requires_grad]
    if wanted:
        lines += _gradient(given, wanted, cotangents)
    else:
        lines.append(f"    print(run({given}))")
    imports = [f"import {module}" for module in sorted({*literals.modules, "torch", "thunder"})]
    imports += [f"from math import {name}" for name in sorted({*literals.constants, *_constants(lines)})]
    return "\n".join([*imports, "", *lines])


def _gradient(given: str, wanted: Sequence[str], cotangents: Sequence[torch.Tensor | None]) -> list[str]:
    statements = [f"    result = run({given})", "    print(result)"]
    if not cotangents:
        return statements
    given_back = [cotangent for cotangent in cotangents if cotangent is not None]
    return [
        *statements,
        "    leaves = torch.utils._pytree.tree_leaves(result)",
        "    results = [leaf for leaf in leaves if torch.is_tensor(leaf) and leaf.requires_grad]",
        "    cotangents = [",
        *[f"        {_tensor(cotangent)},{_note(cotangent)}" for cotangent in given_back],
        "    ]",
        f"    print(torch.autograd.grad(results, [{', '.join(wanted)}], cotangents, allow_unused=True))",
    ]


def _called(literals: LiteralPrinter, function: Callable[..., Any], arguments: str) -> str:
    whole = getattr(function, "whole", None)  # a function of a composite
    try:
        name = literals.path(function) if whole is None else f"{literals.path(recorded_whole)}({literals.path(whole)})"
    except TraceError:  # a local function, which the message describes
        return f"function({arguments})  # function: {getattr(function, '__qualname__', function)!s:.80}"
    return f"{name}({arguments})"


class _Name:
    """An object whose ``repr`` is a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def _arguments(literals: LiteralPrinter, call: Call, names: dict[int, str]) -> str:
    def spelled(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return _Name(names[id(leaf)])
        try:
            return _Name(literals.expression(leaf))
        except TraceError:  # no literal exists
            return _Name(repr(leaf))

    args = [repr(item) for item in map_leaves(spelled, call.args)]
    kwargs = [f"{name}={item!r}" for name, item in map_leaves(spelled, call.kwargs).items()]
    return ", ".join([*args, *kwargs])


def _tensor(tensor: torch.Tensor) -> str:
    """An expression for an equal tensor with the same strides and offset."""
    plain = tensor.detach()
    end = ".requires_grad_()" if tensor.requires_grad else ""
    options = f"dtype={plain.dtype}" + ("" if tensor.device.type == "cpu" else f', device="{tensor.device}"')
    if plain.layout is not torch.strided or plain.is_conj() or plain.is_neg():
        return f"torch.tensor({_values(plain.to_dense().resolve_conj().resolve_neg())}, {options}){end}"
    shape, stride, offset = tuple(plain.shape), plain.stride(), plain.storage_offset()
    if not plain.numel():
        return f"torch.empty_strided({shape}, {stride}, {options}){end}"
    span = _span(plain)
    if span <= _MOST_VALUES:
        memory = f"torch.tensor({_values(plain.as_strided((span,), (1,), 0))}, {options})"
    elif plain.is_floating_point() or plain.is_complex():
        memory = f"torch.linspace(-3, 3, {span}, {options})"
    else:
        memory = f"torch.zeros({span}, {options})"
    if plain.is_contiguous() and not offset:
        return memory + (f".reshape({shape})" if len(shape) != 1 else "") + end
    return f"{memory}.as_strided({shape}, {stride}, {offset}){end}"


def _note(tensor: torch.Tensor) -> str:
    return "  # other values than in the test" if _span(tensor) > _MOST_VALUES else ""


def _span(tensor: torch.Tensor) -> int:
    """The number of elements of its storage up to its last one."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return 0
    return int(tensor.storage_offset()) + 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))


def _values(tensor: torch.Tensor) -> str:
    digits = _DIGITS.get(tensor.dtype)
    values = tensor.tolist()
    return str(values) if digits is None or tensor.ndim != 1 else f"[{', '.join(f'{v:.{digits}g}' for v in values)}]"


def _constants(lines: Sequence[str]) -> list[str]:
    text = "\n".join(lines)
    return [name for name in ("inf", "nan") if any(f"{before}{name}" in text for before in (" ", "[", "-", "("))]
