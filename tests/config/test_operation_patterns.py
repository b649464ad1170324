"""Patterns that match no operation are problems; those that match none of a program are shown by explain."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import thunder
import thunder_plugin_composites as composites
from thunder.command_line.main import main
from thunder.config import check_config
from thunder.report.compile_report import CompileReport
from thunder_core.executors import Claim, OperatorExecutor
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.executors.executor import Executor
from thunder_core.ir.symbol import Tag
from thunder_core.symbols import operation_names
from thunder_core.symbols.registry import Registry, registry
from thunder_core.symbols.row import row

SWIGLU = registry.symbol_of(composites.swiglu).name


def told(*patterns: str, option: str = "exclude") -> list[str]:
    """The problems of a configuration with these patterns."""
    return [str(problem) for problem in check_config({"executors": [{"reference": {option: list(patterns)}}]})]


def test_check_tells_file_line_place_and_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.yaml").write_text(
        "executors:\n"
        "- fast:\n"
        "    include:\n"
        "    - torch.nn.functional.*\n"
        "    - torch.nn.functionl.*\n"
        "    exclude: ['*softmax*', '*sofmax*']\n"
    )
    assert main(["config", "check", "c.yaml"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "c.yaml:5: executors[0].fast.include[1]: the pattern 'torch.nn.functionl.*' matches no operation; "
        "did you mean 'torch.nn.functional.*'?",
        "c.yaml:6: executors[0].fast.exclude[1]: the pattern '*sofmax*' matches no operation; "
        "did you mean '*softmax*'?",
    ]
    assert main(["config", "check", "c.yaml", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["problems"]
    assert [(one["line"], one["place"]) for one in found] == [
        (5, "executors[0].fast.include[1]"),
        (6, "executors[0].fast.exclude[1]"),
    ]


def test_jit_warns_in_the_same_words_once_at_the_users_line() -> None:
    Path("c.yaml").write_text("executors:\n- fast: {exclude: ['*softmax*', '*sofmax*']}\n")
    (problem,) = check_config("c.yaml")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            compiled = thunder.jit(lambda x: torch.softmax(x, -1), config="c.yaml")
            compiled(torch.ones(3))
    (warning,) = caught
    assert warning.category is thunder.ConfigWarning
    assert warning.filename == __file__
    assert str(warning.message).splitlines()[0] == str(problem)
    assert str(problem).startswith("c.yaml:2: executors[0].fast.exclude[1]: ")


def test_executors_from_python_too() -> None:
    given = ConfiguredExecutor(OperatorExecutor("own", ()), include=("*sofmax*",))
    with pytest.warns(thunder.ConfigWarning, match=r"executors\[0\]\.own\.include\[0\]: the pattern '\*sofmax\*'"):
        thunder.jit(torch.sin, executors=[given])


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("sofmax", "softmax"),
        ("Relu", "relu"),
        ("F.silu", "nn.functional.silu"),
        ("tourch.relu", "torch.relu"),
        ("torch.nn.Linear", "torch.nn.functional.linear"),
        ("torch.nn.functional.scaled_dot_product_atention", "torch.nn.functional.scaled_dot_product_attention"),
        ("thunder_plugin_composites.swigglu", SWIGLU),
        ("thunder_core.symbols.composites.swiglu", SWIGLU),
        ("torch.*.sofmax", "torch.*.softmax"),
        ("*.matmull", "*.matmul"),
        ("*rms_nrm*", "*rms_norm*"),
        ("torch.ops.aten.threshold_backwrd", "torch.ops.aten.threshold_backward"),
    ],
)
@pytest.mark.slow
def test_the_nearest_name(pattern: str, meant: str) -> None:
    (problem,) = told(pattern)
    assert problem.endswith(f"the pattern {pattern!r} matches no operation; did you mean {meant!r}?")
    assert told(meant) == []


def test_without_a_near_name() -> None:
    assert told("", "xyzzyplugh", option="include") == [
        "executors[0].reference.include[0]: the pattern '' matches no operation",
        "executors[0].reference.include[1]: the pattern 'xyzzyplugh' matches no operation",
    ]


@pytest.mark.slow
def test_every_name_in_the_tables_is_accepted() -> None:
    rows = registry.catalogue.rows
    entries = [entry.spelling.name for entry in registry.catalogue.spellings.values()]
    assert told(*dict.fromkeys([name for name, _ in rows] + entries)) == []


@pytest.mark.parametrize(
    "pattern",
    [
        *("*", "*norm*", "torch.special.*", "relu_", "torch.relu_", "__add__", "T", "getitem", "*[ab]dd"),
        *("torch.functional.einsum", "torch.cond", "torch.Tensor.erfinv_", "torch.linalg.lu_solve", "*swiglu"),
        *("torch.ops.aten.add", "torch.ops.aten.add.Tensor", "torch.ops.aten.relu.default", "ops.aten.*_backward"),
        *("torch.ops.a_library_that_is_not_imported.*", "torch.ops.*kernel*", "json.a_function", "json.tool.main"),
        *("json.JSONDecoder.decode", "wsgiref.nowhere.f", "thunder_core.symbols.checks.check_true"),
        *("torch.distributed.all_reduce", "torch.utils.checkpoint.checkpoint"),
    ],
)
@pytest.mark.battery
def test_names_that_are_accepted(pattern: str) -> None:
    assert told(pattern) == []


def test_a_module_with_composites_has_no_other_operations_than_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told("tests.plugins.operations.no_function") == []
    fresh = Registry()
    fresh.extend([row("tests.plugins.operations.plain(x)", tags=(Tag.COMPOSITE,))])
    monkeypatch.setattr(operation_names, "registry", fresh)
    assert told("tests.plugins.operations.plain", "tests.plugins.operations.swish", "tests.plugins.o*") == []
    (problem,) = told("tests.plugins.operations.plan")
    assert "did you mean 'tests.plugins.operations.plain'?" in problem


def test_operators_of_a_library_once_it_is_imported() -> None:
    assert told("torch.ops.pattern_tests.doubled", "torch.ops.pattern_tests.tripled") == []

    @torch.library.custom_op("pattern_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    doubled.register_fake(torch.empty_like)
    assert told("torch.ops.pattern_tests.doubled", "torch.ops.pattern_tests.*", "*doubled*") == []
    (problem,) = told("torch.ops.pattern_tests.tripled")
    assert "matches no operation" in problem


def test_what_is_left_out_has_no_patterns() -> None:
    assert check_config({"executors": [{"vendor": {"optional": True, "exclude": ["*sofmax*"]}}]}) == []


def softmax(**options: Any) -> Executor:
    """An executor for one operation, with the options of configurations."""
    return ConfiguredExecutor(OperatorExecutor("own", (Claim(torch.softmax, run=torch.softmax),)), **options)


def explained(function: Any, *args: torch.Tensor, **options: Any) -> CompileReport:
    """The report of one call with `softmax`."""
    compiled = thunder.jit(function, executors=[softmax(**options)])
    torch.testing.assert_close(compiled(*args), function(*args))
    return thunder.explain(compiled)


@pytest.mark.battery
@pytest.mark.parametrize(
    "pattern",
    [
        *("torch.softmax", "softmax", "*softmax*", "torch.nn.functional.softmax", "nn.functional.softmax"),
        *("torch.Tensor.softmax", "Tensor.softmax", "torch.special.softmax"),
    ],
)
@pytest.mark.parametrize(
    "function", [lambda x: torch.softmax(x, -1), lambda x: F.softmax(x, -1), lambda x: x.softmax(-1)]
)
def test_a_pattern_for_any_spelling_excludes_and_explain_says_which(function: Any, pattern: str) -> None:
    report = explained(function, torch.randn(3), exclude=("torch.sinh", pattern))
    (line,) = report.decisions
    assert (line.executor, line.declined) == ("reference", (("own", f"the configuration excludes {pattern!r}"),))
    assert report.entries[0].notes == ("exclude of own: the pattern 'torch.sinh' matches no operation of this program",)
    assert f"not own: the configuration excludes {pattern!r}" in str(report.decisions)
    (line,) = explained(function, torch.randn(3), include=(pattern,)).decisions
    assert (line.executor, line.declined) == ("own", ())


def test_what_is_not_included() -> None:
    report = explained(lambda x: torch.softmax(x, -1) + 1, torch.randn(3), include=("torch.add", "*sinh"))
    softmaxed, added = report.decisions
    assert softmaxed.declined == (("own", "the configuration includes only 'torch.add', '*sinh'"),)
    assert added.declined == ()  # the executor has nothing for it, whatever is included
    assert report.entries[0].notes == ("include of own: the pattern '*sinh' matches no operation of this program",)


def test_what_a_pattern_excludes_is_no_decline() -> None:
    report = explained(lambda x: torch.softmax(x, -1), torch.randn(3), exclude=("softmax",), on_decline="error")
    assert report.decisions[0].executor == "reference"


def test_patterns_for_ops_of_backward_of_regions_and_in_place_calls_are_in_the_program() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(torch.erf, x, use_reentrant=False).relu_().softmax(-1)

    x = torch.randn(4, requires_grad=True)
    first = explained(program, x)
    backward = {line.symbol for line in first.decisions if line.phase == "backward"}
    assert backward
    names = (*backward, "torch.erf", "relu_", "torch.utils.checkpoint.checkpoint", "*softmax")
    assert explained(program, x, exclude=names).entries[0].notes == ()


def test_patterns_for_conditionals_and_their_branches_are_in_the_program() -> None:
    excluding = softmax(exclude=("torch.cond", "torch.sinh", "torch.cosh", "torch.tanh"))
    compiled = thunder.jit(
        lambda x: torch.cond(x.sum() > 0, lambda y: y.sinh(), lambda y: y.cosh(), (x,)), executors=[excluding]
    )
    torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).sinh())
    assert thunder.explain(compiled).entries[0].notes == (
        "exclude of own: the pattern 'torch.tanh' matches no operation of this program",
    )


def test_the_command_explains_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.yaml").write_text("executors: [{fast: {exclude: ['*softmax*', 'torch.sin']}}]\n")
    Path("program.py").write_text("import torch\n\ndef f(x):\n    return x.sin()\n\ninputs = (torch.ones(2),)\n")
    assert main(["explain", "program.py:f", "--notes", "--config", "c.yaml"]) == 0
    printed = capsys.readouterr().out
    assert "exclude of fast: the pattern '*softmax*' matches no operation of this program" in printed
    assert "'torch.sin'" not in printed
