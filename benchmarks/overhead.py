"""What a call costs once everything is compiled and cached."""

from __future__ import annotations

from benchmarks import programs
from benchmarks.implementations import compile_with, unavailable
from benchmarks.process import in_fresh_process
from benchmarks.row import IMPLEMENTATIONS, Row

CASES = {
    "small_arithmetic": "relu(a*b+a).sum(), 4x4",
    "linear_chain": "8 x Linear(16,16), no_grad",
    "small_llama": "Llama, 8 small layers, 1x64, no_grad",
}


def measure(threads: int) -> list[Row]:
    """The rows of this benchmark."""
    skipped = unavailable()
    names = [name for name in IMPLEMENTATIONS if name not in skipped]
    return [_row(case, in_fresh_process(seconds_per_call, threads=threads, case=case, names=names)) for case in CASES]


def _row(case: str, seconds: dict[str, float]) -> Row:
    values = {name: second * 1e6 for name, second in seconds.items()}
    thunder, reference = values["thunder"], values.get("torch.compile")
    faster = thunder <= reference if reference is not None else None
    if case == "small_arithmetic":
        goal, reached = "<= 10 us and < torch.compile", thunder <= 10 and faster if faster is not None else None
    elif case == "linear_chain":
        goal, reached = "<= torch.compile", faster
    else:
        goal, reached = "", None
    return Row("cached call", CASES[case], "us", values, unavailable(), goal, reached)


def seconds_per_call(case: str, names: list[str]) -> dict[str, float]:
    """Median seconds of a cached call, by implementation; all in this process, in turns."""
    import torch

    from benchmarks.timing import interleaved_medians

    program, arguments = getattr(programs, case)()
    compiled = {name: compile_with(name, program) for name in names}
    calls = {name: lambda function=function: function(*arguments) for name, function in compiled.items()}
    # The arithmetic runs as a user writes it, with gradients enabled and none required; the models without gradients.
    with torch.set_grad_enabled(case == "small_arithmetic"):
        expected = calls["eager"]()
        for call in calls.values():
            torch.testing.assert_close(call(), expected)
        return interleaved_medians(calls)
