"""The command ``operators``: its options, and the measurements that they select."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks.availability import not_available
from benchmarks.implementations import UnknownImplementation, checked
from benchmarks.operators.isolation import measure_isolated
from benchmarks.operators.rows import claim_lines, rows_of
from benchmarks.options import positive
from benchmarks.row import Row

COMPARED = ("eager", "compile", "liger")
LIGER = "liger"
"""Liger's kernels, an implementation that only this command supports."""
DTYPES = {"cuda": "bf16", "cpu": "float32"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for operators, executors and implementations."""
    parser.add_argument(
        "--operator", nargs="+", metavar="NAME", help="operators (default: all; --list-operators lists them)"
    )
    parser.add_argument("--list-operators", action="store_true", help="list operators, spellings and sizes, and exit")
    parser.add_argument(
        "--executor", nargs="*", metavar="NAME", help="executors, each measured alone (default: all installed)"
    )
    help_ = f"other implementations, such as 'thunder[sdpa,inductor]' (default: {' '.join(COMPARED)})"
    parser.add_argument("--impl", nargs="+", metavar="IMPL", help=help_)
    parser.add_argument("--dtype", choices=("bf16", "fp16", "float32"), help="default: bf16 on a GPU, else float32")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: auto")
    parser.add_argument("--threads", type=positive, metavar="N", help="CPU threads (default: 1; for a GPU 8)")


def measure(
    chosen: argparse.Namespace, device: str, threads: int, after: Callable[[list[Row]], None]
) -> tuple[list[Row], list[str], bool]:
    """Measure the selected operators.

    ``after`` is called after each operator with all rows so far.

    Returns:
        The rows, notes to print below the tables, and whether a measurement failed.

    Raises:
        UnknownImplementation: there is no such operator or implementation.
    """
    operators = _operators(chosen.operator)
    names, unavailable = _implementations(chosen, device)
    dtype = chosen.dtype or DTYPES[device]
    rows: list[Row] = []
    notes = [f"{name} not available: {reason}" for name, reason in unavailable.items()]
    failed = False
    for operator in operators:
        start = time.perf_counter()
        print(f"{operator} ...", end="", flush=True, file=sys.stderr)
        results, failures = measure_isolated(operator, names, dtype, device, threads)
        print(f" {time.perf_counter() - start:.0f} s", file=sys.stderr)
        rows += rows_of(operator, results, dtype, device)
        notes += [*claim_lines(operator, results), *(f"{name} FAILED: {reason}" for name, reason in failures.items())]
        failed = failed or bool(failures)
        after(rows)
    return rows, notes, failed


def listing() -> str:
    """The operators with their spellings and sizes, as text."""
    from benchmarks.operators.catalogue import CASES

    lines = [f"{case.operator:<22}{case.what:<38}{_sizes(case.cuda)}" for case in CASES]
    return "\n".join([*lines, "(sizes for a GPU; those for a CPU are smaller)"])


def _sizes(shapes: Sequence[tuple[int, ...]]) -> str:
    return " ".join("x".join(map(str, shape)) for shape in shapes)


def _operators(names: Sequence[str] | None) -> list[str]:
    from benchmarks.operators.catalogue import OPERATORS
    from thunder_core.errors import suggestion

    for name in names or ():
        if name not in OPERATORS:
            hint = suggestion(name, OPERATORS)
            raise UnknownImplementation(f"no operator {name!r}{hint}; there are {', '.join(OPERATORS)}")
    return list(dict.fromkeys(names or OPERATORS))


def _implementations(chosen: argparse.Namespace, device: str) -> tuple[list[str], dict[str, str]]:
    """The implementations that can run, ``eager`` first, and the reasons of the others."""
    executors = _installed() if chosen.executor is None else chosen.executor
    others = [name for name in (chosen.impl or COMPARED) if name != LIGER]
    names = checked(["eager", *others, *(f"thunder[{name}]" for name in executors)])
    unavailable = {name: reason for name in names if (reason := not_available(name, device))}
    if LIGER in (chosen.impl or COMPARED):
        names.append(LIGER)
        unavailable |= _missing_liger(device)
    return [name for name in names if name not in unavailable], unavailable


def _installed() -> list[str]:
    """The executors of all installed plugins that can be loaded."""
    from thunder_core.plugins.distributions import CORE_PLUGIN
    from thunder_core.plugins.host import host
    from thunder_core.plugins.specs import ExecutorSpec

    plugins = host()
    plugins.load_all()
    return [offered.spec.name for offered in plugins.offered(ExecutorSpec) if offered.plugin.name != CORE_PLUGIN]


def _missing_liger(device: str) -> dict[str, str]:
    if device == "cpu":
        return {LIGER: "its kernels need a GPU"}
    missing = importlib.util.find_spec("liger_kernel") is None
    return {LIGER: "it needs the package liger-kernel, which is not installed"} if missing else {}
