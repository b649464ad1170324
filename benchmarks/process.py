"""Run a function of this package in a fresh Python process and get its result back."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent


class ChildFailed(RuntimeError):
    """The process ended with an error; the message is the end of what it wrote."""


CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "THUNDER_CACHE_DIR": "thunder"}
"""The variables that say where compiled code is kept between processes, and the folders for it."""
TURN = b"."
"""What goes back and forth: to the process its turn, from it the word that others may have theirs."""

_parent: socket.socket | None = None
"""In a `FreshProcess`, the one that gives the turns."""


class FreshProcess:
    """A call in a new interpreter, which lets others have their turn wherever the function calls `give_way`.

    The function is one of a module's top level; arguments and result are plain data (JSON). ``threads`` are the
    process's. ``caches`` is a folder for compiled code that other processes left there; without it the caches are
    empty, and the process compiles from nothing. The current folder is that of this process, where files that users
    name are. Leaving the context ends the process.
    """

    def __init__(
        self, function: Callable[..., Any], *, threads: int, caches: Path | None = None, **arguments: Any
    ) -> None:
        self._call = f"{function.__module__}.{function.__qualname__}({arguments})"
        self._job = [function.__module__, function.__qualname__, json.dumps(arguments)]
        self._threads = threads
        self._caches = caches

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
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # pip compiles what it installs, so that users import bytecode
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

    def turn(self) -> bool:
        """Let it run until it gives way, True, or ends in whatever way, False."""
        return self.go() and self.waits()

    def go(self) -> bool:
        """Let it run, and do not wait for it; whether it lives."""
        try:
            return bool(self._peer.send(TURN))
        except ConnectionError:  # it is dead
            return False

    def waits(self) -> bool:
        """Wait until it gives way, True, or ends in whatever way, False."""
        try:
            return bool(self._peer.recv(1))
        except ConnectionError:  # it is dead
            return False

    def result(self) -> Any:
        """What the function returned; it runs to its end first.

        Raises:
            ChildFailed: it raised, or the process died.
        """
        while self.turn():
            pass
        if self._child.wait():
            tail = "\n".join(self._output.read_text(errors="replace").strip().splitlines()[-30:])
            raise ChildFailed(f"{self._call} failed:\n{tail}")
        return json.loads(self._result.read_text())


def in_fresh_process(
    function: Callable[..., Any], *, threads: int, caches: Path | None = None, **arguments: Any
) -> Any:
    """``function(**arguments)`` in a `FreshProcess`, with nobody to take turns with."""
    with FreshProcess(function, threads=threads, caches=caches, **arguments) as process:
        return process.result()


def give_way() -> None:
    """Let the other processes of a comparison have their turn. Nothing happens outside of a `FreshProcess`."""
    if _parent is not None:
        _parent.send(TURN)
        _await_turn(_parent)


def resident_high_water() -> int:
    """The most bytes of memory that this process has had so far, as the operating system counts them."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _await_turn(parent: socket.socket) -> None:
    if not parent.recv(1):
        raise SystemExit("the process that gives the turns is gone")


def _child(module: str, name: str, arguments: str, result: str, peer: str) -> None:
    # `python -m` runs this file under another name than the one that `give_way` is imported from.
    here = importlib.import_module("benchmarks.process")
    os.set_inheritable(int(peer), False)
    here._parent = socket.socket(fileno=int(peer))
    _await_turn(here._parent)
    function = getattr(importlib.import_module(module), name)
    Path(result).write_text(json.dumps(function(**json.loads(arguments))))


if __name__ == "__main__":
    _child(*sys.argv[1:])
