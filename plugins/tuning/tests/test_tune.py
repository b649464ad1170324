"""The search, with kernels of known times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from timed_executors import CLOCK, EXECUTORS, Network, VirtualClock, activations

import thunder
from thunder.config import resolve_config
from thunder_core.errors import ExecutorWarning, OptionError, PluginError, ThunderError
from thunder_plugin_tuning import Tuning, tune

X = torch.linspace(-1, 1, 12).view(3, 4)
NAME = "timed_executors."


def tuned(pool: Sequence[str] | None, program: Any = activations, **options: Any) -> Tuning:
    return tune(program, (X,), executors=pool, clock=CLOCK, **options)


def outcomes(found: Tuning) -> dict[str, str]:
    return {one.change.replace(NAME, ""): one.outcome for one in found.measurements}


def plain(found: Tuning) -> list[Any]:
    return [entry.plain() for entry in found.executors]


@pytest.mark.slow
def test_each_operation_gets_the_executor_that_is_faster_there(clock: VirtualClock) -> None:
    found = tuned(["quick", "idle"])
    assert outcomes(found) == {
        "quick first": "not faster",
        "idle first": "unchanged",
        "silu by quick": "faster",
        "tanh by quick": "repeated",
    }
    assert plain(found) == [{"quick": {"include": ["timed_executors.silu"]}}]
    assert found.default == ()
    assert found.times is not None
    assert (found.times.before, found.times.after) == pytest.approx((6e-3, 4e-3))
    idle = next(one for one in found.measurements if one.executor == "idle")
    assert idle.reason == "it claims nothing (it implements none of the operations)"
    assert {(site.operation, site.executors): calls for site, calls in found.sites.items()} == {
        ("timed_executors.silu", ("quick",)): 1,
        ("timed_executors.tanh", ("reference",)): 1,
        ("timed_executors.gelu", ("reference",)): 1,
    }
    compiled = thunder.jit(activations, config=found.config)
    torch.testing.assert_close(compiled(X), activations(X))
    assert thunder.explain(compiled).entries[0].executors == {"quick": 1, "reference": 2}


def test_an_operation_leaves_the_regions_where_it_is_faster(clock: VirtualClock) -> None:
    found = tuned(["fuser"])
    assert outcomes(found) == {
        "fuser first": "faster",
        "silu not by fuser": "slower",
        "tanh not by fuser": "slower",
        "gelu not by fuser": "faster",
    }
    assert plain(found) == [{"fuser": {"exclude": ["timed_executors.gelu"]}}]
    assert found.times is not None
    assert found.times.after == pytest.approx(1.25e-3)


def test_executors_that_compute_something_else_or_fail_are_named(clock: VirtualClock) -> None:
    found = tuned(["wrong", "failing"])
    assert plain(found) == []
    by_change = {one.change: (one.outcome, one.reason) for one in found.measurements}
    outcome, reason = by_change["wrong first"]
    assert outcome == "rejected"
    assert reason.startswith("output 0 differs by 0.0")
    assert by_change["failing first"] == ("failed", "RuntimeError: no kernel image")
    accepted = tuned(["wrong"], tolerance=0.1)
    assert outcomes(accepted)["wrong first"] == "faster"


def test_executors_of_the_configuration_are_left_out_where_that_is_faster(clock: VirtualClock) -> None:
    found = tuned(["idle"], config={"executors": [{"quick": {"include": ["timed_executors.tanh"]}}, "idle"]})
    assert outcomes(found)["without quick"] == "faster"
    assert outcomes(found)["without idle"] == "unchanged"
    assert plain(found) == ["idle"]


@pytest.mark.slow
def test_all_installed_executors_are_tried_and_fusers_come_first(clock: VirtualClock) -> None:
    found = tuned(None)
    tried = [one.executor for one in found.measurements if one.change.endswith(" first")]
    assert tried[0] == "fuser"
    assert set(tried) == {"fuser", "quick", "wrong", "failing", "idle", "pairs", "bad_pairs"}


@pytest.mark.parametrize(("limit", "measured"), [(0.001, 0), (0.25, 1)])
def test_what_the_time_limit_leaves_out_is_named(clock: VirtualClock, limit: float, measured: int) -> None:
    found = tuned(["quick", "fuser"], limit=limit)
    timed = [one for one in found.measurements if one.after is not None]
    left = [one for one in found.measurements if one.outcome == "not measured"]
    assert len(timed) == measured
    assert {one.reason for one in left} == {"the time limit"}
    assert left


@pytest.mark.slow
def test_operations_that_take_little_time_are_not_measured(clock: VirtualClock) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(70):
            x = activations(x)
        return torch.exp(x)

    found = tuned(["quick"], program)
    assert "exp" not in str(found.measurements)  # no executor claims it
    assert outcomes(tuned(["quick"], lambda x: x.exp()))["quick first"] == "unchanged"


@pytest.mark.slow
def test_gradients_are_compared_and_state_is_restored(clock: VirtualClock) -> None:
    module = Network()
    module.norm.weight.grad = torch.full((4,), 7.0)
    random = torch.get_rng_state()
    found = tuned(["pairs", "bad_pairs"], module, train=True)
    by_change = {one.change: (one.outcome, one.reason) for one in found.measurements}
    assert by_change["pairs first"][0] == "slower"
    outcome, reason = by_change["bad_pairs first"]
    assert outcome == "rejected"
    assert reason.startswith("gradient of module.norm.")
    assert module.norm.num_batches_tracked == 0
    assert torch.equal(module.norm.running_mean, torch.zeros(4))
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(module.norm.weight.grad, torch.full((4,), 7.0))
    assert module.norm.bias.grad is None


def test_the_file_is_a_configuration_that_reports_suggest(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path / "cache"))
    found = tuned(["quick", "wrong"])
    path = tmp_path / "executors.yaml"
    found.write(path)
    text = path.read_text()
    assert "# The executors of activations, chosen by `thunder tune`.\n" in text
    assert "takes 4 ms, with the default (PyTorch alone) 6 ms: 1.50 times as fast, median of 8" in text
    assert "executors:\n  # timed_executors.silu by quick: 6 -> 4 ms; 1 x (f32[3, 4])\n  - quick:\n" in text
    assert "#   wrong first: rejected: output 0 differs by" in text
    assert f"torch {torch.__version__}" in text
    assert "thunder-plugin-timed 1.2" in text
    compiled = thunder.jit(activations, config=str(path))
    torch.testing.assert_close(compiled(X), activations(X))
    assert thunder.explain(compiled).entries[0].executors == {"quick": 1, "reference": 2}
    default = thunder.jit(activations)
    default(X)
    lines = str(thunder.explain(default)).splitlines()
    assert lines[-2] == "suggestion: thunder tune measured 1.50 x the speed, 6 ms to 4 ms a call:"
    assert lines[-1] == f"  thunder.jit(model, config={str(path)!r})"
    assert "thunder tune" not in str(thunder.explain(compiled))
    path.unlink()
    assert "thunder tune" not in str(thunder.explain(default))


@pytest.mark.parametrize("base", ["thunder:exact", {"recompile_limit": 3}, "base.yaml"])
def test_the_file_has_the_rest_of_the_configuration(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text("recompile_limit: 3\ntune: 60\n")
    Path("out").mkdir()
    found = tuned(["quick"], config=base)
    found.write("out/executors.yaml")
    assert resolve_config("out/executors.yaml") == resolve_config(base, executors=list(found.executors), tune=False)
    assert found.config == resolve_config("out/executors.yaml")


def test_a_compiled_program_is_tuned_with_its_configuration(clock: VirtualClock) -> None:
    compiled = thunder.jit(activations, recompile_limit=3)
    found = tuned(["quick"], compiled)
    assert found.config.recompile_limit == 3
    assert plain(found) == [{"quick": {"include": ["timed_executors.silu"]}}]


def different(x: torch.Tensor) -> torch.Tensor:
    CLOCK.calls = getattr(CLOCK, "calls", 0) + 1  # type: ignore[attr-defined]
    return x + CLOCK.calls  # type: ignore[attr-defined]


def integers(x: torch.Tensor) -> torch.Tensor:
    return x.long()


def eager(x: torch.Tensor) -> torch.Tensor:
    torch.compiler.set_stance("default")
    return x


ERRORS: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "not deterministic": (different, {}, ThunderError, "the same inputs and random state have other results"),
    "no gradient": (
        Network().requires_grad_(False),
        {"train": True},
        ThunderError,
        "no output of the program requires",
    ),
    "not compiled": (eager, {}, ThunderError, "was not compiled for later calls: "),
    "no program": (3, {}, OptionError, "takes a function or an nn.Module"),
    "limit": (activations, {"limit": 0}, OptionError, "must be positive"),
    "unknown executor": (activations, {"executors": ["quik"]}, OptionError, "did you mean 'quick'"),
    "no executor": (activations, {"executors": []}, PluginError, "there is nothing to choose"),
    "fails": (lambda x: x @ x, {}, RuntimeError, "mat1 and mat2"),
}


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.parametrize("case", ERRORS)
def test_errors(clock: VirtualClock, case: str) -> None:
    program, options, kind, text = ERRORS[case]
    with pytest.raises(kind, match=text):
        tune(program, (X,), clock=CLOCK, **{"executors": ["quick"]} | options)


def test_an_executor_that_is_an_object_is_refused(clock: VirtualClock) -> None:
    with pytest.raises(OptionError, match="'quick' is a Python object"):
        tuned(["idle"], config={"executors": [EXECUTORS["quick"]]})


class Scaled(torch.nn.Module):
    """It takes 6 ms, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(2.0))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return activations(x) * self.scale


