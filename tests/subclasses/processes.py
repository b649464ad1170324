"""Cases that run in several processes, which communicate by gloo: all in the same ones, as starting takes seconds."""

from __future__ import annotations

import datetime
import importlib
import multiprocessing
import queue
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

_LIMIT = 60
"""Seconds for a case."""


def _process(rank: int, count: int, store: str, module: str, names: Sequence[str], answers: Any) -> None:
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=_LIMIT)
    dist.init_process_group("gloo", store=dist.FileStore(store, count), rank=rank, world_size=count, timeout=limit)
    warnings.simplefilter("error")
    cases = importlib.import_module(module).CASES
    for name in names:
        start = time.monotonic()
        try:
            cases[name]()
            answers.put((name, rank, "", time.monotonic() - start))
        except BaseException as error:
            text = "".join(traceback.format_exception(error))
            answers.put((name, rank, text, time.monotonic() - start))
            if not isinstance(error, AssertionError):  # the others may wait for this process
                break
    dist.destroy_process_group()


def run_cases(module: str, names: Sequence[str], count: int, folder: Path) -> dict[str, list[str]]:
    """Run ``CASES`` of a module in so many processes.

    Returns:
        For each case, what was wrong in each process: empty texts where nothing was.
    """
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    args = (count, str(folder / "store"), module, names, answers)
    processes = [context.Process(target=_process, args=(rank, *args)) for rank in range(count)]
    for process in processes:
        process.start()
    results: dict[str, list[str]] = {name: ["not run"] * count for name in names}
    try:
        for _ in range(count * len(names)):
            name, rank, text, seconds = answers.get(timeout=_LIMIT)
            results[name][rank] = text or ("" if seconds < _LIMIT else f"took {seconds:.0f} s")
            if text and "AssertionError" not in text:
                break
    except queue.Empty:
        pass
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    return results
