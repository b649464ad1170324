"""Runs the cases of a battery in worker processes, so that a crash or a hang affects only one case.

The processes are forked from a server that has imported what the first battery of this process needs. They have its
environment variables.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess

import torch

from thunder_testing.outcome import Outcome, Status
from thunder_testing.pytorch_internals import DYNAMO

Runner = Callable[[str], Outcome]
_START_SECONDS = 120


class _Worker:
    """A process that runs one case at a time, and the parent's end of its pipe."""

    def __init__(self, runner: Runner) -> None:
        context = multiprocessing.get_context("forkserver")
        # A function that an option was bound to has no module of its own.
        module = getattr(runner, "func", runner).__module__
        context.set_forkserver_preload([__name__, DYNAMO, *([] if module == "__main__" else [module])])
        self.connection, theirs = context.Pipe()
        self.process: ForkServerProcess = context.Process(target=_serve, args=(theirs, runner), daemon=True)
        self.process.start()
        theirs.close()
        self.case: str | None = None
        self.started = 0.0
        self.fresh = True

    def begin(self, case: str) -> None:
        self.case, self.started = case, time.monotonic()
        # a process that died at its start is detected when its result is read
        with contextlib.suppress(ConnectionError):
            self.connection.send(case)

    def overdue(self, seconds: float) -> bool:
        limit = seconds + (_START_SECONDS if self.fresh else 0)
        return self.case is not None and time.monotonic() - self.started > limit

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def run_in_workers(
    runner: Runner, cases: Iterable[str], *, workers: int = 2, seconds: float = 120
) -> dict[str, Outcome]:
    """The outcome of each case, in the order of ``cases``.

    Args:
        runner: a picklable function that runs a case by name in a worker process.
        cases: names of the cases.
        workers: number of processes.
        seconds: a worker is killed after this time for one case, which is a TIMEOUT.
    """
    todo = list(cases)
    outcomes: dict[str, Outcome] = dict.fromkeys(todo, Outcome(Status.CRASH, "not run"))
    queue = todo[::-1]
    crew = [_Worker(runner) for _ in range(min(workers, len(todo)))]
    try:
        while queue or any(worker.case for worker in crew):
            for worker in crew:
                if worker.case is None and queue:
                    worker.begin(queue.pop())
            wait([worker.connection for worker in crew if worker.case], timeout=1.0)
            for index, worker in enumerate(crew):
                if worker.case and (outcome := _outcome_of(worker, seconds)):
                    outcomes[worker.case] = outcome
                    worker.case, worker.fresh = None, False
                    if not worker.process.is_alive():
                        worker.stop()
                        crew[index] = _Worker(runner)
    finally:
        for worker in crew:
            worker.stop()
    return outcomes


def _outcome_of(worker: _Worker, seconds: float) -> Outcome | None:
    """The outcome of the worker's case; None while it is running."""
    try:
        if worker.connection.poll():
            outcome: Outcome = worker.connection.recv()
            return outcome
    except (EOFError, ConnectionError):
        worker.process.join()
        return Outcome(Status.CRASH, f"the process died with exit code {worker.process.exitcode}")
    if worker.overdue(seconds):
        worker.process.kill()
        worker.process.join()
        return Outcome(Status.TIMEOUT, f"no result after {seconds:.0f} s")
    return None


def _serve(connection: Connection, runner: Runner) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # warnings do not affect outcomes
    while True:
        try:
            case = connection.recv()
        except EOFError:
            return
        connection.send(runner(case))
