"""Ten budgets of memory of a training step: the measured peak against the prediction.

On a GPU the program is TinyLlama 1.1B in bfloat16, and its peak is PyTorch's of allocated memory. On a CPU it is a
small Llama, and its peak is the additional memory of a step (`benchmarks.memory`). The budgets are evenly spaced from
the least that the program needs to what it needs without a budget. PyTorch's own kernels run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.memory import peak_of_call
from benchmarks.process import in_fresh_process
from benchmarks.row import Row

BUDGETS = 10
LIMIT = 0.03


def measure(threads: int) -> list[Row]:
    """Measure, and return the rows."""
    rows = []
    for number, (budget, predicted, measured) in enumerate(in_fresh_process(peaks, threads=threads), 1):
        values = {"budget": budget / 2**20, "predicted": predicted / 2**20, "measured": measured / 2**20}
        reached = abs(measured - predicted) <= LIMIT * predicted and predicted <= budget
        goal = f"measured within {LIMIT:.0%} of predicted <= budget"
        rows.append(Row("memory budgets", f"budget {number} of {BUDGETS}", "MiB", values, {}, goal, reached))
    return rows


def peaks(budgets: int = BUDGETS, **sizes: int) -> list[tuple[int, int, int]]:
    """For each budget, the budget, the predicted and the measured peak in bytes, with the inputs of the program.

    Args:
        sizes: of the small Llama.
    """
    import torch

    import thunder

    model, arguments = _program(torch.cuda.is_available(), sizes)

    def compiled(memory: int) -> Any:
        return thunder.jit(model, executors=[], memory=memory)

    def step(program: Any) -> None:
        model.zero_grad()
        program(*arguments).backward()

    unlimited = compiled(2**60)
    step(unlimited)
    usual = _report(unlimited).usual
    try:
        compiled(1)(*arguments)
    except thunder.MemoryBudgetError as error:
        least = error.least
    found = []
    for number in range(budgets):
        budget = least + (usual - least) * number // (budgets - 1)
        program = compiled(budget)
        step(program)
        model.zero_grad()
        report = _report(program)
        peak = _peak_of_call(lambda program=program: step(program))
        found.append((budget, report.peak, report.inputs + peak))
        del program
    return found


def _program(on_gpu: bool, sizes: dict[str, int]) -> tuple[Any, tuple[Any, ...]]:
    import torch

    from benchmarks.programs import small_llama_training
    from benchmarks.tasks import WithLoss

    torch.manual_seed(0)
    if not on_gpu:
        return small_llama_training(**{"layers": 4, "sequence": 512, **sizes})
    import litgpt

    with torch.device("cuda"):
        model = litgpt.GPT(litgpt.Config.from_name("tiny-llama-1.1b")).to(torch.bfloat16)
        tokens, targets = torch.randint(0, 32000, (2, 4, 2048))
    return WithLoss(model).train(), (tokens, targets)


def _report(program: Any) -> Any:
    import thunder

    training = thunder.explain(program).entries[-1].training
    return training.memory


def _peak_of_call(call: Callable[[], object]) -> int:
    """The peak of memory during a call, in bytes above its level before the call."""
    import torch

    if not torch.cuda.is_available():
        return peak_of_call(call)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return torch.cuda.max_memory_allocated() - before
