"""Time of the discovery of installed plugins."""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.process import in_fresh_process
from benchmarks.row import Row

DISTRIBUTIONS = 150
PLUGINS = 12
REPEATS = 11
DESCRIPTION = "A line of a long description.\n" * 530


def measure(threads: int) -> list[Row]:
    """Measure, and return the rows."""
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
        runs = [in_fresh_process(seconds_to_discover, threads=threads, folder=folder) for _ in range(REPEATS)]
    seconds = {name: statistics.median(run[name] for run in runs) for name in ("first", "again")}
    what = f"plugins among {DISTRIBUTIONS} distributions, {PLUGINS} of which have a plugin"
    goal = "<= 5 ms"
    details = {"ms of the second discovery": 1e3 * seconds["again"], "plugins": runs[0]["plugins"]}
    value = {"thunder": 1e3 * seconds["first"]}
    return [Row("plugin discovery", what, "ms", value, {}, goal, seconds["first"] <= 5e-3, details)]


def install(folder: Path) -> None:
    """Write metadata of distributions as pip does: a third of them with entry points, `PLUGINS` with a plugin."""
    for index in range(DISTRIBUTIONS):
        plugin = index % (DISTRIBUTIONS // PLUGINS) == 0 and index // (DISTRIBUTIONS // PLUGINS) < PLUGINS
        info = folder / f"distribution_{index}-1.0.dist-info"
        info.mkdir()
        header = f"Metadata-Version: 2.4\nName: distribution-{index}\nVersion: 1.0\nRequires-Dist: numpy>=2\n"
        if plugin:
            library = f"Requires-Dist: distribution-{index + 1}>=0.5; extra == 'lib'\n"
            header += f"Requires-Dist: thunder-core>=0.1\nProvides-Extra: lib\n{library}"
        (info / "METADATA").write_text(f"{header}\n{DESCRIPTION}")
        entry_points = f"[console_scripts]\ncommand_{index} = module_{index}:main\n"
        if plugin:
            entry_points += f"\n[thunder.plugins]\nplugin_{index} = module_{index}:plugin\n"
        if plugin or index % 3 == 0:
            (info / "entry_points.txt").write_text(entry_points)


def seconds_to_discover(folder: str) -> dict[str, object]:
    """Seconds of the first and of the second discovery in this process, without imports."""
    import gc
    import importlib
    import time

    from thunder_core.plugins.discovery import discover

    sys.path[:] = [entry for entry in sys.path if "site-packages" not in entry] + [folder]
    gc.collect()
    gc.disable()  # as timeit does
    times = [time.perf_counter()]
    plugins = discover()
    times.append(time.perf_counter())
    importlib.invalidate_caches()
    discover()
    times.append(time.perf_counter())
    return {"first": times[1] - times[0], "again": times[2] - times[1], "plugins": len(plugins) - 1}
