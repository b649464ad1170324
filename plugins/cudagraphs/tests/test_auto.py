"""``when: auto``: programs are captured where it saves time, and nothing is paid for elsewhere."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace
from typing import Any

import pytest
import torch
from graphed_programs import Network, Pair, same
from recording import RecordingBackend
from torch import nn

import thunder
from thunder.compiled.module_forward import compiled_of
from thunder.config import settings_of
from thunder_core.ir.effects import Effects
from thunder_core.passes.transform import Phase, TransformContext
from thunder_plugin_cudagraphs import CUDAGraphs, statistics
from thunder_plugin_cudagraphs.peak import peak_bytes
from thunder_plugin_cudagraphs.program import OTHER_THREAD
from thunder_plugin_cudagraphs.refusal import why_not_by_itself
from thunder_testing.pointwise import Pointwise

STEPS = 16
AUTO = {"when": "auto"}


def train(pair: Pair, steps: int = STEPS) -> None:
    """Steps in eager and compiled, which must have equal results, gradients and parameters."""
    for _ in range(steps):
        x = torch.randn(2, 4, 16)

        def step(model: Any, optimizer: torch.optim.Optimizer, x: Any = x) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        pair.each(step)
        pair.same_state()


@pytest.mark.slow
def test_a_training_that_the_host_bounds_is_captured(backend: RecordingBackend) -> None:
    pair = Pair.of(Network(dropout=0.2), "cpu", **AUTO)
    train(pair)
    for phase in ("forward", "backward"):
        found = pair.statistics(phase)
        assert (found.graphs, found.captures, found.replays) == (1, 1, STEPS - 6), found
    report = str(thunder.explain(pair.compiled).notes)
    assert (
        "captured, since the host takes 4e+03 ms to launch forward and backward, and the device 2e+03 ms to run them"
        in report
    )
    assert "4 calls without a graph: it is timed" in report
    assert [delay for delay in backend.delays if delay] == [3.0] * 4
    assert len(backend.delays) == 2 * (4 + 2)


def test_one_that_the_device_bounds_is_not(backend: RecordingBackend) -> None:
    backend.launch_times = (1.0, 2.0)
    pair = Pair.of(Network(), "cpu", **AUTO)
    train(pair)
    assert (backend.captures, len(backend.delays)) == (0, 2 * 4)
    report = str(thunder.explain(pair.compiled).notes)
    reason = "the host takes 2e+03 ms to launch forward and backward, and the device 4e+03 ms to run them"
    assert f"cudagraphs, forward: no graph, since {reason}" in report
    assert f"cudagraphs, backward: no graph, since {reason}" in report
    (forward, _) = compiled_of(pair.compiled).entries[0].program.notes
    before = str(forward)
    train(pair, 3)
    assert str(forward) == before  # nothing is counted any more


def test_graphs_that_save_nothing_are_freed(backend: RecordingBackend) -> None:
    backend.replay_times = (0.1, 2.5)
    pair = Pair.of(Network(), "cpu", **AUTO)
    train(pair)
    assert backend.captures == 2
    for phase in ("forward", "backward"):
        found = pair.statistics(phase)
        assert found.graphs == 0
        assert "with graphs 5e+03 ms pass until the end, without 4e+03 ms" in str(found.refused)


def test_results_of_freed_graphs_stay(backend: RecordingBackend) -> None:
    backend.replay_times = (0.1, 2.5)
    pair = Pair.of(Network(), "cpu", **AUTO)
    kept = []
    with torch.no_grad():
        for _ in range(STEPS):
            x = torch.randn(2, 4, 16)
            kept.append((pair.compiled(x), pair.eager(x)))
    assert pair.statistics("inference").graphs == 0
    for found, expected in kept:
        same(found, expected)


@pytest.mark.parametrize("seconds", [1.0, 3.0], ids=["faster", "freed while backwards are due"])
def test_accumulated_gradients(backend: RecordingBackend, seconds: float) -> None:
    backend.replay_times = (0.1, seconds)
    pair = Pair.of(Network(), "cpu", **AUTO)
    for _ in range(STEPS):
        batches = [torch.randn(2, 4, 16) for _ in range(2)]

        def step(model: Any, optimizer: torch.optim.Optimizer, batches: Any = batches) -> torch.Tensor:
            optimizer.zero_grad()
            losses = [model(x).square().mean() for x in batches]
            for loss in losses:
                loss.backward()
            optimizer.step()
            return torch.stack(losses).detach()

        pair.each(step)
        pair.same_state()
    assert backend.replays > 0


def test_a_capture_that_fails(backend: RecordingBackend) -> None:
    backend.fails = [RuntimeError("no luck"), RuntimeError("no luck")]
    pair = Pair.of(Network(), "cpu", **AUTO)
    train(pair)
    found = pair.statistics("forward")
    assert (found.graphs, found.refused) == (0, "its capture failed: RuntimeError: no luck")
    assert "no graph, since its capture failed" in str(thunder.explain(pair.compiled).notes)


def test_a_pool_that_cannot_be_created(backend: RecordingBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise torch.OutOfMemoryError("nothing left")

    monkeypatch.setattr(backend, "new_pool", fail)
    pair = Pair.of(Network(), "cpu", **AUTO)
    train(pair)
    assert pair.statistics("forward").refused == "its capture failed: OutOfMemoryError: nothing left"


@pytest.mark.parametrize("when", ["auto", "always"])
def test_memory(backend: RecordingBackend, when: str) -> None:
    backend.free = 1024
    pair = Pair.of(Network(), "cpu", when=when, memory=0.25)
    train(pair, 10)
    assert backend.captures == 0
    found = pair.statistics("forward")
    assert "its graph would take about 0 MiB, and the option memory (0.25) allows 0 MiB" in str(found.refused)
    assert pair.statistics("backward").graphs == 0


def test_memory_that_a_capture_took(backend: RecordingBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter(range(0, 1 << 40, 1 << 30))
    monkeypatch.setattr(backend, "pool_bytes", lambda pool: next(sizes))
    backend.free = 1 << 30
    pair = Pair.of(Network(), "cpu", when="always")
    train(pair, 6)
    assert pair.statistics("forward").refused == (
        "its capture failed: CannotBeCaptured: it takes 1,024 MiB, and the option memory (0.5) allows 512 MiB"
    )


@pytest.mark.usefixtures("backend")
def test_the_peak_of_a_program() -> None:
    compiled = thunder.jit(lambda x: ((x + 1).sin() * 2).t() + x.sum(), executors=[], transforms=[CUDAGraphs()])
    compiled(torch.ones(16, 16))
    (program,) = compiled.entries[0].program.notes
    assert 2 * 1024 <= program.nbytes - 1024 <= 2 * 1024 + 8  # two values at once, the sum, and the copied input
    trace = thunder.last_traces(compiled)[-1]
    assert peak_bytes(trace) == 1024  # of the one op


@pytest.mark.usefixtures("backend")
def test_the_printed_trace_has_the_operations_inside() -> None:
    compiled = thunder.jit(lambda x: x.sin() + 1, executors=[], transforms=[CUDAGraphs()])
    compiled(torch.ones(2))
    text = str(thunder.last_traces(compiled)[-1])
    assert "cudagraphs_inference([" in text
    assert "#   t0 = torch.sin(x)" in text.replace("args_0", "x"), text


@pytest.mark.usefixtures("backend")
def test_sizes_that_vary_do_not_become_constant() -> None:
    compiled = thunder.jit(lambda x: x.sin() + 1, transforms=[CUDAGraphs(when="auto")], dynamic=True)
    for rows in (3, 4, 5):
        x = torch.randn(rows, 2)
        same(compiled(x), x.sin() + 1)
    assert len(compiled.entries) == 1
    (found,) = statistics(compiled)
    assert found.refused == "its sizes vary between calls, and a graph has constant ones"


@pytest.mark.usefixtures("backend")
def test_two_shapes_in_turn() -> None:
    compiled = thunder.jit(lambda x: (x @ x.t()).sin(), transforms=[CUDAGraphs(when="auto")], dynamic=False)
    for turn in range(40):
        x = torch.randn(3 + turn % 2, 2)
        same(compiled(x), (x @ x.t()).sin())
    assert [one.graphs for one in statistics(compiled)] == [1, 1]


@pytest.mark.usefixtures("backend")
def test_parameters_that_move() -> None:
    pair = Pair.of(Network(), "cpu", **AUTO)
    train(pair)
    for model in (pair.eager, pair.compiled):
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
    train(pair, 4)
    state = copy.deepcopy(pair.eager.state_dict())
    train(pair, 2)
    for model in (pair.eager, pair.compiled):
        model.load_state_dict(state)
    train(pair, 4)
    assert pair.statistics("forward").captures == 2


def test_while_other_code_captures(backend: RecordingBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is timed or captured then, since that would end the capture of the other code."""
    monkeypatch.setattr(backend, "why_not_now", lambda: "the stream is being captured by other code")
    pair = Pair.of(Network(), "cpu", **AUTO)
    train(pair)
    assert (backend.delays, backend.captures) == ([], 0)
    monkeypatch.undo()


