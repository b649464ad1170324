"""`thunder diff`: of two reports and of two files of saved programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from explored_programs import Activations
from torch.nn import functional as F

import thunder
from thunder_core.errors import OptionError
from thunder_plugin_explorer.difference import differences


def program(x: torch.Tensor) -> torch.Tensor:
    return F.silu(x) * 2


def report_of(path: Path, **options: object) -> Path:
    compiled = thunder.jit(program, **options)
    x = torch.ones(3)
    torch.testing.assert_close(compiled(x), program(x))
    path.write_text(thunder.explain(compiled).to_json())
    return path


def test_reports_differ_in_decisions_kernels_and_options(tmp_path):
    first = report_of(tmp_path / "a.json", executors=[])
    second = report_of(tmp_path / "b.json", executors=[Activations()])
    changes = {(change.subject, change.name): (change.before, change.after) for change in differences(first, second)}
    assert changes["decisions", "inference: torch.nn.functional.silu by reference"] == ("1 x", "0 x")
    assert changes["decisions", "inference: torch.nn.functional.silu by activations"] == ("0 x", "1 x")
    name = "inference: torch.mul by reference; not activations: it is no activation"
    assert changes["decisions", name] == ("0 x", "1 x")
    assert [key for key in changes if key[0] == "kernels"]
    assert ("options", "executors") in changes


def test_equal_reports_have_no_differences_and_a_report_in_the_output_of_explain_is_found(tmp_path):
    first = report_of(tmp_path / "a.json", executors=[])
    wrapped = tmp_path / "b.json"
    wrapped.write_text(json.dumps({"program": "p", "report": json.loads(first.read_text())}))
    assert differences(first, wrapped) == []


def test_saved_programs_differ_in_lines_of_source(tmp_path):
    paths = []
    for number, function in enumerate((lambda x: x.exp() + 1, lambda x: x.exp() + 2)):
        compiled = thunder.jit(function, executors=[])
        compiled(torch.ones(3))
        paths.append(tmp_path / f"{number}.thunder")
        thunder.save(compiled, paths[-1])
    source = [change for change in differences(*paths) if change.subject == "source"]
    assert [(c.before, c.after) for c in source if "torch.add" in c.before + c.after] == [
        ("t1 = torch.add(t0, 1)  # f32[3]", ""),
        ("", "t1 = torch.add(t0, 2)  # f32[3]"),
    ]
    assert differences(paths[0], paths[0]) == []
    with pytest.raises(OptionError, match="a report and a file of saved programs"):
        differences(paths[0], report_of(tmp_path / "a.json"))


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "a.json"
    for content in ("{", "[]", '{"report": {}}'):
        path.write_text(content)
        with pytest.raises(OptionError, match="is no report"):
            differences(path, path)
