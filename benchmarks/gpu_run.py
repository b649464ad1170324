"""One training run of ``benchmarks.gpu_training``, in a process of its own."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.process import ROOT

TIMED = 20
"""The last steps of a run, whose times count; the others warm up."""
TINY = {"n_layer": 2, "n_head": 4, "n_embd": 64, "n_query_groups": 2, "intermediate_size": 96, "padded_vocab_size": 256}


def train(name: str, precision: str, steps: int, tiny: bool = False, executors: Sequence[str] = ()) -> dict[str, Any]:
    """Train for ``steps`` steps; losses, seconds of the first step, median seconds of the last ones, peak bytes.

    ``name`` is eager, torch.compile, thunder, or "eager, other attention": eager with a kernel that rounds differently.
    ``executors`` are Thunder's; they must be installed.
    """
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not tiny:
        raise RuntimeError("no GPU here; --tiny runs a tiny model on the CPU")
    module = _model(tiny, device)
    if precision == "bf16-true":
        module.to(torch.bfloat16)
    batches = _batches(steps, *((2, 32) if tiny else (4, 2048)), device)
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    with _attention(name, device):
        losses, first, step = _steps(module, name, precision, batches, executors)
    return {
        "losses": losses,
        "first step": first,
        "step": step,
        "peak bytes": torch.cuda.max_memory_allocated() if device.type == "cuda" else None,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
    }


def _model(tiny: bool, device: Any) -> Any:
    import torch

    from benchmarks.litgpt_model import gpt_and_config
    from benchmarks.training_programs import WithLoss

    gpt, config = gpt_and_config()
    torch.manual_seed(0)
    with device:
        model = gpt(config.from_name("tiny-llama-1.1b", **(TINY if tiny else {})))
        return WithLoss(model.apply(model._init_weights)).train()


def _batches(count: int, batch: int, length: int, device: Any) -> list[tuple[Any, Any]]:
    """Pairs (bytes, the byte after each) from random places of the documents; always the same."""
    import torch

    paths = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = torch.tensor(list(b"".join(path.read_bytes() for path in paths)))
    starts = torch.randint(len(text) - length, (count, batch, 1), generator=torch.Generator().manual_seed(0))
    places = starts + torch.arange(length)
    return [(text[place].to(device), text[place + 1].to(device)) for place in places]


def _attention(name: str, device: Any) -> contextlib.AbstractContextManager[Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if name != "eager, other attention":
        return contextlib.nullcontext()
    # The first choice is cuDNN's on this kind of GPU, and the fused one on a CPU.
    return sdpa_kernel(SDPBackend.FLASH_ATTENTION if device.type == "cuda" else SDPBackend.MATH)


def _steps(
    module: Any, name: str, precision: str, batches: list[tuple[Any, Any]], executors: Sequence[str]
) -> tuple[list[float], float, float]:
    import torch

    from benchmarks.implementations import compile_with

    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)
    device = batches[0][0].device
    start = time.perf_counter()
    compiled = module if name.startswith("eager") else compile_with(name, module, executors=list(executors))
    losses, marks = [], []
    first = 0.0
    for inputs, targets in batches:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16-autocast"):
            loss = compiled(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if not marks:
            losses[0].item()
            _synchronize(device)
            first = time.perf_counter() - start
        marks.append(_mark(device))
    _synchronize(device)
    times = [_seconds(before, after) for before, after in itertools.pairwise(marks)]
    return [loss.item() for loss in losses], first, statistics.median(times[-TIMED:])


def _synchronize(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()


def _mark(device: Any) -> Any:
    """A moment in the device's time; nothing waits for it."""
    import torch

    if device.type == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _seconds(before: Any, after: Any) -> float:
    return after - before if isinstance(before, float) else before.elapsed_time(after) / 1e3
