"""``compile="behind"``: the same results before, at and after the exchange of kernels, whatever the code computes."""

from __future__ import annotations

import copy
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder_core.errors import ExecutorWarning
from thunder_core.executors.artifacts import artifact_cache
from thunder_fusion import behind, compiled_regions, worker_process
from thunder_testing.behind import Coded, HeldJob


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[HeldJob]]:
    """The compilations, which tests finish. Nothing is known from tests before."""
    monkeypatch.setattr(HeldJob, "jobs", [], raising=False)
    monkeypatch.setattr(behind, "Job", HeldJob)
    compiled_regions._cache.clear()
    behind._waiting.clear()
    yield HeldJob.jobs
    behind._waiting.clear()


def jit(program: Any, executor: Coded, **options: Any) -> Any:
    return thunder.jit(program, executors=[executor], compile="behind", **options)


class Training(nn.Module):
    """Regions around matmuls, dropout, and statistics that each call writes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.GELU(), nn.Dropout(0.5), nn.Linear(6, 3))
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.layers(x * 2 + 1)
        self.total += hidden.detach().sum() * 0.5
        return (hidden.sin() * 2).exp()


def gradients(model: Any, x: torch.Tensor) -> list[Any]:
    result = model(x)
    model.zero_grad()
    result.square().mean().backward()
    return [result, *[parameter.grad for parameter in model.parameters()], *model.buffers()]


def twice(model: Any, x: torch.Tensor) -> list[Any]:
    """Two backwards from one graph."""
    model.zero_grad()
    result = model(x)
    loss = result.square().mean()
    loss.backward(retain_graph=True)
    loss.backward()
    return [result, *[parameter.grad for parameter in model.parameters()]]


def one_input(model: Any, x: torch.Tensor) -> list[Any]:
    """A backward for some of the gradients, compiled when it is first needed."""
    x.requires_grad_()
    return list(torch.autograd.grad(model(x).sum(), [x]))


def inference(model: Any, x: torch.Tensor) -> list[Any]:
    with torch.no_grad():
        return [model(x), *model.buffers()]


@pytest.mark.parametrize("step", [gradients, twice, one_input, inference])
def test_as_eager_at_each_call(jobs: list[HeldJob], step: Callable[[Any, torch.Tensor], list[Any]]) -> None:
    """Values, gradients, buffers and the stream of random numbers."""
    executor = Coded()
    eager = Training()
    compiled = jit(copy.deepcopy(eager), executor)
    for call in range(9):
        x = torch.randn(5, 4)
        for job in jobs[: call // 2]:
            job.ended = True
        results = []
        for model in (eager, compiled):
            torch.manual_seed(call)
            results.append([*step(model, x.clone()), torch.get_rng_state()])
        torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
        if not any(job.ended for job in jobs):
            assert not executor.ran
    assert len(jobs) == (2 if step is one_input else 1)  # without gradients of weights, a region computes less again
    expected = thunder.last_traces(compiled)[-1]
    fused = sum(op.symbol.executor == "coded" for op in expected.symbols)
    del executor.ran[:]
    inference(compiled, torch.randn(5, 4)) if step is inference else compiled(torch.randn(5, 4))
    assert len(executor.ran) == fused > 1


def test_graphs_from_before_the_exchange(jobs: list[HeldJob]) -> None:
    """Backwards of calls before, at and after it, all of them last."""
    executor = Coded()
    weight = torch.randn(3, 3, requires_grad=True)
    compiled = jit(lambda x: (x @ weight).sin().exp() * 2, executor)
    inputs = [torch.randn(3, 3) for _ in range(5)]
    graphs = []
    for call, x in enumerate(inputs):
        graphs.append(compiled(x))
        jobs[0].ended = call >= 1
    for x, graph in zip(inputs, graphs, strict=True):
        (found,) = torch.autograd.grad(graph.sum(), [weight])
        (expected,) = torch.autograd.grad(((x @ weight).sin().exp() * 2).sum(), [weight])
        torch.testing.assert_close(found, expected)


def test_all_regions_of_a_call_are_exchanged_together(jobs: list[HeldJob]) -> None:
    """The job ends within a call: its regions run by PyTorch's kernels to the end. The next call compares."""
    executor = Coded()

    def program(x: torch.Tensor) -> torch.Tensor:
        x = (x.sin() + 1) @ x
        end(x)
        return (x.cos() + 2).exp() @ x

    @torch.library.custom_op("behind_test::end", mutates_args=())
    def end(x: torch.Tensor) -> None:
        for job in jobs:
            job.ended = True

    end.register_fake(lambda x: None)

    compiled, x = jit(program, executor), torch.randn(3, 3)
    runs = []
    for _ in range(4):
        torch.testing.assert_close(compiled(x), program(x))
        runs.append([*executor.ran])
        del executor.ran[:]
    assert runs == [[], [2, 3], [2, 3], [2, 3]]


