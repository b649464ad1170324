"""Measurement of all cases of an operator with all implementations, in one process."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.operators.accuracy import Results, exact_results, multiple, outputs_of, relative_errors
from benchmarks.operators.candidate import Candidate
from benchmarks.operators.case import Case, NotAvailable, Problem
from benchmarks.operators.catalogue import cases_of
from benchmarks.operators.device_timing import medians
from benchmarks.operators.limits import Limits
from benchmarks.operators.traffic import traffic

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "float32": torch.float32}
PASSES = ("forward", "forward and backward")
WARM_UP = 3


def measure(operator: str, implementations: list[str], dtype: str, device: str) -> list[dict[str, Any]]:
    """Measure every case, size and pass.

    ``implementations`` must begin with ``eager``; errors are reported as multiples of its errors.

    Returns:
        For each case, size and pass a dict with ``case``, ``pass``, ``limit`` in seconds, ``bandwidth`` in bytes per
        second, ``bytes``, ``operations``, ``float8``, eager's errors as ``eager``, and, by implementation, ``seconds``,
        ``errors``, ``claimed``, ``declined`` and ``skipped``. A case that is not available has only ``case``, ``pass``,
        ``skipped`` and empty ``seconds``.
    """
    limits = Limits(device, DTYPES[dtype])
    results = []
    for case in cases_of(operator):
        for sizes in case.sizes(device):
            results += _measure_case(case, sizes, implementations, limits)
            torch._dynamo.reset()
            gc.collect()
    return results


def _measure_case(case: Case, sizes: tuple[int, ...], names: Sequence[str], limits: Limits) -> list[dict[str, Any]]:
    label = f"{case.what} {'x'.join(map(str, sizes))}"
    torch.manual_seed(0)
    try:
        with torch.device(limits.device):
            problem = case.make(limits.dtype, *sizes)
    except NotAvailable as error:
        reason = str(error)
        return [{"case": label, "pass": PASSES[0], "skipped": dict.fromkeys(names, reason), "seconds": {}}]
    with torch.no_grad():
        outputs = outputs_of(problem.program(*problem.arguments))
    cotangents = [torch.randn_like(output) if output.dim() else torch.ones_like(output) for output in outputs]
    moved = traffic(problem, outputs)
    del outputs
    exact = exact_results(problem, cotangents)
    candidates, skipped = _candidates(names, problem, cotangents)
    results = []
    for index, name in enumerate(PASSES):
        result = _pass(candidates, dict(skipped), bool(index), exact[index])
        limit = limits.work(problem.work, bool(index)) if problem.work else limits.copy(moved[index])
        operations = problem.work and problem.work.forward + (problem.work.backward if index else 0)
        work = {"bytes": moved[index], "operations": operations, "float8": bool(problem.work and problem.work.float8)}
        results.append({"case": label, "pass": name, "limit": limit, "bandwidth": limits.bandwidth, **work, **result})
    return results


def _candidates(
    names: Sequence[str], problem: Problem, cotangents: list[torch.Tensor]
) -> tuple[list[Candidate], dict[str, str]]:
    candidates, skipped = [], {}
    for name in names:
        try:
            candidates.append(Candidate(name, problem, cotangents))
        except Exception as error:  # noqa: BLE001 - an error of a measured package, which the table shows
            skipped[name] = _reason(error)
    return candidates, skipped


def _pass(candidates: list[Candidate], skipped: dict[str, str], backward: bool, exact: Results) -> dict[str, Any]:
    """Warm up, compute errors and claims, and time the candidates without exceptions that claim an operation."""
    errors: dict[str, list[float]] = {}
    claimed: dict[str, list[str]] = {}
    declined: dict[str, list[str]] = {}
    calls = {}
    for candidate in candidates:
        name, call = candidate.name, candidate.both if backward else candidate.forward
        try:
            candidate.restore()
            errors[name] = relative_errors(call(), exact)
            for _ in range(WARM_UP):
                call()
            claims = candidate.claims()
        except Exception as error:  # noqa: BLE001 - an error of a measured kernel, which the table shows
            skipped[name] = _reason(error)
            errors.pop(name, None)
            continue
        if claims is not None:
            claimed[name], declined[name] = list(claims.claimed), list(claims.declined)
        if claims is not None and claims.reason:
            skipped[name] = claims.reason
            del errors[name]
        else:
            calls[name] = call
    eager = errors.get("eager")
    return {
        "seconds": medians(calls, {candidate.name: candidate.restore for candidate in candidates}),
        "errors": {name: multiple(values, eager) for name, values in errors.items()} if eager else {},
        "eager": eager,
        "claimed": claimed,
        "declined": declined,
        "skipped": skipped,
    }


def _reason(error: Exception) -> str:
    if isinstance(error, NotAvailable):
        return str(error)
    return f"failed: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
