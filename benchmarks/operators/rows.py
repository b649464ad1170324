"""Measurements as rows: time, rate, share of the limit, error."""

from __future__ import annotations

from typing import Any

from benchmarks.row import Row, reached_by_thunder

LIMIT = "limit"
"""The column of what the machine can do."""
SHARE_GOAL, ERROR_GOAL = 85, 2


def rows_of(operator: str, measured: list[dict[str, Any]], dtype: str, device: str) -> list[Row]:
    """Four rows for each case and pass; one with reasons alone for a case that could not be made.

    Of what memory bounds, executors are to reach a share of a copy; that goal is one for GPUs.
    """
    return [row for result in measured for row in _rows(operator, result, dtype, device)]


def _rows(operator: str, result: dict[str, Any], dtype: str, device: str) -> list[Row]:
    group, what = f"{operator}, {dtype}", f"{result['case']}, {result['pass']}"
    skipped = {name: f"{operator}, {reason}" for name, reason in result["skipped"].items()}
    seconds: dict[str, float] = result["seconds"]
    if not seconds:
        return [Row(group, f"{what}: time", "us", {}, skipped)]
    limit, operations = result["limit"], result["operations"]
    scale, unit, of = (operations / 1e12, "TFLOP/s", "of these products alone") if operations else (
        result["bytes"] / 1e9, "GB/s", "of a copy of as many bytes")  # fmt: skip
    if result["float8"]:
        of += " in float8"
    timed = {LIMIT: limit, **seconds}
    shares = {name: 100 * limit / time for name, time in seconds.items()}
    details = {key: result[key] for key in ("bytes", "operations", "bandwidth", "eager", "claimed", "declined")}
    rows = [
        Row(group, f"{what}: time", "us", {name: time * 1e6 for name, time in timed.items()}, skipped, details=details),
        Row(group, "  rate", unit, {name: scale / time for name, time in timed.items()}, {}),
        Row(group, f"  share {of}", "%", shares, {}, *_share_goal(shares, device == "cuda" and not operations)),
    ]
    if result["errors"]:
        errors: dict[str, float] = result["errors"]
        goal = ("", None) if result["float8"] else (
            f"<= {ERROR_GOAL} x eager's", reached_by_thunder(errors, lambda error: error <= ERROR_GOAL))  # fmt: skip
        rows.append(Row(group, "  error, from float64, of eager's", "x", errors, {}, *goal))
    return rows


def _share_goal(shares: dict[str, float], has_goal: bool) -> tuple[str, bool | None]:
    """The best of several executors counts."""
    if not has_goal:
        return "", None
    ours = [share for name, share in shares.items() if name.startswith("thunder")]
    return f">= {SHARE_GOAL} %", max(ours) >= SHARE_GOAL if ours else None


def claim_lines(operator: str, measured: list[dict[str, Any]]) -> list[str]:
    """Who took what of the operator's cases; the details of the rows have it for each."""
    taken: dict[str, dict[str, None]] = {}
    for result in measured:
        for name, symbols in result.get("claimed", {}).items():
            taken.setdefault(name, {}).update(dict.fromkeys(symbols))
    return [f"{operator}: {name} took {', '.join(symbols)}" for name, symbols in taken.items() if symbols]
