"""Time of ``import thunder`` after ``import torch``."""

from __future__ import annotations

import statistics

from benchmarks.process import in_fresh_process
from benchmarks.row import Row

REPEATS = 11
UNWANTED = ("pydantic", "pluggy", "yaml", "triton", "transformers", "litgpt", "torch._dynamo", "torch._inductor")


def measure(threads: int) -> list[Row]:
    """Measure, and return the rows."""
    runs = [in_fresh_process(seconds_to_import, threads=threads) for _ in range(REPEATS)]
    seconds = {name: statistics.median(run[name] for run in runs) for name in ("torch", "thunder")}
    unwanted = runs[0]["unwanted"]
    value = {"thunder": seconds["thunder"]}
    goal = "<= 0.1 s, nothing unwanted"
    rows = [
        Row(
            "import",
            "import thunder, beyond import torch",
            "s",
            value,
            {},
            goal,
            seconds["thunder"] <= 0.1 and not unwanted,
            {"seconds of import torch": seconds["torch"], "modules imported": runs[0]["modules"]},
        )
    ]
    what = f"of {', '.join(UNWANTED[:4])}, torch._dynamo, ... imported: {', '.join(unwanted) or 'none'}"
    rows.append(Row("import", what, "", {"thunder": len(unwanted)}, {}, "0", not unwanted))
    return rows


def seconds_to_import() -> dict[str, object]:
    """Seconds of both imports in this process, and the modules that ``import thunder`` added."""
    import sys
    import time

    assert "torch" not in sys.modules, "this process has imported torch already"
    times = [time.perf_counter()]
    import torch  # noqa: F401

    times.append(time.perf_counter())
    before = set(sys.modules)
    import thunder  # noqa: F401

    times.append(time.perf_counter())
    added = sorted(set(sys.modules) - before)
    return {
        "torch": times[1] - times[0],
        "thunder": times[2] - times[1],
        "modules": added,
        "unwanted": [name for name in UNWANTED if name in added],
    }
