"""Cases that run in the processes of one group.

All suites of a run of pytest share the same processes, because starting one takes seconds. They communicate with gloo.
With ``THUNDER_TEST_DEVICE=cuda`` in the environment each process has a GPU, on which tensors are created by default,
and they communicate with NCCL. Tests that need more GPUs than there are, and cases that need gloo, are then skipped.
Cases compare with eager PyTorch to the bit, so programs then run without what rounds otherwise on GPUs (`EXACT`).
"""

from __future__ import annotations

import datetime
import importlib
import multiprocessing
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Final

import pytest
import torch
import torch.distributed as dist

from thunder_core.errors import ExecutorWarning, RecompileWarning, UncacheableWarning

ON_GPUS: Final = os.environ.get("THUNDER_TEST_DEVICE") == "cuda"
"""Whether each process has a GPU, and they communicate with NCCL."""
LIMIT: Final = 120
"""Seconds that a process waits for the others in one collective. A machine that is busy needs many."""
EXACT: Final = Path(__file__).parent / "exact.yaml"
"""The configuration, on GPUs, of programs that are compiled without one; here and in the processes of cases."""
if ON_GPUS:
    os.environ["THUNDER_CONFIG"] = str(EXACT)
_SILENCE: Final = 500  # seconds without a result after which processes are ended: they start slowly on a busy machine
_SECONDS_AFTER_FAILURE: Final = 2  # for results of processes that do not wait for the one that failed


@contextmanager
def fake_process_group(ranks: int = 2) -> Iterator[None]:
    """Make this process rank 0 of PyTorch's fake process group, in which collectives return without communication."""
    from thunder_core.pytorch_internals import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def group_of_one() -> Iterator[None]:
    """Make this process the only one of a process group. With GPUs, tensors are created on the first by default."""
    if ON_GPUS:
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if ON_GPUS else "gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with torch.device("cuda" if ON_GPUS else "cpu"):
            yield
    finally:
        dist.destroy_process_group()


def process_suite(
    module: str, names: Iterable[str], *, processes: int = 2, of_gloo: Collection[str] = ()
) -> Callable[..., None]:
    """A test for each case, all in the same processes.

    Args:
        module, names, processes: those of `run_cases`.
        of_gloo: names of cases that need gloo, because NCCL lacks what they call or they count what gloo sends. They
            are skipped on GPUs.
    """
    names = list(names)
    selected = [name for name in names if not (ON_GPUS and name in of_gloo)]
    failures: dict[str, list[str]] = {}

    @pytest.mark.parametrize("name", names)
    def test(name: str, tmp_path: Path) -> None:
        if ON_GPUS and torch.cuda.device_count() < processes:
            pytest.skip(f"needs {processes} GPUs")
        if name not in selected:
            pytest.skip("needs gloo")
        if not failures:
            failures.update((name, ["not run"]) for name in names)  # also when this test is interrupted by its timeout
            failures.update(run_cases(module, selected, tmp_path, processes=processes))
        texts = [f"process {rank}: {text}" for rank, text in enumerate(failures[name]) if text]
        if texts:
            pytest.fail("\n".join(texts), pytrace=False)

    return test


def run_cases(module: str, names: Iterable[str], folder: Path, *, processes: int = 2) -> dict[str, list[str]]:
    """Run cases of a module in order in the processes of one group.

    A process that fails with an exception other than AssertionError runs no further case, because others may wait for
    it. New processes run the cases after it.

    Args:
        module: the module whose ``CASES`` has functions without arguments by name. Other groups run in the same
            processes, so it must not keep what belongs to a group, such as a mesh, in global variables.
        names: the cases to run, in order.
        folder: an empty folder, for the rendezvous of the processes.
        processes: number of processes.

    Returns:
        For each case, the failure in each process as text; empty if it passed.
    """
    remaining = list(names)
    not_run = ["not run"] * processes
    results = {name: list(not_run) for name in remaining}
    while remaining and not _run(_Group(processes, str(folder / f"store{len(remaining)}"), module, remaining), results):
        ran = [name for name in remaining if results[name] != not_run]
        stopped_in_the_next = not (ran and any(results[ran[-1]]))  # without a result, as it does not return
        remaining = remaining[len(ran) + stopped_in_the_next :]
    return results