class Waiting(threading.Thread):
    """A thread that waits, as a server's does, until the test is over."""

    def __init__(self, module: str) -> None:
        super().__init__(name="server", daemon=True)
        self.over = threading.Event()
        # the outermost frame is that of a function of the module
        namespace = {"__name__": module, "over": self.over}
        exec("def serve():\n    over.wait()\n", namespace)
        self._serve = namespace["serve"]
        self.run = self._serve  # type: ignore[method-assign]

    def __enter__(self) -> Waiting:
        self.start()
        return self

    def __exit__(self, *of_error: object) -> None:
        self.over.set()
        self.join()


def test_while_another_thread_runs(backend: RecordingBackend) -> None:
    """A random function of it would fail during a capture. Threads of libraries that compute nothing do not matter."""
    pair = Pair.of(Network(), "cpu", **AUTO)
    with Waiting("flask.serving"):
        train(pair)
        assert (backend.delays, backend.captures) == ([], 0)
        assert dict(pair.statistics("forward").ungraphed) == {OTHER_THREAD: STEPS}
    with Waiting("torch.utils.data._utils.pin_memory"):
        train(pair)
    assert backend.captures == 2
    with Waiting("flask.serving"):  # a graph that exists is replayed
        before = backend.replays
        train(pair, 2)
        assert backend.replays == before + 4


