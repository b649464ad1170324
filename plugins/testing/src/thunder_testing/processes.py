"""Cases that run in several processes of one group: all in the same ones, as starting takes seconds.

They communicate by gloo. With ``THUNDER_TEST_DEVICE=cuda`` in the environment each process has a GPU, on which tensors
are created by default, and they communicate by NCCL.
"""

from __future__ import annotations

import datetime
import importlib
import multiprocessing
import os
import queue
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pytest
import torch
import torch.distributed as dist

from thunder_core.errors import ExecutorWarning, RecompileWarning, UncacheableWarning

LIMIT: Final = 60
"""Seconds for a case."""
_START: Final = 180  # seconds for a case and the start of the processes, on a machine that is busy


def process_suite(module: str, names: Iterable[str], *, processes: int = 2) -> Callable[..., None]:
    """A test for each case, all of which run in the same processes; the arguments are those of `run_cases`."""
    names = list(names)
    found: dict[str, list[str]] = {}

    @pytest.mark.parametrize("name", names)
    def test(name: str, tmp_path: Path) -> None:
        if not found:
            found.update(run_cases(module, names, tmp_path, processes=processes))
        assert [text for text in found[name] if text] == []

    return test


def run_cases(module: str, names: Iterable[str], folder: Path, *, processes: int = 2) -> dict[str, list[str]]:
    """Run cases of a module, one after the other, in processes of one group.

    A process that fails by anything but an AssertionError runs no further case, as the others may wait for it.

    Args:
        module: whose ``CASES`` gives functions without arguments by name.
        names: of the cases to run, in order.
        folder: an empty one, for the processes to meet.
        processes: how many there are.

    Returns:
        For each case, what was wrong in each process: empty texts where nothing was.
    """
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    names = list(names)
    args = (processes, str(folder / "store"), module, names, answers)
    started = [context.Process(target=_process, args=(rank, *args)) for rank in range(processes)]
    for process in started:
        process.start()
    results = {name: ["not run"] * processes for name in names}
    try:
        for _ in range(processes * len(names)):
            name, rank, text, ended = answers.get(timeout=_START)
            results[name][rank] = text
            if ended:
                break
    except queue.Empty:
        pass  # the cases that are missing were not run
    finally:
        for process in started:
            process.join(5)
            process.kill()
    return results


def _process(rank: int, count: int, store: str, module: str, names: list[str], answers: Any) -> None:
    torch.set_num_threads(1)
    device = os.environ.get("THUNDER_TEST_DEVICE", "cpu")
    if device == "cuda":
        torch.cuda.set_device(rank)
        torch.set_default_device("cuda")
    limit = datetime.timedelta(seconds=LIMIT)
    meeting: Any = vars(dist)["FileStore"](store, count)  # public, and unknown to type checkers
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, store=meeting, rank=rank, world_size=count, timeout=limit)
    for kind in (ExecutorWarning, RecompileWarning, UncacheableWarning):
        warnings.simplefilter("error", kind)
    cases = importlib.import_module(module).CASES
    for name in names:
        start = time.monotonic()
        try:
            cases[name]()
        except BaseException as error:  # noqa: BLE001 - that of `pytest.fail` is no Exception
            ended = not isinstance(error, AssertionError)
            answers.put((name, rank, "".join(traceback.format_exception(error)), ended))
            if ended:
                break
        else:
            seconds = time.monotonic() - start
            answers.put((name, rank, "" if seconds < LIMIT else f"took {seconds:.0f} s", False))
    answers.close()
    answers.join_thread()
    dist.destroy_process_group()
