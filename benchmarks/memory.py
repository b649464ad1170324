"""Peak memory of a forward call without gradients.

PyTorch's profiler records the allocations and deallocations of the CPU allocator. The peak of their cumulative sum
since the start of the call is the additional memory of the call: intermediates, outputs and workspaces of kernels. The
call runs unmodified, without a dispatch mode. The first calls, which compile, are not measured.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import programs
from benchmarks.availability import unavailable
from benchmarks.implementations import compile_with
from benchmarks.process import in_fresh_process
from benchmarks.row import Row, reached_by_thunder

CASES = {
    "small_llama": "Llama, 8 small layers, 1x64",
    "residual_network": "CNN with in-place ReLU, 4x3x64x64",
    "bert": "Hugging Face BERT, 4 layers, 2x128",
    "small_llama_decode": "Llama decode step, KV cache",
}
LIMIT = 1.02


def measure(threads: int, implementations: list[str]) -> list[Row]:
    """Measure, and return the rows."""
    skipped = unavailable(implementations)
    names = [name for name in implementations if name not in skipped]
    rows = []
    for case, what in CASES.items():
        peaks = in_fresh_process(peak_bytes, threads=threads, case=case, names=names)
        values = {name: peak / 2**20 for name, peak in peaks.items()}
        reached = reached_by_thunder(values, lambda peak, values=values: peak <= LIMIT * values["eager"])
        rows.append(Row("peak memory", what, "MiB", values, skipped, f"<= {LIMIT} x eager", reached))
    return rows


def peak_bytes(case: str, names: list[str]) -> dict[str, int]:
    """Peak memory of a forward call in bytes, by implementation."""
    import torch

    program, arguments = getattr(programs, case)()
    peaks = {}
    with torch.no_grad():
        for name in names:
            compiled = compile_with(name, program)
            for _ in range(3):
                compiled(*arguments)
            peaks[name] = peak_of_call(lambda compiled=compiled: compiled(*arguments))
    return peaks


def peak_of_call(call: Callable[[], object]) -> int:
    """The peak of PyTorch's CPU allocator during a call, in bytes above its level before the call."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as recorded:
        result = call()
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    del result
    current = peak = 0
    for event in events:
        current += event.nbytes()
        peak = max(peak, current)
    return peak
