"""Training TinyLlama 1.1B on one GPU, eager and Thunder: ``python -m benchmarks.gpu_training``.

Whole training steps (forward, backward, fused AdamW) of batch 4 x 2048, with bfloat16 weights (``bf16-true``) and with
float32 weights under autocast (``bf16-autocast``). Each implementation has a process of its own, so that its memory is
its own. All see equal initial weights and equal batches: the bytes of this repository's documents. Times are medians of
the last steps, from CUDA events; memory is the peak of the whole run, first step included.

Two right programs that round differently drift apart in bfloat16. How far is measured: a second eager run takes another
of PyTorch's attention kernels. Thunder's losses may differ from eager's by twice as much, or by the resolution of the
type, whichever is more.

LitGPT's package folder on ``PYTHONPATH`` is enough, without what LitGPT requires. ``--tiny`` runs the same with a tiny
model anywhere, also on a CPU.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.gpu_run import train
from benchmarks.process import in_fresh_process
from benchmarks.row import Row, as_table

PRECISIONS = ("bf16-true", "bf16-autocast")
RUNS = ("eager", "thunder", "eager, other attention")
TIME_LIMIT = 1.02
NOISE_LIMIT = 2
RESOLUTION = 2**-7
"""Of bfloat16: the distance of two neighbouring numbers, relative to them, at most. A ``bf16-true`` loss is one."""


def main() -> None:
    """Measure, print the table, write the file."""
    options = _options()
    runs: dict[str, dict[str, Any]] = {}
    rows: list[Row] = []
    for precision in options.precisions:
        results = {}
        for name in (*RUNS, *(["torch.compile"] if options.torch_compile else [])):
            print(f"{precision}, {name} ...", end="", flush=True)
            arguments = {"name": name, "precision": precision, "tiny": options.tiny, "steps": options.steps}
            arguments["executors"] = options.executors
            results[name] = in_fresh_process(train, threads=options.threads, **arguments)
            print(f" {results[name]['first step']:.1f} s, then {results[name]['step'] * 1e3:.1f} ms a step", flush=True)
        runs[precision] = results
        rows += _rows(precision, results, options.executors)
    circumstances = machine.describe(options.threads) | {"device": results["eager"]["device"], "tiny": options.tiny}
    if options.json:
        rows_as_json = [row.as_json() for row in rows]
        options.json.write_text(json.dumps(circumstances | {"rows": rows_as_json, "runs": runs}, indent=2) + "\n")
    print(as_table(rows))
    print(f"\n{circumstances['device']}, torch {circumstances['versions']['torch']}, commit {circumstances['commit']}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_training", description="Eager, Thunder.")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--steps", type=int, default=50, help="length of the loss curves (default: 50)")
    parser.add_argument("--threads", type=int, default=8, help="CPU threads of each process (default: 8)")
    parser.add_argument("--torch-compile", action="store_true", help="measure torch.compile too")
    parser.add_argument("--executors", nargs="+", default=[], help="names of Thunder's executors (default: reference)")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, on a CPU if there is no GPU")
    parser.add_argument("--json", type=Path, help="write the result, with all losses, to this file")
    return parser.parse_args()


def _rows(precision: str, runs: dict[str, dict[str, Any]], executors: list[str]) -> list[Row]:
    shown = {name: run for name, run in runs.items() if name != "eager, other attention"}
    group = f"TinyLlama 1.1B, {precision}; executors of Thunder: {', '.join(executors) or 'reference'}"
    steps = {name: run["step"] * 1e3 for name, run in shown.items()}
    peaks = {name: run["peak bytes"] / 2**20 for name, run in shown.items() if run["peak bytes"] is not None}
    first = {name: run["first step"] for name, run in shown.items()}
    noise = {name: _largest_difference(run["losses"], runs["eager"]["losses"]) for name, run in runs.items()}
    noise["eager"] = noise.pop("eager, other attention")
    within = noise["thunder"] <= max(NOISE_LIMIT * noise["eager"], RESOLUTION)
    faster, smaller = steps["thunder"] <= TIME_LIMIT * steps["eager"], peaks and peaks["thunder"] <= peaks["eager"]
    what = "losses, largest relative difference (eager: other attention kernel)"
    return [
        Row(group, "training step", "ms", steps, {}, f"<= {TIME_LIMIT} x eager", faster),
        Row(group, "peak memory", "MiB", peaks, {}, "<= eager", smaller if peaks else None),
        Row(group, "first step", "s", first, {}),
        Row(
            group,
            what,
            "%",
            {name: value * 100 for name, value in noise.items()},
            {},
            "<= 2 x eager's or 0.78 %",
            within,
        ),
    ]


def _largest_difference(losses: list[float], expected: list[float]) -> float:
    import torch

    reference = torch.tensor(expected, dtype=torch.float64)
    # A tensor, because its maximum is nan if one of them is.
    return ((torch.tensor(losses, dtype=torch.float64) - reference).abs() / reference.abs()).max().item()


if __name__ == "__main__":
    main()
