"""Executors by the device of a program, where none are named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import thunder
from thunder.config import resolve_config, settings_of, to_yaml
from thunder_core.errors import PluginError
from thunder_core.ir.proxy import TensorProxy
from thunder_core.plugins.host import host
from thunder_core.plugins.specs import Preset
from thunder_core.runtime import compile
from thunder_core.runtime.compile import device_of


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def trace_on(device: str, *others: str) -> Any:
    """A trace whose inputs are on these devices."""
    compiled = thunder.jit(lambda *inputs: torch.stack(inputs))
    compiled(*[torch.ones(2) for _ in (device, *others)])
    trace = thunder.last_traces(compiled)[0]
    tensors = [proxy for proxy in trace.inputs if isinstance(proxy, TensorProxy)]
    devices = [torch.device(name) for name in (device, *others)]
    assert len(tensors) == len(devices)
    return replace(trace, inputs=tuple(map(lambda p, d: replace(p, device=d), tensors, devices)))


def test_the_executors_of_the_device_that_can_be_used_are_taken() -> None:
    settings, preset = settings_of(sharp_edges="allow").for_device("npu")
    assert preset is not None
    assert preset.preset == "npu"
    assert [executor.name for executor in settings.executors] == ["fast"]
    assert [name for name, _ in settings.left_out] == ["nowhere"]
    assert settings.sharp_edges == "allow"
    assert settings.transforms == settings_of().transforms, "nothing but its executors"


def test_named_executors_stay_also_none() -> None:
    for given in ({"executors": []}, {"config": "fused"}, {"config": {"executors": ["slow"]}}):
        settings = settings_of(**given)  # type: ignore[arg-type]
        assert settings.for_device("npu") == (settings, None)


def test_a_device_without_a_preset_leaves_all_to_pytorch() -> None:
    settings = settings_of()
    assert settings.for_device("abacus") == (settings, None)


def test_two_presets_for_a_device_are_an_error() -> None:
    with pytest.raises(PluginError, match=r"nvfuser\.one and nvfuser\.two are both for the device claimed_twice"):
        settings_of().for_device("claimed_twice")


def test_each_of_the_cores_presets_names_optional_executors_only() -> None:
    host().load_all()
    presets = [offered.spec for offered in host().offered(Preset) if offered.spec.device in ("cpu", "cuda")]
    assert {preset.name: preset.device for preset in presets} == {"cpu": "cpu", "cuda": "cuda"}
    for preset in presets:
        assert all(entry.options["optional"] is True for entry in resolve_config(preset.name).executors or ())
        settings, choice = settings_of().for_device(preset.device)
        assert choice is not None
        assert choice.preset == preset.name
        named = [entry.name for entry in settings_of(preset.name).config.executors or ()]
        assert sorted([*(e.name for e in settings.executors), *(n for n, _ in settings.left_out)]) == sorted(named)


def test_a_complete_configuration_still_leaves_them_to_the_device() -> None:
    assert resolve_config().executors is None
    assert "executors" not in to_yaml(resolve_config())
    assert "executors: []" in to_yaml(resolve_config(executors=[]))


def test_a_program_runs_where_its_first_tensor_on_an_accelerator_is() -> None:
    assert device_of(trace_on("cpu", "cuda")) == "cuda"
    assert device_of(trace_on("meta", "cpu")) == "cpu"
    assert device_of(trace_on("xpu", "cuda")) == "xpu"


def test_a_program_that_makes_its_tensors_on_a_device_runs_there() -> None:
    compiled = thunder.jit(lambda: torch.ones(2, device="meta"))
    compiled()
    trace = thunder.last_traces(compiled)[0]
    lines = [replace(line, output=replace(line.output, device=torch.device("cuda"))) for line in trace.symbols]
    assert device_of(trace.with_symbols(lines, "test")) == "cuda"


def test_the_report_says_which_preset_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = thunder.jit(double)
    compiled(torch.ones(2))
    report = thunder.explain(compiled)
    assert "options: defaults" in str(report)
    assert "executors of the preset 'cpu', chosen for the device cpu: PyTorch alone" in str(report)
    monkeypatch.setattr(compile, "device_of", lambda trace: "npu")
    chosen = thunder.jit(double)
    assert torch.equal(chosen(torch.ones(2)), torch.full((2,), 2.0))
    (entry,) = thunder.explain(chosen).entries
    assert entry.preset is not None
    assert (entry.preset.preset, entry.preset.executors) == ("npu", ("fast",))
    assert "without nowhere, because there is no executor 'nowhere'" in str(thunder.explain(chosen).decisions)
    named = thunder.jit(double, executors=["slow"])
    named(torch.ones(2))
    assert thunder.explain(named).entries[0].preset is None
