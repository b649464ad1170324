"""The command line: ``python -m benchmarks BENCHMARK``, of which ``all`` runs each."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from benchmarks import (
    claiming,
    compile_time,
    dispatch,
    imports,
    machine,
    memory,
    overhead,
    plugin_discovery,
    saved_bytes,
    training,
)
from benchmarks.row import Row, as_table

BENCHMARKS = {
    "overhead": overhead.measure,
    "compile-time": compile_time.measure,
    "import-time": imports.measure,
    "dispatch": dispatch.measure,
    "memory": memory.measure,
    "training": training.measure,
    "saved-bytes": saved_bytes.measure,
    "claiming": claiming.measure,
    "plugin-discovery": plugin_discovery.measure,
}
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Measure, print the table, write the file."""
    options = _options()
    circumstances = machine.describe(options.threads)
    rows: list[Row] = []
    for name in BENCHMARKS if options.benchmark == "all" else [options.benchmark]:
        start = time.perf_counter()
        print(f"{name} ...", end="", flush=True)
        rows += BENCHMARKS[name](options.threads)
        print(f" {time.perf_counter() - start:.0f} s")
    print(as_table(rows))
    print("\n" + ", ".join(f"{key} {value}" for key, value in circumstances.items() if key != "versions"))
    print(", ".join(f"{key} {value}" for key, value in circumstances["versions"].items()))
    target = options.json or (_kept(circumstances) if options.keep else None)
    if target:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(circumstances | {"rows": [row.as_json() for row in rows]}, indent=2) + "\n")
        print(f"written to {target}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Eager, torch.compile, Thunder.")
    parser.add_argument("benchmark", choices=[*BENCHMARKS, "all"])
    parser.add_argument("--threads", type=int, default=1, help="threads of each process (default: 1)")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--keep", action="store_true", help="write the result to benchmarks/results/, named by date")
    return parser.parse_args()


def _kept(circumstances: dict[str, object]) -> Path:
    date = str(circumstances["date"])[:10]
    return RESULTS / f"{date}-{str(circumstances['commit'])[:12]}.json"


if __name__ == "__main__":
    main()
