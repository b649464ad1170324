"""The page: what its data contain, that it is one file, and that no text of a program becomes markup."""

from __future__ import annotations

import copy
import json
import pickle
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from explored_programs import HOSTILE, Activations, Hostile, Layers

import thunder
from thunder_core.errors import OptionError, PluginError
from thunder_core.ir.storage_sizes import extent_bytes
from thunder_plugin_explorer import page as page_module
from thunder_testing import package_suite

test_package = package_suite(__file__)


def data_of(jitted: Any, path: Path) -> dict[str, Any]:
    thunder.explain(jitted).to_html(path)
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.fixture(scope="module")
def trained() -> Any:
    """A training step of two lengths, with regions; compared with eager.

    Programs with equal options share a transform that measures, so its options are those of no other test.
    """
    torch.manual_seed(0)
    model = Layers()
    compiled = thunder.jit(
        model, dynamic=False, executors=[Activations()], transforms=[{"line_timing": {"report": "none", "rows": 7}}]
    )
    for length in (3, 4):
        x = torch.randn(length, 8)
        expected = torch.autograd.grad(model(x).sum(), list(model.parameters()))
        torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), list(model.parameters())), expected)
    return compiled


def test_an_mlp_has_its_ops_with_their_lines_and_guards(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    compiled, x = thunder.jit(model, executors=[]), torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), model(x))
    with torch.no_grad():
        compiled(x)
    data = data_of(compiled, tmp_path / "out.html")
    assert data["programs"][0]["reason"] == "it is the first call"
    program = data["programs"][-1]
    assert list(program["final"]) == ["inference"]
    ops = [data["ops"][position] for position in program["final"]["inference"]["ops"]]
    assert [op[1] for op in ops] == ["torch.nn.functional.linear", "torch.relu", "torch.nn.functional.linear"]
    assert [data["locations"][op[3]][3] for op in ops] == ["0", "1", "2"]
    assert program["guards"] == list(thunder.explain(compiled).guards)
    assert program["prologue"] == str(thunder.last_prologue_traces(compiled)[0])
    assert program["traces"][0]["title"] == "acquisition"


@pytest.mark.slow
def test_a_training_step_has_regions_recompilations_saved_values_and_times(trained, tmp_path):
    report = thunder.explain(trained)
    data = data_of(trained, tmp_path / "out.html")
    assert [program["reason"] for program in data["programs"]] == list(report.miss_reasons)
    program = data["programs"][-1]
    ops = {phase: [data["ops"][op] for op in trace["ops"]] for phase, trace in program["final"].items()}
    regions = [op for op in ops["forward"] if op[2] == "activations"]
    assert regions
    assert all(data["codes"][op[7]].startswith("// kernel of") and op[6] for op in regions)
    backward = {name for op in ops["backward"] for name in op[5]}
    assert {name for name, _, _ in program["saved"]} <= backward
    assert (
        sum(size for _, size, is_input in program["saved"] if not is_input) >= report.entries[-1].training.saved_bytes
    )
    assert {row[0] for row in program["measured"]} == {"forward", "backward"}
    assert all(row[5] > 0 and row[6] > 0 for row in program["measured"])
    phases = [trace["phase"] for trace in program["traces"]]
    assert phases.index("joint") > 0
    assert phases[-1] == "backward"


@pytest.mark.slow
def test_declines_have_their_reasons(trained, tmp_path):
    program = data_of(trained, tmp_path / "out.html")["programs"][-1]
    declined = [each for row in program["decisions"] if "rms_norm" in row[1] for each in row[6]]
    assert ["activations", "its rows of <b>16</b> are too long"] in declined


def test_memory_counts_what_is_alive(tmp_path):
    def program(x: torch.Tensor) -> torch.Tensor:
        first = x.exp()
        second = first.sin()
        return (second + 1).sum()

    compiled = thunder.jit(program, executors=[])
    x = torch.randn(256)
    torch.testing.assert_close(compiled(x), program(x))
    memory = data_of(compiled, tmp_path / "out.html")["programs"][0]["memory"]
    size = extent_bytes(thunder.last_traces(compiled)[-1].inputs[0])
    assert memory["inputs"] == size == 1024
    assert memory["bytes"]["inference"] == [size, 2 * size, 2 * size, size + 4]
    assert (memory["peak"], memory["phase"], memory["index"]) == (2 * size, "inference", 1)
    assert [(holder["bytes"], holder["index"]) for holder in memory["holders"]] == [(size, 0), (size, 1)]


@pytest.mark.slow
def test_results_of_forward_are_alive_in_backward(trained, tmp_path):
    memory = data_of(trained, tmp_path / "out.html")["programs"][-1]["memory"]
    assert memory["bytes"]["backward"][0] >= memory["bytes"]["forward"][-1]
    assert memory["peak"] == max(max(points) for points in memory["bytes"].values())
    assert sum(holder["bytes"] for holder in memory["holders"]) == memory["peak"]


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.policy = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        assert not {"src", "href", "onerror"} & values.keys()
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = str(values["content"])


def test_no_text_of_a_program_becomes_markup(tmp_path):
    model = Hostile()
    compiled, x = thunder.jit(model, executors=[]), torch.randn(1, 2)
    torch.testing.assert_close(compiled(x), model(x))
    path = tmp_path / "out.html"
    data = data_of(compiled, path)
    assert any("</script>" in guard for guard in data["programs"][0]["guards"])
    assert any("<img src=x" in location[4] for location in data["locations"])
    assert any(HOSTILE.replace(".", "") in guard for guard in data["programs"][0]["guards"])
    elements = _Elements()
    elements.feed(path.read_text())
    assert elements.tags == [
        *["html", "head", "meta", "meta", "meta", "title", "style", "body", "header", "nav", "main", "noscript"],
        *["script", "script"],
    ]
    assert elements.policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "\u2028" not in path.read_text()


def test_older_programs_lose_their_stages_if_the_file_would_be_too_large(trained, tmp_path, monkeypatch):
    path = tmp_path / "out.html"
    data_of(trained, path)
    monkeypatch.setattr(page_module, "LARGEST", path.stat().st_size - 1)
    data = data_of(trained, path)
    assert [bool(program["traces"]) for program in data["programs"]] == [False, True]
    assert all(program["final"]["forward"]["ops"] for program in data["programs"])


def test_a_report_without_programs_or_a_copy_is_refused(tmp_path):
    compiled = thunder.jit(torch.nn.Linear(2, 2))
    with pytest.raises(OptionError, match="has no compiled program"):
        thunder.explain(compiled).to_html(tmp_path / "out.html")
    compiled(torch.ones(1, 2))
    report = thunder.explain(compiled)
    for other in (pickle.loads(pickle.dumps(report)), copy.deepcopy(report)):
        assert other == report
        with pytest.raises(OptionError, match="a copy of a report"):
            other.to_html(tmp_path / "out.html")
    with pytest.raises(OSError, match="No such file"):
        report.to_html(tmp_path / "absent" / "out.html")


def test_without_the_package_the_error_says_what_to_install(tmp_path, monkeypatch):
    compiled = thunder.jit(torch.nn.Linear(2, 2))
    compiled(torch.ones(1, 2))
    monkeypatch.setitem(sys.modules, "thunder_plugin_explorer.page", None)
    with pytest.raises(PluginError, match="thunder-plugin-explorer"):
        thunder.explain(compiled).to_html(tmp_path / "out.html")