def _run(group: _Group, results: dict[str, list[str]]) -> bool:
    """Run the cases of a group and fill in their results; whether all processes ran all cases."""
    ranks = [_started(rank) for rank in range(group.processes)]
    all_ran = False
    try:
        for rank in ranks:
            rank.connection.send(group)
        all_ran = _receive(results, ranks)
    finally:
        if not all_ran:
            for number, rank in enumerate(ranks):
                rank.process.kill()
                del _ranks[number]
    return all_ran


@dataclass(frozen=True)
class _Group:
    """The cases that a group of processes runs."""

    processes: int
    store: str
    module: str
    names: list[str]
    path: list[str] = field(default_factory=lambda: list(sys.path))


@dataclass(frozen=True)
class _Rank:
    """A process that runs the cases of one group after another."""

    process: Any
    connection: Any


_ranks: dict[int, _Rank] = {}
"""Those that were started, until a case hangs or fails in a way that others wait for."""


def _started(number: int) -> _Rank:
    if number not in _ranks:
        context = multiprocessing.get_context("spawn")
        connection, theirs = context.Pipe()
        process = context.Process(target=_run_groups, args=(number, theirs), daemon=True)
        process.start()
        theirs.close()
        _ranks[number] = _Rank(process, connection)
    return _ranks[number]


def _receive(results: dict[str, list[str]], ranks: list[_Rank]) -> bool:
    """Fill in the results; whether all processes ran all cases."""
    running = {rank.connection: number for number, rank in enumerate(ranks)}
    silence: float = _SILENCE
    while running:
        ready: list[Any] = wait(list(running), timeout=silence)
        if not ready:
            return False
        for connection in ready:
            try:
                message = connection.recv()
            except EOFError:  # the process ended
                silence = _SECONDS_AFTER_FAILURE
                del running[connection]
                continue
            if message is None:
                del running[connection]
                continue
            name, text, others_wait = message
            results[name][running[connection]] = text
            if others_wait:
                silence = _SECONDS_AFTER_FAILURE
    return silence == _SILENCE


def _run_groups(rank: int, connection: Any) -> None:
    """The main function of a process; it ends with the one that started it."""
    # Default arguments of its functions are the default group at its import: with none they mean the current one.
    importlib.import_module("torch.distributed.nn.functional")
    torch.set_num_threads(1)
    if ON_GPUS:
        torch.cuda.set_device(rank)
        torch.set_default_device("cuda")
    for kind in (ExecutorWarning, RecompileWarning, UncacheableWarning):
        warnings.simplefilter("error", kind)
    while True:
        try:
            group = connection.recv()
        except EOFError:
            return
        sys.path[:] = group.path
        _run_group(rank, connection, group)
        connection.send(None)


def _run_group(rank: int, connection: Any, group: _Group) -> None:
    store: Any = vars(dist)["FileStore"](group.store, group.processes)  # public, but not in the type stubs
    backend = "nccl" if ON_GPUS else "gloo"
    limit = datetime.timedelta(seconds=LIMIT)
    dist.init_process_group(backend, store=store, rank=rank, world_size=group.processes, timeout=limit)
    cases = importlib.import_module(group.module).CASES
    for name in group.names:
        torch.manual_seed(0)
        try:
            cases[name]()
        except BaseException as error:  # noqa: BLE001 - that of `pytest.fail` is no Exception
            others_wait = not isinstance(error, AssertionError)
            connection.send((name, "".join(traceback.format_exception(error)), others_wait))
            if others_wait:
                return
        else:
            connection.send((name, "", False))
    dist.destroy_process_group()
