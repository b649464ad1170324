"""Run a function of this package in a fresh Python process and get its result back."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class ChildFailed(RuntimeError):
    """The process ended with an error; the message is the end of what it wrote."""


CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "THUNDER_CACHE_DIR": "thunder"}
"""The variables that say where compiled code is kept between processes, and the folders for it."""


def in_fresh_process(
    function: Callable[..., Any], *, threads: int, caches: Path | None = None, **arguments: Any
) -> Any:
    """``function(**arguments)`` in a new interpreter with ``threads`` threads.

    The function is one of a module's top level; arguments and result are plain data (JSON). ``caches`` is a folder for
    compiled code that other processes left there; without it the caches are empty, and the process compiles from
    nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        job = [function.__module__, function.__qualname__, json.dumps(arguments), str(result)]
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "HF_HUB_OFFLINE": "1",
            **{variable: str(Path(caches or folder, name)) for variable, name in CACHES.items()},
        }
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.process", *job]
        child = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if child.returncode:
            tail = "\n".join((child.stdout + child.stderr).strip().splitlines()[-30:])
            raise ChildFailed(f"{function.__module__}.{function.__qualname__}({arguments}) failed:\n{tail}")
        return json.loads(result.read_text())


def resident_high_water() -> int:
    """The most bytes of memory that this process has had so far, as the operating system counts them."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _child(module: str, name: str, arguments: str, result: str) -> None:
    function = getattr(importlib.import_module(module), name)
    Path(result).write_text(json.dumps(function(**json.loads(arguments))))


if __name__ == "__main__":
    _child(*sys.argv[1:])
