"""Runs the tests of a file in processes, each test with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.pytorch_programs.outcome import Outcome

_IMPORT_SECONDS = 300.0


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
    """A process of `tests.pytorch_programs.worker`."""

    def __init__(self, folder: str, file: str, compiler: str, names: list[str]) -> None:
        reading, writing = os.pipe()
        self._lines = os.fdopen(reading, "rb", buffering=0)
        self._rest = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  `end` closes it
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.pytorch_programs.worker", folder, file, compiler, str(writing)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=(writing,),
            start_new_session=True,
        )
        os.close(writing)
        assert self._process.stdin is not None
        self._process.stdin.write("\n".join(names).encode())
        self._process.stdin.close()

    def names(self) -> list[str]:
        """The tests that it is going to run."""
        try:
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
        with selectors.DefaultSelector() as selector:
            selector.register(self._lines, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(limit):
                    raise TimeoutError
                read = self._lines.read(65536)
                if not read:
                    raise EOFError
                self._rest += read
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)

    def _last_errors(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 2000))
        return self._errors.read().decode(errors="replace")

    def end(self) -> None:
        """End the process and what it started, and let go of its files."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._lines.close()
        self._errors.close()
