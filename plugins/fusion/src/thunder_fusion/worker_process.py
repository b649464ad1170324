"""Processes that compile regions for this one.

A job is one process: `worker.py` reads a request from a file without a name, and writes the answer to
another one. No thread waits for it: calls of the program look whether it has ended. Its standard input is a pipe that
only this process holds open, so it ends with this process, however that ends.
"""

from __future__ import annotations

import atexit
import contextlib
import marshal
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from thunder_core.forking import in_child, renew_in_child
from thunder_core.ir.trace import Trace
from thunder_fusion.requests import Request

if TYPE_CHECKING:
    from thunder_fusion.behind import Candidate
    from thunder_fusion.executor import FusionExecutor

_WORKER: Final = str(Path(__file__).with_name("worker.py"))
_MOST: Final = 2  # processes at a time: each compiles its kernels in parallel
_GRACE: Final = 2.0  # seconds between SIGTERM, at which compilers delete incomplete files, and SIGKILL
_jobs: Final[list[Job]] = []
_lock = threading.Lock()
renew_in_child(sys.modules[__name__], "_lock")


def encoded(executor: FusionExecutor, regions: Sequence[Trace]) -> bytes | None:
    """The request to compile regions; None if no other process can compile them, or the executor has no artifacts."""
    if os.name != "posix" or not sys.executable or executor.artifact_key() is None:
        return None
    return Request.of(executor, regions).encoded()


class Job:
    """The compilation of some regions by a process, which starts now, or when another one has ended.

    Args:
        request: the regions, as `encoded`.
        candidates: receive the answers.
        warn: called with them afterwards.
    """

    def __init__(
        self, request: bytes, candidates: Sequence[Candidate], warn: Callable[[Sequence[Candidate]], None]
    ) -> None:
        self._request = request
        self._warn = warn
        self._candidates = tuple(candidates)
        self._process: subprocess.Popen[bytes] | None = None
        self._answer: IO[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._failure = ""
        self._polling = threading.Lock()
        renew_in_child(self, "_polling")
        for candidate in candidates:
            candidate.job = self
        with _lock:
            if not _jobs:
                atexit.unregister(end_all)
                atexit.register(end_all)
            _jobs.append(self)
        self._start()

    def poll(self) -> bool:
        """Whether the process has ended; when it has, the candidates receive its answer."""
        if self not in _jobs:
            return True
        if not self._polling.acquire(blocking=False):
            return False
        try:
            if self not in _jobs:
                return True
            if self._process is None:
                self._start()
            if not self._failure and (self._process is None or self._process.poll() is None):
                return False
            with _lock:
                _jobs.remove(self)
            self._deliver()
            return True
        finally:
            self._polling.release()

    def wait(self) -> None:
        """Wait for the answer, for tests and benchmarks."""
        while not self.poll():
            with _lock:
                running = [job._process for job in _jobs if job._process is not None]
            for process in running[:1]:
                process.wait()

    def end(self) -> None:
        """End the process and the compilers that it started."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):  # compilers delete incomplete files at the first
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
                break
        self._close()

    def abandon(self) -> None:
        """In a forked process, to which the worker process does not belong."""
        if self._process is not None:
            self._process.returncode = -1
        self._close()
        for candidate in self._candidates:
            candidate.stay("the process was forked while another one compiled it")

    def _start(self) -> None:
        with _lock:
            processes = [job._process for job in _jobs if job._process is not None]
            if self._process is not None or sum(one.poll() is None for one in processes) >= _MOST:
                return
            try:
                self._launch()
            except OSError as error:
                self._failure = f"no process can be started: {error}"

    def _launch(self) -> None:
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - open until the process has ended
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        with tempfile.TemporaryFile() as request:
            request.write(self._request)
            request.seek(0)
            files = (request.fileno(), self._answer.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-P", _WORKER, *map(str, files)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                pass_fds=files,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([os.path.abspath(path) for path in sys.path])},
            )
        self._request = b""

    def _deliver(self) -> None:
        answers = [self._failure] * len(self._candidates) if self._failure else self._answers()
        self._close()
        for candidate, answer in zip(self._candidates, answers, strict=True):
            candidate.receive(answer)
        self._warn(self._candidates)

    def _answers(self) -> Sequence[Any]:
        assert self._process is not None
        assert self._answer is not None
        status = self._process.returncode
        if status != 0:
            reason = f"the process that compiled it ended with status {status}: {self._last_line()}"
            return [reason] * len(self._candidates)
        self._answer.seek(0)
        try:
            answers: list[Any] = marshal.load(self._answer)
        except (EOFError, TypeError, ValueError) as error:
            answers = [f"the answer of the process that compiled it cannot be read: {error}"] * len(self._candidates)
        return answers

    def _last_line(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else "it wrote nothing"

    def _close(self) -> None:
        pipe = None if self._process is None else self._process.stdin
        for file in (pipe, self._answer, self._log):
            if file is not None:
                file.close()


def end_all() -> None:
    """End all processes; called when this process ends."""
    with _lock:
        jobs = [*_jobs]
        _jobs.clear()
    for job in jobs:
        job.end()


def wait_for_all() -> None:
    """Wait until all regions are compiled, for tests and benchmarks. Calls then replace them."""
    for job in [*_jobs]:
        job.wait()


@in_child
def _abandon_in_child() -> None:
    jobs = [*_jobs]
    _jobs.clear()
    for job in jobs:
        job.abandon()
