"""Runs the tests of a file in processes, each test with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.pytorch_programs.other_versions import MODULES
from tests.pytorch_programs.outcome import Outcome
from thunder_testing.forked import PRELOADED, start_forked

_ROOT: Final = Path(__file__).resolve().parents[2]
_IMPORTED: Final = (*PRELOADED, "torch._dynamo.test_case", *MODULES)
_IMPORT_SECONDS: Final = 300.0
_PROGRAM: Final = "import sys; from tests.pytorch_programs.worker import main; main(*sys.argv[1:])"


class NotImportedError(Exception):
    """A test file cannot be imported; the message is its traceback."""


@dataclass(frozen=True)
class Runner:
    """Attributes:
    folder: that the test files are relative to.
    limit: seconds that a test may take.
    """

    folder: str
    limit: float

    def outcomes(self, file: str, compiler: str, names: list[str] | None = None) -> Iterator[tuple[str, Outcome]]:
        """Run tests of ``file``, all or those that are named; a process that hangs or dies is followed by another one.

        Raises:
            NotImportedError: the file raised an exception.
        """
        while names is None or names:
            worker = _Worker(self.folder, file, compiler, names or [])
            try:
                names = worker.names()
                for name, outcome in worker.outcomes(self.limit):
                    names.remove(name)
                    yield name, outcome
            finally:
                worker.end()


class _Worker:
    """A process of `tests.pytorch_programs.worker`, forked from one that has imported PyTorch."""

    def __init__(self, folder: str, file: str, compiler: str, names: list[str]) -> None:
        self._rest = b""
        self._id: int | None = None
        with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as listener:
            address = str(Path(place, "socket"))
            listener.bind(address)
            listener.listen()
            listener.settimeout(_IMPORT_SECONDS)
            self._program = start_forked(_PROGRAM, folder, file, compiler, address, path=[_ROOT], preloaded=_IMPORTED)
            try:
                self._connection, _ = listener.accept()
            except TimeoutError as error:
                raise RuntimeError(f"a process for tests has not started: {self._last_errors()}") from error
        self._connection.sendall("\n".join(names).encode())
        self._connection.shutdown(socket.SHUT_WR)

    def names(self) -> list[str]:
        """The tests that it is going to run."""
        try:
            self._id = self._line(_IMPORT_SECONDS)["process"]
            line = self._line(_IMPORT_SECONDS)
        except (TimeoutError, EOFError) as error:
            raise NotImportedError(f"{type(error).__name__}: {self._last_errors()}") from error
        if "not_imported" in line:
            raise NotImportedError(line["not_imported"])
        return line["tests"]

    def outcomes(self, limit: float) -> Iterator[tuple[str, Outcome]]:
        """Those of the tests until the last one, or until one that ends the process."""
        running = None
        while True:
            try:
                line = self._line(limit)
            except TimeoutError:
                yield str(running), Outcome("time", f"more than {limit:g} s")
                return
            except EOFError:
                if running is not None:
                    yield running, Outcome("crash", self._last_errors())
                return
            name = line.pop("test")
            running = None if line else name
            if line:
                yield name, Outcome(**line)

    def _line(self, limit: float) -> dict[str, Any]:
        self._connection.settimeout(limit)
        while b"\n" not in self._rest:
            read = self._connection.recv(65536)
            if not read:
                raise EOFError
            self._rest += read
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)

    def _last_errors(self) -> str:
        errors = self._program.streams[1]
        size = errors.seek(0, os.SEEK_END)
        errors.seek(max(0, size - 2000))
        return errors.read().decode(errors="replace")

    def end(self) -> None:
        """End the process and what it started, and let go of its files."""
        if self._id is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._id, signal.SIGKILL)
        self._connection.close()
        self._program.wait()
