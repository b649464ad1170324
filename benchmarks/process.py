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


def in_fresh_process(function: Callable[..., Any], *, threads: int, **arguments: Any) -> Any:
    """``function(**arguments)`` in a new interpreter with ``threads`` threads.

    The function is one of a module's top level; arguments and result are plain data (JSON). torch.compile's caches are
    off there, so that each process compiles from nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        job = [function.__module__, function.__qualname__, json.dumps(arguments), str(result)]
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "TORCHINDUCTOR_CACHE_DIR": str(Path(folder, "inductor")),
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
            "HF_HUB_OFFLINE": "1",
        }
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.process", *job]
        child = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if child.returncode:
            tail = "\n".join((child.stdout + child.stderr).strip().splitlines()[-30:])
            raise ChildFailed(f"{function.__module__}.{function.__qualname__}({arguments}) failed:\n{tail}")
        return json.loads(result.read_text())


def _child(module: str, name: str, arguments: str, result: str) -> None:
    function = getattr(importlib.import_module(module), name)
    Path(result).write_text(json.dumps(function(**json.loads(arguments))))


if __name__ == "__main__":
    _child(*sys.argv[1:])