def rounded(results: list[torch.Tensor]) -> list[torch.Tensor]:
    return [one * (1 + 1e-6) for one in results]


def test_report(jobs: list[HeldJob]) -> None:
    compiled = jit(lambda x: x.sin() * 2, Coded(change=rounded))
    for expected in (
        "1 regions: PyTorch's kernels run it until another process has compiled it",
        "1 regions: its code is being compared with PyTorch's kernels",
        "1 regions: code of another process runs it",
    ):
        x = torch.ones(3)
        torch.testing.assert_close(compiled(x), x.sin() * 2, rtol=1e-5, atol=0)
        assert expected in str(thunder.explain(compiled).regions)
        jobs[0].ended = True
    text = str(thunder.explain(compiled).regions)
    assert re.search(r"compared with PyTorch's kernels, it differs by (9|1)\.\d*e-0[67] at most", text)


def more(results: list[torch.Tensor]) -> Any:
    return [one + 1 for one in results]


def undefined(results: list[torch.Tensor]) -> Any:
    return [one * torch.nan for one in results]


def shorter(results: list[torch.Tensor]) -> Any:
    return [one[:1] for one in results]


def wider(results: list[torch.Tensor]) -> Any:
    return [one.double() for one in results]


def fewer(results: list[torch.Tensor]) -> Any:
    return []


def failing(results: list[torch.Tensor]) -> Any:
    raise ValueError("no kernel")


WRONG = {
    more: "its results differ by ",
    undefined: "its results differ by nan",
    shorter: "its code returns shape (1,) instead of (3,)",
    wider: "its code returns dtype torch.float64",
    fewer: "its code returns 0 results instead of 1",
    failing: "its code fails: ValueError: no kernel",
}


@pytest.mark.parametrize("defect", WRONG)
def test_wrong_code_never_counts(jobs: list[HeldJob], defect: Callable[..., Any]) -> None:
    """One warning, with the region; each call has PyTorch's results."""
    reason = WRONG[defect]
    compiled, x = jit(lambda x: x.sin() - 2, Coded(change=defect)), torch.randn(3)
    messages: list[str] = []
    for _ in range(6):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            assert torch.equal(compiled(x), x.sin() - 2)
        messages += [str(one.message) for one in found]
        jobs[0].ended = True
    (message,) = messages
    assert "coded: PyTorch's kernels continue to run its region of 2 operations that begins with torch.sin" in message
    assert "test_behind.py:" in message
    assert reason in message
    assert reason in str(thunder.explain(compiled).regions)