@pytest.fixture
def measured_first_calls(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that are tuned at their first call are measured with the virtual clock, and two executors installed."""
    monkeypatch.setenv("THUNDER_PLUGINS", "core,tuning,debug,idle,fuser")
    monkeypatch.setattr("thunder_plugin_tuning.tuning.Clock", lambda: CLOCK)
    monkeypatch.setattr("thunder_plugin_tuning.tuning.clock_for", lambda tensors: CLOCK)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.slow
def test_a_module_is_tuned_at_its_first_call(measured_first_calls: None, train: bool) -> None:
    module, eager = Scaled(), Scaled()
    module.scale.grad = torch.tensor(1.0)
    compiled = thunder.jit(module, tune=30, executors=["idle"])
    x = (X * 1).requires_grad_() if train else X
    y = x * 1
    with torch.set_grad_enabled(train):
        result = compiled(y)
    torch.testing.assert_close(result, eager(x))
    assert module.calls == 1
    assert module.scale.grad == 1
    if train:
        result.sum().backward()
        eager(x.detach()).sum().backward()
        torch.testing.assert_close(module.scale.grad - 1, eager.scale.grad)
    else:
        assert "fuser" in thunder.explain(compiled).entries[0].executors
    assert thunder.explain(compiled).options["tune"] is False
    with torch.set_grad_enabled(train):
        compiled(y)
    assert module.calls == 2
    assert thunder.cache_misses(compiled) == 1


def test_a_program_that_cannot_be_tuned_runs_with_the_default(measured_first_calls: None) -> None:
    class Different(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return different(x)

    compiled = thunder.jit(Different(), tune=True)
    with pytest.warns(ExecutorWarning, match="the executors of .*Different are not tuned: two calls of"):
        compiled(X)
    compiled(X)


def test_functions_and_hooks_are_refused(measured_first_calls: None) -> None:
    with pytest.raises(OptionError, match="tune measures modules, and activations is a function"):
        thunder.jit(activations, tune=True)
    with pytest.raises(OptionError, match="must be true, false or a positive number of seconds, not the number -1"):
        thunder.jit(Scaled(), tune=-1)
    module = Scaled()
    module.scale.register_post_accumulate_grad_hook(lambda parameter: None)
    with pytest.raises(OptionError, match="backward would call the hooks of the parameter 'scale' many times"):
        tuned(["quick"], module, train=True)
