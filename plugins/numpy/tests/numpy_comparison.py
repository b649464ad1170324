"""Comparison of compiled functions on arrays with NumPy."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

import thunder

_TOLERANCES = {"float16": 2e-3, "float32": 3e-5, "complex64": 3e-5}


def assert_same(result: Any, expected: Any, tolerance: float = 1e-9, where: str = "") -> None:
    """Assert that two results have the same classes, dtypes, shapes and values."""
    assert type(result) is type(expected), (where, result, expected)
    if isinstance(expected, tuple | list):
        assert len(result) == len(expected), where
        for index, (one, other) in enumerate(zip(result, expected, strict=True)):
            assert_same(one, other, tolerance, f"{where}[{index}]")
    elif isinstance(expected, dict):
        assert list(result) == list(expected)
        for key in expected:
            assert_same(result[key], expected[key], tolerance, f"{where}[{key}]")
    elif isinstance(expected, np.ndarray | np.generic):
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape), where
        if expected.dtype.kind in "fc":
            np.testing.assert_allclose(result, expected, tolerance, tolerance, err_msg=where)
        else:
            np.testing.assert_array_equal(result, expected, err_msg=where)
    else:
        assert result == expected, where


def check(function: Callable[..., Any], *calls: tuple[Any, ...], hits: int | None = None, **options: Any) -> Any:
    """Compile a function; compare results and arguments of each call with those of NumPy.

    Args:
        calls: the arguments of the calls. Arrays are copied for NumPy.
        hits: the expected number of cache hits; all calls after the first by default.
    """
    compiled = thunder.jit(function, executors=[], front_end="numpy", **options)
    for args in calls:
        copies = copied(args)
        assert_same(compiled(*args), function(*copies))
        assert_same(args, copies)
    assert thunder.cache_hits(compiled) == (len(calls) - 1 if hits is None else hits)
    return compiled


def copied(value: Any) -> Any:
    """A copy of nested containers of arrays; an array that occurs twice does so in the copy."""
    return copy.deepcopy(value)


def tolerance_of(dtype: str) -> float:
    """The relative and absolute tolerance of results in a dtype."""
    return _TOLERANCES.get(dtype, 1e-9)


def array(dtype: str, shape: tuple[int, ...] = (3, 4), seed: int = 0) -> np.ndarray:
    """A random array with small integers, or normally distributed numbers."""
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.random(shape) > 0.5
    if np.dtype(dtype).kind in "iu":
        return generator.integers(0 if dtype[0] == "u" else -5, 6, shape).astype(dtype)
    values = generator.standard_normal(shape)
    return (values + 1j * generator.standard_normal(shape) if dtype[0] == "c" else values).astype(dtype)