@pytest.mark.slow
def test_a_thread_that_always_runs(backend: RecordingBackend) -> None:
    pair = Pair.of(Network(), "cpu", **AUTO)
    for _ in range(60):
        with Waiting("flask.serving"):  # another one for each request
            train(pair, 1)
    train(pair)
    assert backend.captures == 0
    for phase in ("forward", "backward"):
        assert pair.statistics(phase).refused == f"{OTHER_THREAD} (the last one: server)"
    asked = Pair.of(Network(), "cpu", when="always")
    with Waiting("flask.serving"):
        train(asked)
    assert backend.captures == 2


def test_a_call_that_raises_is_not_timed(backend: RecordingBackend) -> None:
    compiled = thunder.jit(lambda x, i: x[i] + 1, transforms=[CUDAGraphs(when="auto")])
    x = torch.randn(4, 2)
    for turn in range(20):
        index = torch.tensor([9 if turn in (2, 3) else 1])
        if turn in (2, 3):
            with pytest.raises(IndexError):
                compiled(x, index)
        else:
            same(compiled(x, index), x[index] + 1)
    assert backend.replays > 0


@pytest.mark.usefixtures("backend")
def test_the_report_has_the_regions_inside() -> None:
    compiled = thunder.jit(lambda x: (x.sin() + 1) @ x, executors=[Pointwise()])
    compiled(torch.ones(2, 2))
    regions = thunder.explain(compiled).entries[0].regions
    assert regions is not None
    (content,) = regions.contents
    assert "by torch.sin, torch.add" in content


# --- what is not captured by itself


def trace_of(function: Any, *inputs: Any) -> Any:
    compiled = thunder.jit(function, executors=[], transforms=[{"cudagraphs": {"enabled": False}}])
    compiled(*inputs)
    return thunder.last_traces(compiled)[-1]


def test_collectives() -> None:
    trace = trace_of(lambda x: x + 1, torch.ones(2))
    communicating = replace(trace.symbols[0], effects=Effects(channels=("ranks",)))
    reason = why_not_by_itself(replace(trace, symbols=(communicating,)), Phase.INFERENCE, False)
    assert reason is not None
    assert "communicates with other processes" in reason
    assert why_not_by_itself(trace, Phase.INFERENCE, False) is None


def test_backwards_that_would_take_memory_or_have_no_forward() -> None:
    trace = trace_of(lambda x: x + 1, torch.ones(2))
    assert why_not_by_itself(trace, Phase.BACKWARD, True) is None
    assert why_not_by_itself(trace, Phase.BACKWARD, False) == "its forward is not captured"
    returning = replace(trace, output=(*trace.output, trace.inputs[0]))
    assert "it returns an input" in str(why_not_by_itself(returning, Phase.BACKWARD, True))


def test_where_no_device_has_graphs() -> None:
    compiled = thunder.jit(lambda x: x + 1)
    compiled(torch.ones(2))
    report = thunder.explain(compiled)
    assert "cudagraphs" not in [stage.name for stage in report.entries[0].stages] or torch.cuda.is_available()
    assert statistics(compiled) == ()
    trace = thunder.last_traces(compiled)[-1]
    context = TransformContext(Phase.INFERENCE)
    assert CUDAGraphs(when="auto").run(trace, context) is trace
    assert context.notes == []


# --- configurations


def when(*arguments: Any, **options: Any) -> Any:
    transforms = settings_of(*arguments, **options).transforms
    return next((one.when for one in transforms if isinstance(one, CUDAGraphs)), None)


def test_it_is_a_default_and_a_name_means_always() -> None:
    assert when() == "auto"
    assert when(transforms=["cudagraphs"]) == "always"
    assert when(transforms=[{"cudagraphs": {"memory": 0.1}}]) == "always"
    assert when(transforms=[{"cudagraphs": {"when": "auto", "memory": 0.1}}]) == "auto"
    assert when(transforms=[{"cudagraphs": {"enabled": False}}]) is None
    assert when("reference") is None


@pytest.mark.parametrize("name", CUDAGraphs.conflicts)
def test_it_gives_way(name: str) -> None:
    """Transforms that need each operation's call are used in its place."""
    options = {"before_line": "builtins:print"} if name == "line_callbacks" else {}
    settings = settings_of(transforms=[{name: options}])
    assert name in [one.name for one in settings.transforms]
    assert "cudagraphs" not in [one.name for one in settings.transforms]
    assert ("cudagraphs", f"it conflicts with {name!r}") in settings.left_out


def test_it_is_used_by_a_plain_jit(backend: RecordingBackend) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU())
    compiled = thunder.jit(model)
    for _ in range(14):
        compiled(torch.ones(2, 4)).sum().backward()
        model.zero_grad()
    assert {one.phase: one.graphs for one in statistics(compiled)} == {"forward": 1, "backward": 1}
    assert backend.captures == 2
