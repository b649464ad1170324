"""Cases that run in two processes with gloo: one pair for all cases of a module, as starting takes seconds."""

from __future__ import annotations

import datetime
import importlib
import multiprocessing
import queue
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from thunder_core.errors import UncacheableWarning

LIMIT = 60
"""Seconds for a case."""


def run_cases(cases: Sequence[Callable[[], None]], folder: Path, *, processes: int = 2) -> None:
    """Run functions, one after the other, in processes of one group; fails with the traceback of the first to raise."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    names = [(case.__module__, case.__name__) for case in cases]
    store = str(folder / "store")
    started = [
        context.Process(target=_process, args=(rank, processes, store, names, answers)) for rank in range(processes)
    ]
    for process in started:
        process.start()
    try:
        _collect(answers, processes * len(cases))
    finally:
        for process in started:
            process.join(5)
            process.kill()


def _collect(answers: Any, count: int) -> None:
    done: list[str] = []
    for _ in range(count):
        try:
            rank, name, failure = answers.get(timeout=LIMIT)
        except queue.Empty:
            pytest.fail(f"no answer for {LIMIT} s after {done[-4:]}")
        if failure:
            pytest.fail(f"{name} on rank {rank}:\n{failure}")
        done.append(f"{name} on rank {rank}")


def _process(rank: int, processes: int, store: str, names: list[tuple[str, str]], answers: Any) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error", UncacheableWarning)
    limit = datetime.timedelta(seconds=20)
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, processes), rank=rank, world_size=processes, timeout=limit
    )
    for module, name in names:
        try:
            getattr(importlib.import_module(module), name)()
            answers.put((rank, name, ""))
        except BaseException:
            answers.put((rank, name, traceback.format_exc()))
            break
    answers.close()
    answers.join_thread()
    dist.destroy_process_group()
