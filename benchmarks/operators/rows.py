"""Rows of operators: time, rate, share of the limit, error."""

from __future__ import annotations

from typing import Any

from benchmarks.row import Row, reached_by_thunder

LIMIT = "limit"
"""The column of the machine's limit."""
SHARE_GOAL, ERROR_GOAL = 85, 2


def rows_of(operator: str, measured: list[dict[str, Any]], dtype: str, device: str) -> list[Row]:
    """Four rows for each case and pass, or one with the reasons for a case that is not available.

    On a GPU, executors have a goal for memory-bound cases: a share of the speed of a copy.
    """
    return [row for result in measured for row in _rows(operator, result, dtype, device)]


def _rows(operator: str, result: dict[str, Any], dtype: str, device: str) -> list[Row]:
    group, what = f"{operator}, {dtype}", f"{result['case']}, {result['pass']}"
    skipped = {name: f"{operator}, {reason}" for name, reason in result["skipped"].items()}
    seconds: dict[str, float] = result["seconds"]
    if not seconds:
        return [Row(group, f"{what}: time", "us", {}, skipped)]
    limit, operations = result["limit"], result["operations"]
    scale, unit, of = (operations / 1e12, "TFLOP/s", "of the matmuls alone") if operations else (
        result["bytes"] / 1e9, "GB/s", "of a copy of the same bytes")  # fmt: skip
    if result["float8"]:
        of += " in float8"
    timed = {LIMIT: limit, **seconds}
    shares = {name: 100 * limit / time for name, time in seconds.items()}
    details = {key: result[key] for key in ("bytes", "operations", "bandwidth", "eager", "claimed", "declined")}
    rows = [
        Row(group, f"{what}: time", "us", {name: time * 1e6 for name, time in timed.items()}, skipped, details=details),
        Row(group, "  rate", unit, {name: scale / time for name, time in timed.items()}, {}),
        Row(group, f"  speed, share {of}", "%", shares, {}, *_share_goal(shares, device == "cuda" and not operations)),
    ]
    if result["errors"]:
        errors: dict[str, float] = result["errors"]
        goal = ("", None) if result["float8"] else (
            f"<= {ERROR_GOAL} x eager's", reached_by_thunder(errors, lambda error: error <= ERROR_GOAL))  # fmt: skip
        rows.append(Row(group, "  error from float64, relative to eager's", "x", errors, {}, *goal))
    return rows


def _share_goal(shares: dict[str, float], has_goal: bool) -> tuple[str, bool | None]:
    """The goal, and whether the best executor reaches it."""
    if not has_goal:
        return "", None
    of_thunder = [share for name, share in shares.items() if name.startswith("thunder")]
    return f">= {SHARE_GOAL} %", max(of_thunder) >= SHARE_GOAL if of_thunder else None


def claim_lines(operator: str, measured: list[dict[str, Any]]) -> list[str]:
    """The operations that each executor claims in an operator's cases; details of the rows list them by case."""
    claims: dict[str, dict[str, None]] = {}
    for result in measured:
        for name, symbols in result.get("claimed", {}).items():
            claims.setdefault(name, {}).update(dict.fromkeys(symbols))
    return [f"{operator}: {name} claims {', '.join(symbols)}" for name, symbols in claims.items() if symbols]
