"""Comparison of a compiled call with eager PyTorch, property by property."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder_core.pytorch_internals import tree_flatten, tree_map
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.failure import Breach
from thunder_testing.conformance.running import Run
from thunder_testing.conformance.tolerance import same_bits
from thunder_testing.snapshot import storage_key

ValueCheck = Callable[[str, int, torch.Tensor, torch.Tensor], None]
"""From the name of a result, its position among the tensors, the actual and the expected tensor; raises `Breach`."""


def compare(expected: Run, actual: Run, check_values: ValueCheck) -> None:
    """Raise `Breach` for the first difference: structure, metadata, memory, arguments, values, in this order."""
    ours, our_structure = tree_flatten(actual.result)
    theirs, their_structure = tree_flatten(expected.result)
    if our_structure != their_structure:
        ours_as_text, theirs_as_text = _outline(actual.result), _outline(expected.result)
        raise Breach("structure", f"the result is {ours_as_text}; eager PyTorch returns {theirs_as_text}")
    names = _names(len(theirs))
    for name, one, other in zip(names, ours, theirs, strict=True):
        _compare_kind(name, one, other)
    _compare_memory(names, Run(actual.call, ours), Run(expected.call, theirs))
    compare_arguments(actual.call, expected.call)
    position = 0
    for name, one, other in zip(names, ours, theirs, strict=True):
        if isinstance(other, torch.Tensor):
            check_values(name, position, one, other)
            position += 1


def compare_arguments(actual: Call, expected: Call, when: str = "the call") -> None:
    """Raise `Breach` if a tensor among the arguments differs from that after the eager call."""
    for index, (one, other) in enumerate(zip(actual.tensors(), expected.tensors(), strict=True)):
        if not same_bits(one, other):
            raise Breach("arguments unchanged", f"tensor {index} among the arguments has other values after {when}")


def compare_metadata(name: str, actual: torch.Tensor, expected: torch.Tensor, *, strides: bool = True) -> None:
    """Raise `Breach` for the first property of a tensor that differs."""
    for rule in ("shape", "dtype", "device", "layout"):
        _must_be(rule, name, getattr(actual, rule), getattr(expected, rule))
    if strides and expected.layout is torch.strided and strides_that_matter(actual) != strides_that_matter(expected):
        _must_be("strides", name, actual.stride(), expected.stride())


def strides_that_matter(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides of dimensions with several elements, which determine the memory that is read."""
    if not tensor.numel():
        return ()
    return tuple([stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1])


def _compare_kind(name: str, actual: Any, expected: Any) -> None:
    if isinstance(expected, torch.Tensor) != isinstance(actual, torch.Tensor):
        raise Breach("type", f"{name} is a {type(actual).__name__}; eager PyTorch returns a {type(expected).__name__}")
    if isinstance(expected, torch.Tensor):
        compare_metadata(name, actual, expected)
        _must_be("requires_grad", name, actual.requires_grad, expected.requires_grad)
    elif actual != expected and not (actual != actual and expected != expected):
        raise Breach("values", f"{name} is {actual!r}; eager PyTorch returns {expected!r}")


def _must_be(rule: str, name: str, actual: object, expected: object) -> None:
    if actual != expected:
        raise Breach(rule, f"{name} has the {rule} {_plain(actual)}; eager PyTorch's has {_plain(expected)}")


def _plain(value: object) -> str:
    return str(tuple(value)) if isinstance(value, torch.Size) else str(value)


def _compare_memory(names: Sequence[str], actual: Run, expected: Run) -> None:
    ours, theirs = _sharing(names, actual), _sharing(names, expected)
    for name in names:
        if ours.get(name) != theirs.get(name):
            raise Breach(
                "memory sharing",
                f"{name} shares memory with {ours.get(name) or 'nothing'}; "
                f"eager PyTorch's with {theirs.get(name) or 'nothing'}",
            )


def _sharing(names: Sequence[str], run: Run) -> dict[str, str | None]:
    """For each result, the first of the arguments and of the preceding results with the same memory."""
    owners: dict[int, str] = {}
    for index, tensor in enumerate(run.call.tensors()):
        if (key := storage_key(tensor)) is not None:
            owners.setdefault(key, f"tensor {index} among the arguments")
    shared: dict[str, str | None] = {}
    for name, leaf in zip(names, run.result, strict=True):
        key = storage_key(leaf) if isinstance(leaf, torch.Tensor) else None
        shared[name] = owners.get(key) if key is not None else None
        if key is not None:
            owners.setdefault(key, name)
    return shared


def _outline(value: Any) -> str:
    """The containers of a value, with the types of their elements."""
    return str(tree_map(lambda leaf: type(leaf), value)).replace("<class '", "").replace("'>", "")


def _names(count: int) -> list[str]:
    return ["the result"] if count == 1 else [f"result {index}" for index in range(count)]