def test_refused_and_unreadable(jobs: list[HeldJob], monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3)
    compiled = jit(lambda x: x.sin() - 2, Coded(refuses=("torch.sin",)))
    compiled(x)
    jobs[0].ended = True
    with pytest.warns(ExecutorWarning, match="it cannot compile torch.sin"):
        assert torch.equal(compiled(x), x.sin() - 2)

    def load(self: Coded, artifact: bytes, region: Any) -> Any:
        raise ValueError("other version")

    monkeypatch.setattr(Coded, "load", load)
    compiled = jit(lambda x: x.cos() - 2, Coded())
    compiled(x)
    jobs[1].ended = True
    with pytest.warns(ExecutorWarning, match="its code cannot be loaded: ValueError: other version"):
        assert torch.equal(compiled(x), x.cos() - 2)
    assert torch.equal(compiled(x), x.cos() - 2)


def test_errors_of_the_program(jobs: list[HeldJob]) -> None:
    """An exception of PyTorch's kernels is the caller's, also in the call that compares, which the next one repeats."""
    executor = Coded()
    compiled = jit(lambda x, i: (x * 2)[i] + 1, executor)
    x, bad, good = torch.randn(3), torch.tensor([7]), torch.tensor([1])
    for index in (good, bad, good, bad, good, bad):
        if index is bad:
            with pytest.raises(IndexError, match="out of bounds"):
                compiled(x, index)
        else:
            torch.testing.assert_close(compiled(x, index), (x * 2)[index] + 1)
        jobs[0].ended = True
    assert executor.ran


