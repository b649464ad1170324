"""Cases that run in the processes of one group.

All suites of a run of pytest share the same processes, because starting one takes seconds: they are forked from a
server, which has imported PyTorch once. They communicate with gloo.

With ``THUNDER_TEST_DEVICE=cuda`` in the environment each process has a GPU, on which tensors are created by default,
they communicate with NCCL, and each imports PyTorch. Tests that need more GPUs than there are, and cases that need
gloo, are then skipped. Cases compare with eager PyTorch to the bit, so programs then run without what rounds otherwise
on GPUs (`EXACT`).
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
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Final

import pytest
import torch
import torch.distributed as dist

from thunder_core.errors import ExecutorWarning, RecompileWarning, UncacheableWarning
from thunder_testing.seeding import seed_generators

ON_GPUS: Final = os.environ.get("THUNDER_TEST_DEVICE") == "cuda"
"""Whether each process has a GPU, and they communicate with NCCL."""
LIMIT: Final = 120
"""Seconds that a process waits for the others in one collective. A machine that is busy needs many."""
EXACT: Final = "thunder:exact"
"""The configuration, on GPUs, of programs that are compiled without one; here and in the processes of cases."""
if ON_GPUS:
    os.environ["THUNDER_CONFIG"] = EXACT
_SILENCE: Final = 500  # seconds without a result after which processes are ended: they start slowly on a busy machine
_SECONDS_AFTER_FAILURE: Final = 10  # for results of processes that do not wait for the one that failed
_PRELOADED: Final = (
    "torch.distributed.nn.functional",
    "torch.distributed.tensor.parallel",
    "thunder.config.api",
    "thunder.compiled.module",
    __name__,
)


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
    store: Any = vars(dist)["HashStore"]()  # public, but not in the type stubs
    dist.init_process_group("nccl" if ON_GPUS else "gloo", store=store, rank=0, world_size=1)
    try:
        with torch.device("cuda" if ON_GPUS else "cpu"):
            yield
    finally:
        dist.destroy_process_group()


def process_suite(
    module: str, names: Iterable[str], *, processes: int = 2, of_gloo: Collection[str] = ()
) -> Callable[..., None]:
    """A test for each case, all in the same processes. Each test ends with its case, and reports it.

    Args:
        module, processes: those of `run_case`.
        names: of the cases.
        of_gloo: names of cases that need gloo, because NCCL lacks what they call or they count what gloo sends. They
            are skipped on GPUs.
    """

    @pytest.mark.parametrize("name", list(names))
    def test(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
        if ON_GPUS and torch.cuda.device_count() < processes:
            pytest.skip(f"needs {processes} GPUs")
        if ON_GPUS and name in of_gloo:
            pytest.skip("needs gloo")
        failures = run_case(module, name, tmp_path_factory, processes=processes)
        if _ENDED in failures:
            # About one run in 20 ends a process in cases of eager PyTorch's `fully_shard` with gloo and bfloat16, whose
            # memory is damaged. A case that ends a process by itself does so again.
            if sys.__stderr__ is not None:
                sys.__stderr__.write(f"{name}: a process ended; the case runs once more\n")
            failures = run_case(module, name, tmp_path_factory, processes=processes)
        shown = [f"process {rank}: {text}" for rank, text in enumerate(failures) if text]
        if shown:
            pytest.fail("\n".join(shown), pytrace=False)

    return test


def run_case(module: str, name: str, folders: pytest.TempPathFactory, *, processes: int = 2) -> list[str]:
    """Run a case of a module in the processes of one group, which run further cases of the module.

    If a process fails with an exception other than AssertionError, or does not return, all of them are ended, because
    others may wait for it. New ones run the next case.

    Args:
        module: the module whose ``CASES`` has functions without arguments by name. Other groups run in the same
            processes, so it must not keep what belongs to a group, such as a mesh, in global variables.
        name: of the case.
        folders: creates a folder for the rendezvous of the processes.
        processes: number of processes.

    Returns:
        The failure in each process as text; empty if it passed.
    """
    results = [_NO_RESULT] * processes
    complete = False
    try:
        _join(module, processes, folders)
        for rank in _ranks[:processes]:
            rank.connection.send(name)
        complete = _receive(results)
    finally:
        if not complete:
            _end()
    return results


_NO_RESULT: Final = "no result"
_ENDED: Final = "the process ended"


@dataclass(frozen=True)
class _Group:
    """A process group that runs cases of a module."""

    module: str
    processes: int
    store: str
    path: list[str]


@dataclass(frozen=True)
class _Rank:
    """A process that runs the cases of one group after another."""

    process: Any
    connection: Any


_ranks: list[_Rank] = []
"""Those that were started, until a case hangs or fails in a way that others wait for."""
_group: _Group | None = None
"""The group of the first of them."""


def _join(module: str, processes: int, folders: pytest.TempPathFactory) -> None:
    """Have the first processes, which are started if necessary, form a group; unless they have it."""
    global _group
    if _group is not None and (_group.module, _group.processes) == (module, processes):
        return
    for rank in _ranks[: 0 if _group is None else _group.processes]:
        rank.connection.send(None)
    while len(_ranks) < processes:
        _ranks.append(_started(len(_ranks)))
    _group = _Group(module, processes, str(folders.mktemp("group") / "store"), list(sys.path))
    for rank in _ranks[:processes]:
        rank.connection.send(_group)


def _end() -> None:
    """End all processes."""
    global _group
    for rank in _ranks:
        rank.process.kill()
    _ranks.clear()
    _group = None


def _started(number: int) -> _Rank:
    # CUDA cannot be initialized in a process forked from one in which `torch.cuda.device_count` was called.
    context: Any = multiprocessing.get_context("spawn" if ON_GPUS else "forkserver")
    if not ON_GPUS:
        context.set_forkserver_preload(list(_PRELOADED))
    connection, theirs = context.Pipe()
    process = context.Process(target=_run_groups, args=(number, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Rank(process, connection)


def _receive(results: list[str]) -> bool:
    """Fill in the results of a case; whether the processes can run another one."""
    running = {rank.connection: number for number, rank in enumerate(_ranks[: len(results)])}
    silence: float = _SILENCE
    usable = True
    while running:
        ready: list[Any] = wait(list(running), timeout=silence)
        if not ready:
            return False
        for connection in ready:
            number = running.pop(connection)
            try:
                results[number], others_wait = connection.recv()
            except EOFError:
                results[number], others_wait = _ENDED, True
            usable = usable and not others_wait
            if results[number]:
                silence = _SECONDS_AFTER_FAILURE
    return usable


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
    cases: dict[str, Callable[[], None]] = {}
    while True:
        try:
            message = connection.recv()
        except EOFError:
            return
        if message is None:
            dist.destroy_process_group()
        elif isinstance(message, _Group):
            cases = _joined(rank, message)
        else:
            connection.send(_failure(cases[message]))


def _joined(rank: int, group: _Group) -> dict[str, Callable[[], None]]:
    """Join a group; the cases of its module."""
    sys.path[:] = group.path
    store: Any = vars(dist)["FileStore"](group.store, group.processes)  # public, but not in the type stubs
    backend = "nccl" if ON_GPUS else "gloo"
    limit = datetime.timedelta(seconds=LIMIT)
    dist.init_process_group(backend, store=store, rank=rank, world_size=group.processes, timeout=limit)
    cases: dict[str, Callable[[], None]] = importlib.import_module(group.module).CASES
    return cases


def _failure(case: Callable[[], None]) -> tuple[str, bool]:
    """Run a case; the failure as text, empty if it passed, and whether other processes may wait for this one."""
    seed_generators(0)
    try:
        case()
    except BaseException as error:  # noqa: BLE001 - that of `pytest.fail` is not an Exception
        return "".join(traceback.format_exception(error)), not isinstance(error, AssertionError)
    return "", False
