"""Descriptions of the differences of two snapshots."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from thunder_testing.snapshot import Entry, storage_key


@dataclass(frozen=True)
class Comparison:
    """How two runs are compared.

    Attributes:
        rtol: relative tolerance of values.
        atol: absolute tolerance of values; both zero means equality.
        values: whether values are compared (not for uninitialized memory).
        gradients: whether backward runs after the call and gradients are compared.
        gradient_rtol, gradient_atol: tolerances of gradients, whose terms may be summed in another order.
        gradient_scale_rtol: tolerance of gradients relative to the largest magnitude in the tensor.
        layout: whether strides and shared storages are compared; not those of gradients, which autograd chooses.
        random_state: whether the states of random generators are compared.
    """

    rtol: float = 0.0
    atol: float = 0.0
    values: bool = True
    gradients: bool = False
    gradient_rtol: float = 1e-4
    gradient_atol: float = 1e-5
    gradient_scale_rtol: float = 0.0
    layout: bool = True
    random_state: bool = True

    def at(self, path: str, expected: object) -> Comparison:
        """The comparison for the value at ``path``; gradients have separate tolerances."""
        if not (path.endswith(".grad") and isinstance(expected, torch.Tensor)):
            return self
        rtol, atol = max(self.rtol, self.gradient_rtol), max(self.atol, self.gradient_atol)
        if self.gradient_scale_rtol and expected.numel():
            magnitudes = expected.detach().to_dense().abs().nan_to_num(0.0, posinf=0.0)
            atol += self.gradient_scale_rtol * float(magnitudes.max())
        return replace(self, rtol=rtol, atol=atol, layout=False)


def differences(expected: dict[str, Entry], actual: dict[str, Entry], comparison: Comparison) -> list[str]:
    """One line per difference, outermost paths first; empty if the snapshots are equal."""
    lines = [f"{path}: missing in the compiled run" for path in expected if path not in actual]
    lines += [f"{path}: only in the compiled run" for path in actual if path not in expected]
    shared = [path for path in expected if path in actual]
    hows = {path: comparison.at(path, expected[path].value) for path in shared}
    for path, how in hows.items():
        lines += [f"{path}{line}" for line in _value_differences(expected[path].value, actual[path].value, how)]
    lines += _partition_differences("is the same object as", _identities(expected, shared), _identities(actual, shared))
    laid_out = [path for path, how in hows.items() if how.layout]
    lines += _partition_differences("shares storage with", _storages(expected, laid_out), _storages(actual, laid_out))
    return lines


def _value_differences(expected: Any, actual: Any, comparison: Comparison) -> Iterator[str]:
    if type(expected) is not type(actual):
        yield f": type {type(expected).__name__} became {type(actual).__name__}"
    elif isinstance(expected, torch.Tensor):
        yield from _tensor_differences(expected, actual, comparison)
    elif isinstance(expected, dict):
        if list(expected) != list(actual):
            yield f": keys {list(expected)} became {list(actual)}"
    elif isinstance(expected, tuple | list):
        if len(expected) != len(actual):
            yield f": length {len(expected)} became {len(actual)}"
    elif isinstance(expected, types.MethodType):
        if expected.__func__ is not actual.__func__:
            yield f": {expected.__func__!r} became {actual.__func__!r}"
    elif isinstance(expected, torch.Generator):
        if not torch.equal(expected.get_state(), actual.get_state()):
            yield ": the state of the random generator differs"
    elif not _equal_leaves(expected, actual, comparison):
        yield f": {expected!r} became {actual!r}"


def _equal_leaves(expected: Any, actual: Any, comparison: Comparison) -> bool:
    if isinstance(expected, float | complex):
        if not comparison.values or expected == actual:
            return True
        return abs(expected - actual) <= comparison.atol + comparison.rtol * abs(expected) or expected != expected
    if "__eq__" not in {name for kind in type(expected).__mro__[:-1] for name in vars(kind)}:
        return True  # equality is not defined: its attributes are separate entries
    try:
        return bool(expected == actual)
    except (TypeError, ValueError, RuntimeError):  # array-like objects whose comparison has no single truth value
        return True


def _tensor_differences(expected: torch.Tensor, actual: torch.Tensor, comparison: Comparison) -> Iterator[str]:
    before = len(
        messages := [f".{name}: {old} became {new}" for name, old, new in _metadata(expected, actual, comparison)]
    )
    yield from messages
    if before or not comparison.values or expected.is_meta:
        return
    try:
        torch.testing.assert_close(
            actual.detach(), expected.detach(), rtol=comparison.rtol, atol=comparison.atol, equal_nan=True
        )
    except AssertionError as error:
        yield ": values differ; " + " ".join(str(error).split())


def _metadata(
    expected: torch.Tensor, actual: torch.Tensor, comparison: Comparison
) -> Iterator[tuple[str, object, object]]:
    """Name, expected and actual value of each property of a tensor that differs."""
    for name in ("shape", "dtype", "device", "layout", "requires_grad", "is_leaf"):
        if getattr(expected, name) != getattr(actual, name):
            yield name, getattr(expected, name), getattr(actual, name)
    for method in ("is_conj", "is_neg", "is_inference"):
        if getattr(expected, method)() != getattr(actual, method)():
            yield method, getattr(expected, method)(), getattr(actual, method)()
    strided = expected.layout is torch.strided is actual.layout
    if comparison.layout and strided and expected.stride() != actual.stride():
        yield "stride", expected.stride(), actual.stride()


def _identities(entries: dict[str, Entry], paths: list[str]) -> dict[str, str]:
    """For each mutable entry, the first path to the same object."""
    first: dict[int, str] = {}
    return {path: first.setdefault(id(entries[path].value), path) for path in paths if entries[path].has_identity}


def _storages(entries: dict[str, Entry], paths: list[str]) -> dict[str, str]:
    """For each tensor with a storage, the first path to the same storage, and the offset in it."""
    first: dict[int, str] = {}
    result = {}
    for path in paths:
        tensor = entries[path].value
        key = storage_key(tensor) if isinstance(tensor, torch.Tensor) else None
        if key is not None:
            owner = first.setdefault(key, path)
            result[path] = owner if owner == path else f"{owner} at offset {tensor.storage_offset()}"
    return result


def _partition_differences(relation: str, expected: dict[str, str], actual: dict[str, str]) -> Iterator[str]:
    for path, owner in expected.items():
        if path in actual and actual[path] != owner:
            old = "nothing before it" if owner == path else owner
            new = "nothing before it" if actual[path] == path else actual[path]
            yield f"{path}: {relation} {old}; in the compiled run {new}"