def test_equal_regions_have_one_job(jobs: list[HeldJob]) -> None:
    """Of one program, of another program while it waits, and of one that is compiled afterwards."""
    executor = Coded()

    def deep(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = (x.sin() * 2) @ x
        return x

    first, second, third, x = *[jit(copy_of(deep), executor) for _ in range(3)], torch.randn(3, 3)
    for program in (first, second):
        torch.testing.assert_close(program(x), deep(x))
    (job,) = jobs
    assert len(job.candidates) == 1
    job.ended = True
    for program in (second, second, first, third):
        torch.testing.assert_close(program(x), deep(x))
    assert len(jobs) == 1
    assert executor.ran == [2] * 12
    assert thunder.explain(third).entries[0].regions.known == 1


def copy_of(function: Any) -> Any:
    return type(function)(function.__code__, function.__globals__)


@pytest.mark.parametrize(
    ("executor", "options"),
    [
        (Coded(), {"dynamic": True}),
        (Coded(change=lambda results: results), {}),
        (Coded(), {"THUNDER_DETERMINISTIC": "1"}),
    ],
    ids=["sizes that vary", "an executor that cannot be sent", "THUNDER_DETERMINISTIC"],
)
def test_compiled_ahead(
    jobs: list[HeldJob], monkeypatch: pytest.MonkeyPatch, executor: Coded, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(Coded, "varying_sizes", True)
    if "THUNDER_DETERMINISTIC" in options:
        monkeypatch.setenv("THUNDER_DETERMINISTIC", options["THUNDER_DETERMINISTIC"])
        options = {}
    compiled, x = jit(lambda x: x.sin() * 2, executor, **options), torch.randn(3)
    torch.testing.assert_close(compiled(x), x.sin() * 2)
    assert not jobs
    assert len(executor.regions) == 1


def test_ahead_is_the_default(jobs: list[HeldJob]) -> None:
    executor = Coded()
    thunder.jit(lambda x: x.sin() * 2, executors=[executor])(torch.ones(2))
    assert len(executor.regions) == 1
    assert not jobs
    with pytest.raises(thunder.ThunderError, match="compile"):
        thunder.jit(torch.sin, compile="later")


def test_regions_on_disk_need_no_waiting(jobs: list[HeldJob], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path / "cache"))
    x = torch.randn(3)
    jit(lambda x: x.sin() * 2, Coded())(x)
    jobs[0].ended = True
    jobs[0].poll()  # the request has compiled and stored it
    compiled_regions._cache.clear()
    cache = artifact_cache()
    assert cache is not None
    (stored,) = cache.files()
    executor = Coded()
    compiled = jit(lambda x: x.sin() * 2, executor)
    torch.testing.assert_close(compiled(x), x.sin() * 2)
    regions = thunder.explain(compiled).entries[0].regions
    assert (regions.notes, regions.read, len(jobs)) == ((), 1, 1), f"{stored}; now {artifact_cache()}, {cache.files()}"
    assert executor.ran == [2]


def test_copies_of_a_waiting_program(jobs: list[HeldJob]) -> None:
    compiled, x = jit(nn.Sequential(nn.Linear(3, 3), nn.GELU()), Coded()), torch.randn(2, 3)
    expected = compiled(x)
    assert torch.equal(copy.deepcopy(compiled)(x), expected)
    jobs[0].ended = True
    assert torch.equal(copy.deepcopy(compiled)(x), expected)
    assert torch.equal(compiled(x), expected)


def test_threads(jobs: list[HeldJob]) -> None:
    executor = Coded()
    compiled = jit(lambda x: (x.sin() * 2) @ x + 1, executor)
    compiled(torch.randn(3, 3))
    errors: list[BaseException] = []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            start.wait()
            for call in range(50):
                jobs[0].ended = jobs[0].ended or (number == 0 and call == 10)
                x = torch.randn(3, 3)
                torch.testing.assert_close(compiled(x), (x.sin() * 2) @ x + 1)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert executor.ran


class Ending(Coded):
    """Ends the process that compiles."""

    def fuse(self, region: Any) -> Any:
        os._exit(3)


@pytest.mark.one_version
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.slow
def test_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ones: one that answers, one that ends early; a child of this process has none, and PyTorch's kernels."""
    monkeypatch.setattr(behind, "Job", worker_process.Job)
    executor, x = Coded(), torch.randn(3)
    good, bad = jit(lambda x: x.sin() * 2, executor), jit(lambda x: x.cos() * 2, Ending())
    good(x), bad(x)
    child = os.fork()
    if child == 0:
        correct = torch.equal(good(x), x.sin() * 2) and not worker_process._jobs
        os._exit(0 if correct and "was forked" in str(thunder.explain(good).regions) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    processes = [job._process for job in worker_process._jobs]
    assert len(processes) == 2
    with pytest.warns(ExecutorWarning, match="the process that compiled it ended with status 3"):
        worker_process.wait_for_all()
    for _ in range(3):
        assert torch.equal(good(x), x.sin() * 2)
    assert executor.ran == [2, 2, 2]
    assert torch.equal(bad(x), x.cos() * 2)
    assert torch.equal(bad(x), x.cos() * 2)
    assert all(process.returncode is not None for process in processes)


def test_a_worker_ends_with_its_caller(tmp_path: Path) -> None:
    """However that ends: only the pipe closes."""
    request, answer = tmp_path / "request", tmp_path / "answer"
    request.write_bytes(pickle.dumps(Slow()))
    with request.open("rb") as asked, answer.open("wb") as answered:
        files = (asked.fileno(), answered.fileno())
        command = [sys.executable, worker_process._WORKER, *map(str, files)]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=files, start_new_session=True)
        assert worker.stdin is not None
        worker.stdin.close()
        assert worker.wait(60) == -signal.SIGTERM


class Slow:
    """Takes long to read."""

    def __reduce__(self) -> Any:
        return time.sleep, (600,)


class Endless(Coded):
    """Compiles until it is ended."""

    def fuse(self, region: Any) -> Any:
        signal.pause()


def main() -> None:
    """Call a program whose compilation does not end, and end."""
    assert not worker_process._jobs
    compiled = jit(lambda x: x.sin() * 2, Endless())
    assert torch.equal(compiled(torch.ones(2)), torch.ones(2).sin() * 2)
    print(*[job._process.pid for job in worker_process._jobs], threading.active_count())


@pytest.mark.one_version
@pytest.mark.slow
def test_end_of_the_process() -> None:
    """It does not wait for the compilation, says nothing, and nothing outlives it."""
    code = "from test_behind import main; main()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert ended.stderr == ""
    worker, threads = map(int, ended.stdout.split())
    assert threads == 1
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
