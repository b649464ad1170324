"""Run a function of this package in a new Python process and return its result."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent


class ChildFailed(RuntimeError):
    """The process failed; the message contains the last lines of its output."""


class TimeLimit(ChildFailed):
    """The process had no result within its limit."""


CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "THUNDER_CACHE_DIR": "thunder"}
"""Environment variables for caches of compiled code on disk, and the names of the folders."""
TURN = b"."
"""The message that starts a turn of the process, and with which the process ends its turn."""

_parent: socket.socket | None = None
"""In a `FreshProcess`, the connection to its parent, which schedules the turns."""


class FreshProcess:
    """A call in a new interpreter, which pauses wherever the function calls `yield_turn`.

    A context manager; leaving the context kills the process. The process has the working directory of its parent, so
    that relative paths of users work.

    Args:
        function: defined at the top level of a module.
        threads: number of CPU threads.
        caches: a folder with caches of compiled code. By default the caches are empty.
        limit: seconds that it may run, without its pauses; then it is killed, and `result` raises `TimeLimit`.
        arguments: keyword arguments of the function; arguments and result must be JSON data.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        threads: int,
        caches: Path | None = None,
        limit: float | None = None,
        **arguments: Any,
    ) -> None:
        self._call = f"{function.__module__}.{function.__qualname__}({arguments})"
        self._job = [function.__module__, function.__qualname__, json.dumps(arguments)]
        self._threads = threads
        self._caches = caches
        self._limit = limit
        self._left = limit
        """Seconds that the process may still run."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self._result, self._output = folder / "result.json", folder / "output.txt"
        self._peer, theirs = socket.socketpair()
        environment = os.environ | {
            "OMP_NUM_THREADS": str(self._threads),
            "MKL_NUM_THREADS": str(self._threads),
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
            **{variable: str((self._caches or folder) / name) for variable, name in CACHES.items()},
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users import bytecode, which pip compiles
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.process"]
        command += [*self._job, str(self._result), str(theirs.fileno())]
        with theirs, self._output.open("w") as output:
            self._child = subprocess.Popen(
                command, env=environment, stdout=output, stderr=output, pass_fds=[theirs.fileno()]
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._peer.close()
        self._child.kill()
        self._child.wait()
        self._folder.cleanup()

    def run_turn(self) -> bool:
        """Run the process until it pauses (True) or ends (False)."""
        return self.resume() and self.wait()

    def resume(self) -> bool:
        """Resume the process without waiting for it. Returns whether it is alive."""
        try:
            return bool(self._peer.send(TURN))
        except ConnectionError:  # the process has ended
            return False

    def wait(self) -> bool:
        """Wait until the process pauses (True) or ends (False). At its limit it is killed."""
        if self.timed_out:
            return False
        start = time.monotonic()
        self._peer.settimeout(self._left)
        try:
            return bool(self._peer.recv(1))
        except TimeoutError:
            self._child.kill()
            self._left = 0.0
            return False
        except ConnectionError:  # the process has ended
            return False
        finally:
            if self._left:
                self._left = max(self._left - (time.monotonic() - start), 0.001)

    @property
    def timed_out(self) -> bool:
        """Whether the process has been killed at its limit."""
        return self._left == 0

    def result(self) -> Any:
        """Run the process to its end and return the function's result.

        Raises:
            ChildFailed: the function raised, or the process died.
            TimeLimit: it had no result within its limit.
        """
        while self.run_turn():
            pass
        if self._child.wait() and self.timed_out:
            raise TimeLimit(f"{self._call}:\nno result within {self._limit:.3g} s")
        if self._child.returncode:
            tail = "\n".join(self._output.read_text(errors="replace").strip().splitlines()[-30:])
            raise ChildFailed(f"{self._call} failed:\n{tail}")
        return json.loads(self._result.read_text())


def in_fresh_process(
    function: Callable[..., Any], *, threads: int, caches: Path | None = None, **arguments: Any
) -> Any:
    """``function(**arguments)`` in a `FreshProcess`, without pauses."""
    with FreshProcess(function, threads=threads, caches=caches, **arguments) as process:
        return process.result()


def yield_turn() -> None:
    """Pause until the parent resumes this process. Does nothing outside of a `FreshProcess`."""
    if _parent is not None:
        _parent.send(TURN)
        _await_turn(_parent)


def resident_high_water() -> int:
    """The peak resident set size of this process, in bytes."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _await_turn(parent: socket.socket) -> None:
    if not parent.recv(1):
        raise SystemExit("the parent process has ended")


def _child(module: str, name: str, arguments: str, result: str, peer: str) -> None:
    # `python -m` runs this file as `__main__`, but functions import `yield_turn` from `benchmarks.process`.
    module_ = importlib.import_module("benchmarks.process")
    os.set_inheritable(int(peer), False)
    module_._parent = socket.socket(fileno=int(peer))
    _await_turn(module_._parent)
    function = getattr(importlib.import_module(module), name)
    Path(result).write_text(json.dumps(function(**json.loads(arguments))))


if __name__ == "__main__":
    _child(*sys.argv[1:])
