"""`print(thunder.explain(model))`: at most 20 lines of 80 columns for any program, and sections by name."""

import json
import pickle
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder.report.summary import SECTIONS
from thunder_core.errors import UncacheableWarning
from thunder_core.executors import Claim, OperatorExecutor
from thunder_core.settings import PresetChoice


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


class Router(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.where(x.sum(-1) > 0)[0]
        result = torch.zeros_like(x)
        result[rows] = x[rows] * 2
        return result


def never_called() -> Any:
    return thunder.jit(mlp())


def trained() -> Any:
    compiled = thunder.jit(mlp())
    compiled(torch.randn(3, 8)).sum().backward()
    return compiled


def step() -> Any:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = thunder.jit(step)
    for _ in range(3):
        compiled(torch.randn(3, 8))
    return compiled


def recompiled() -> Any:
    compiled = thunder.jit(lambda x, mode: x * len(mode))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", thunder.RecompileWarning)
        for mode in "abcdefgh":
            compiled(torch.ones(3), f"{mode}\n" * 100)
    return compiled


def eager_in_parts() -> Any:
    compiled = thunder.jit(nn.Sequential(nn.Linear(4, 4), Router(), nn.ReLU()))
    compiled(torch.randn(3, 4)).sum().backward()
    return compiled


def declined() -> Any:
    never = OperatorExecutor("mine", (Claim(nn.functional.gelu, nn.functional.gelu, lambda *arguments: "never"),))
    compiled = thunder.jit(mlp(), executors=[never])
    compiled(torch.randn(3, 8))
    return compiled


def run_by_eager() -> Any:
    compiled = thunder.jit(lambda x: torch.compiler.set_stance("default") or x + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncacheableWarning)
        for _ in range(3):
            compiled(torch.ones(3))
    return compiled


CASES: dict[Any, list[str]] = {
    never_called: ["has not been compiled yet: call it once"],
    trained: ["reference", "100%", "saved for backward: 2 values (384 bytes), 2 inputs", 'executors=["inductor"]'],
    step: ["2 programs; 1 call from the cache, 2 compiled", "program 1: "],
    recompiled: ["programs 0 to 2: .programs", "mode caused 7 of 8 compilations", "..."],
    eager_in_parts: ["1 call of submodules run in eager PyTorch"],
    declined: ["mine declined torch.nn.functional.gelu: never"],
    run_by_eager: ["run by eager PyTorch 3 times: the program calls", "nothing is compiled"],
}


@pytest.mark.parametrize("create", CASES, ids=lambda create: create.__name__)
@pytest.mark.slow
def test_at_most_20_lines_of_80_columns(create: Any) -> None:
    report = thunder.explain(create())
    lines = str(report).splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 80
    for text in CASES[create]:
        assert text in " ".join(map(str.strip, lines)), text
    assert repr(report) == str(report)


def test_many_of_everything() -> None:
    report = thunder.explain(recompiled())
    op = report.decisions[0]
    many = [replace(op, executor=f"executor_{number}", declined=(("a", "why " * 90),)) for number in range(50)]
    entry = replace(report.entries[-1], decisions=tuple(many), as_recorded="so " * 50, regions=None)
    left_out = tuple([(f"part_{number}", f"reason {number} " * 20) for number in range(9)])
    fallbacks = {f"reason {number}\n" * 20: number for number in range(9)}
    report = replace(report, entries=(*report.entries, entry), left_out=left_out, fallbacks=fallbacks)
    lines = str(report).splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 80
    assert any(line.split() == ["47", "others", "47", "94%", "94%"] for line in lines)


def test_sections_are_data_and_text() -> None:
    report = thunder.explain(trained())
    assert [op.symbol for op in report.decisions if op.phase == "forward"].count("torch.nn.functional.linear") == 2
    assert "forward   2 x torch.nn.functional.linear" in str(report.decisions)
    assert f"{len(report.guards)} guards\n  module: type torch.nn.modules.container.Sequential\n" in str(report.guards)
    assert str(report.programs).endswith("because it is the first call")
    assert "AssignExecutors" in str(report.stages)
    assert str(report.regions) == "regions: none"
    assert set(SECTIONS) <= set(dir(report))
    for name in SECTIONS:
        section = getattr(report, name)
        assert repr(section) == str(section)
        assert str(pickle.loads(pickle.dumps(section))) == str(section)
    assert str(report.guards).splitlines()[1].strip() in str(report.programs[0])
    json.loads(report.to_json())
    assert str(thunder.explain(never_called()).guards) == "nothing is compiled"


def test_a_wrapper_of_a_compiled_module_says_where_it_is() -> None:
    class Wrapper(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

    with pytest.raises(thunder.OptionError, match=r"pass the compiled module inside of it: \.module$"):
        thunder.explain(Wrapper(never_called()))
    with pytest.raises(thunder.OptionError, match=r"pass the result of thunder\.jit"):
        thunder.explain(mlp())


def test_a_compiled_function_prints_its_name() -> None:
    assert "thunder.jit(relu)" in repr(thunder.jit(torch.nn.functional.relu))
    assert "thunder.jit(tanh)" in repr(thunder.jit(torch.tanh))  # a static method of a private class


def test_the_suggestion_is_last_and_has_a_number_only_where_it_was_measured() -> None:
    report = thunder.explain(trained())
    missing = PresetChoice("cuda", "cuda", ("sdpa",), (("inductor", "it is absent"),))
    report = replace(report, entries=(replace(report.entries[-1], preset=missing),))
    suggestion = "suggestion: inductor is not used, because it is absent"
    assert str(report).splitlines()[-1] == suggestion
    timed = replace(report, measured={"reference": 3.0, "sdpa": 1.0})
    assert " ".join(map(str.strip, str(timed).splitlines())).endswith(
        f"{suggestion}; PyTorch's functions take 75% of the time of operations"
    )


def test_time_is_shown_where_it_is_measured() -> None:
    pytest.importorskip("thunder_plugin_debug")
    compiled = thunder.jit(mlp(), transforms=[{"line_timing": {"report": "none"}}])
    compiled(torch.randn(3, 8))
    report = thunder.explain(compiled)
    assert report.measured["reference"] > 0
    title, row = (line.split() for line in str(report).splitlines() if line.startswith(("  executor ", "  reference ")))
    assert (title[-1], row[-1]) == ("time", "100%")
