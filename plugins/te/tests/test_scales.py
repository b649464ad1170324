"""The recipe of delayed scaling: histories, their order, state dicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock, patch

import pytest
import torch
from te_layers import Checkpointed, Gated, Plain, compiled, error, step, values
from torch import nn

from thunder_plugin_te.options import TeOptions
from thunder_plugin_te.scales import LayerScales

pytestmark = pytest.mark.usefixtures("calls")
PREFIX = "executor_states.te.module_"


def delayed(module: nn.Module, **options: Any) -> Any:
    return compiled(module, "delayed", **{"amax_history": 4, **options})


def histories(program: Any, layer: str = "gate_weight") -> tuple[torch.Tensor, torch.Tensor]:
    """Those of forward and backward."""
    state = program.state_dict()
    return state[f"{PREFIX}{layer}.forward_amax_history"], state[f"{PREFIX}{layer}.backward_amax_history"]


def test_the_history_advances_once_in_each_step() -> None:
    module = Gated()
    program = delayed(module)
    largest = []
    for number in range(3):
        x = values(2, 16, 32, seed=number, grad=True)
        step(program, module, x)
        largest.append(float(x.detach().abs().max()))
    forward, backward = histories(program)
    assert forward[:, 0].tolist() == [0, *largest]
    assert forward[1:, 1].tolist() == [float(module.gate.weight.detach().abs().max())] * 3
    assert (backward[1:] > 0).all()
    assert backward[0] == 0


@pytest.mark.parametrize("region", [Checkpointed, Plain])
def test_also_in_checkpoints(region: type[Plain]) -> None:
    module = region(Gated())
    program = delayed(module)
    for _ in range(2):
        step(program, module, values(2, 16, 32, grad=True))
    for history in histories(program, "inner_gate_weight"):
        assert (history > 0).any(1).tolist() == [False, False, True, True]


def test_accumulated_gradients_are_steps_of_their_own_and_passes_together_are_one(calls: list[str]) -> None:
    module = Gated()
    program = delayed(module)
    batches = [values(2, 16, 32, seed=number, grad=True) for number in range(2)]
    for x in batches:
        program(x).float().square().sum().backward()
    assert calls.count("update 3") == 4
    sum(program(x).float().square().sum() for x in batches).backward()  # type: ignore[union-attr]
    assert calls.count("update 3") == 6
    forward, backward = histories(program)
    assert forward[1:, 0].tolist() == [
        *[float(x.detach().abs().max()) for x in batches],
        max(float(x.detach().abs().max()) for x in batches),
    ]
    assert (backward[1:] > 0).all()


def test_scales_are_renewed_after_the_last_product(calls: list[str]) -> None:
    module = Gated()
    program = delayed(module)
    for _ in range(2):
        calls.clear()
        step(program, module, values(2, 16, 32, grad=True))
        assert calls[-2:] == ["update 3", "update 3"]
        assert calls.count("update 3") == 2


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_each_backward_of_several_forwards_counts(order: list[int], calls: list[str]) -> None:
    module = Gated()
    program = delayed(module)
    losses = [program(values(2, 16, 32, seed=seed, grad=True)).float().square().sum() for seed in range(2)]
    for number in order:
        losses[number].backward()
    assert calls.count("update 3") == 4


def test_backward_renews_scales_after_a_forward_that_is_a_graph(calls: list[str]) -> None:
    """A replay calls no layer, so only the order of the capture is known."""
    module = Gated()
    program = delayed(module)
    step(program, module, values(2, 16, 32, grad=True))
    with patch.object(LayerScales, "begin"):
        step(program, module, values(2, 16, 32, grad=True))
    assert calls.count("update 3") == 4


def test_the_first_scales_are_not_made_by_a_graph() -> None:
    state = LayerScales("site", TeOptions(recipe="delayed"), "e5m2")
    matrix = Mock(is_cuda=True)
    with (
        patch.object(torch.cuda, "is_current_stream_capturing", lambda: True),
        pytest.raises(RuntimeError, match="created by a call outside of CUDA graphs"),
    ):
        state.forward.quantize(0, matrix, False)
    assert state.state_dict() == {}


@pytest.mark.parametrize(("options", "factor"), [({}, 1), ({"margin": 2}, 4)])
def test_scales_are_of_the_largest_value_of_the_history(options: dict[str, Any], factor: int) -> None:
    module = Gated()
    program = delayed(module, **options)
    for size in (3.0, 1.0):
        step(program, module, (values(2, 16, 32) * size).requires_grad_())
    largest = float((values(2, 16, 32) * 3.0).abs().max())
    scale = program.state_dict()[f"{PREFIX}gate_weight.forward_scale"]
    torch.testing.assert_close(float(scale[0]), 448 / largest / factor, rtol=1e-5, atol=0)


def test_the_first_step_has_scales_of_its_own() -> None:
    """With a scale of 1, these gradients would all be zero."""
    layer, x = nn.Linear(32, 48, bias=False, dtype=torch.bfloat16), values(16, 32, grad=True)
    program = delayed(layer)
    (program(x).float().sum() * 1e-7).backward()
    found, x.grad = x.grad, None
    (layer(x).float().sum() * 1e-7).backward()
    assert found is not None
    assert x.grad is not None
    assert error(found, x.grad) < 0.1


def test_inference_notes_nothing() -> None:
    module, x = Gated(), values(2, 16, 32, grad=True)
    program = delayed(module)
    step(program, module, x)
    before = [history.clone() for history in histories(program)]
    with torch.no_grad():
        program(x * 100)
    assert all(map(torch.equal, histories(program), before))


def test_layers_without_backward_keep_their_scales() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Gated(), Gated()

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.first(x), self.second(y)

    module, x = Two(), values(2, 16, 32, grad=True)
    program = delayed(module)
    program(x, x)[0].float().sum().backward()
    state = program.state_dict()
    assert f"{PREFIX}first_gate_weight.backward_scale" in state
    assert f"{PREFIX}second_gate_weight.backward_scale" not in state
    for _ in range(2):
        sum(y.float().sum() for y in program(x, x)).backward()  # type: ignore[union-attr]
    assert (histories(program, "second_gate_weight")[1] > 0).sum() == 2


def test_layers_that_are_called_twice_have_two_states() -> None:
    layer = nn.Linear(32, 32, bias=False, dtype=torch.bfloat16)
    program = delayed(nn.Sequential(layer, nn.SiLU(), layer))
    program(values(16, 32, grad=True)).float().sum().backward()
    own = {name.rpartition(".")[0] for name in program.state_dict() if name.startswith("executor_states")}
    assert own == {f"{PREFIX}0_weight", f"{PREFIX}0_weight #2"}


@pytest.mark.parametrize("called_before", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_state_dicts(inside: bool, called_before: bool, tmp_path: Any) -> None:
    """A program goes on as the one whose state it loaded, wherever it stands."""
    module = Gated()
    program = delayed(module)
    holder = nn.ModuleDict({"model": program}) if inside else program
    for number in range(2):
        step(program, module, (values(2, 16, 32, seed=number) * 3).requires_grad_())
    torch.save(holder.state_dict(), tmp_path / "state.pt")
    x = values(2, 16, 32, seed=5, grad=True)
    expected = step(program, module, x)

    fresh = Gated()
    other = delayed(fresh)
    if called_before:
        step(other, fresh, values(2, 16, 32, seed=9, grad=True))
    saved = torch.load(tmp_path / "state.pt")
    loading = nn.ModuleDict({"model": other}) if inside else other
    assert str(loading.load_state_dict(saved)) == "<All keys matched successfully>"
    assert loading.state_dict().keys() == saved.keys()
    assert all(map(torch.equal, step(other, fresh, x), expected))
    assert all(map(torch.equal, histories(other), histories(program)))


def test_what_strict_loading_says() -> None:
    module = Gated()
    program = delayed(module)
    step(program, module, values(2, 16, 32, grad=True))
    state = program.state_dict()
    plain = {name: value for name, value in state.items() if not name.startswith("executor_states")}
    delayed(Gated()).load_state_dict(plain)  # a model from before eight bits
    with pytest.raises(RuntimeError, match="Unexpected key"):
        Gated().load_state_dict(state)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        program.load_state_dict({**plain, "executor_states.other.x.y": torch.ones(1)})
    other = delayed(Gated(), amax_history=7)
    other.load_state_dict(state)
    with pytest.raises(ValueError, match="has 4 steps of history, and amax_history is 7: set it to 4"):
        other(values(2, 16, 32, grad=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda name, value: None if name.endswith(".forward_scale") else value, "has no scale; it has amax_history"),
        (lambda name, value: None if name.endswith("amax_history") else value, "has no amax_history; it has scale"),
        (lambda name, value: value[:, :1] if value.shape == (4, 2) else value, r"has the shape \(4, 1\), not \(4, 2\)"),
        (lambda name, value: value[:1] if value.shape == (2,) else value, r"has the shape \(1,\), not \(2,\)"),
    ],
)
def test_parts_of_a_state_are_not_taken(change: Callable[[str, Any], Any], message: str) -> None:
    module = Gated()
    program = delayed(module)
    step(program, module, values(2, 16, 32, grad=True))
    entries = {name: change(name, value) for name, value in program.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        program.load_state_dict({name: value for name, value in entries.items() if value is not None})


def test_states_go_to_the_device_of_their_layer() -> None:
    state = LayerScales("site", TeOptions(recipe="delayed", amax_history=2), "e5m2")
    state.joins([state])
    state.forward.load_state_dict({"scale": torch.ones(2), "amax_history": torch.ones(2, 2)}, "it")
    state.begin(torch.device("meta"))
    assert state.forward.scale is not None
    assert state.forward.scale.device.type == "meta"
