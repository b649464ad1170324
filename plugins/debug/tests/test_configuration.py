"""The transforms by name, as in a configuration. The package must be installed for this."""

from __future__ import annotations

import math
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder_core.executors import Executor
from thunder_plugin_debug import DivergenceError, NonFiniteError


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.log(F.gelu(x)).sum()


def test_by_name(wrong_gelu: Executor) -> None:
    compiled = thunder.jit(program, executors=[wrong_gelu], transforms=["bisect"])
    with pytest.raises(DivergenceError, match="wrong_gelu differs from the reference"):
        compiled(torch.ones(3))


def test_options(wrong_gelu: Executor) -> None:
    transforms = [{"bisect": {"atol": 0.1}}, {"debug.nan_finder": {"exclude": ["torch.log"]}}]
    compiled = thunder.jit(program, executors=[wrong_gelu], config={"transforms": transforms})
    assert compiled(-torch.ones(3)).isnan()


def test_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "debug.yaml"
    path.write_text("transforms:\n  - nan_finder:\n      inf: true\n")
    compiled = thunder.jit(program, config=path)
    with pytest.raises(NonFiniteError, match="infinity produced by torch"):
        compiled(torch.zeros(2))


def test_mistakes_are_shown_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "debug.yaml"
    path.write_text(
        "transforms:\n  - nan_finder:\n      action: stop\n  - bisect:\n      rtl: 1\n"
        "  - line_callbacks:\n      before_line: nowhere\n"
    )
    with pytest.raises(thunder.ThunderError) as raised:
        thunder.jit(program, config=path)
    text = str(raised.value)
    assert "debug.yaml:3: transforms[0].nan_finder.action" in text
    assert "debug.yaml:5: transforms[1].bisect.rtl: unknown option; did you mean 'rtol'?" in text
    assert "line_callbacks.before_line: must be package.module:function, not the text 'nowhere'" in text


@pytest.fixture
def user_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the user's with callbacks."""
    module: Any = types.ModuleType("user_callbacks")
    module.seen = []
    module.before = lambda line, args, kwargs: module.seen.append(("before", line.operation))
    module.inner = types.SimpleNamespace(
        after=lambda line, args, kwargs, result: module.seen.append(("after", line.operation))
    )
    monkeypatch.setitem(sys.modules, "user_callbacks", module)
    return module


def test_callbacks_by_their_import_paths(user_module: Any) -> None:
    options = {
        "before_line": "user_callbacks:before",
        "after_line": "user_callbacks:inner.after",
        "include": ["torch.log"],
    }
    compiled = thunder.jit(program, transforms=[{"line_callbacks": options}])
    compiled(torch.ones(3))
    assert user_module.seen == [("before", "torch.log"), ("after", "torch.log")]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "has no function"),
        (
            {"before_line": "user_callbacks:absent"},
            "cannot be imported: module 'user_callbacks' has no attribute 'absent'",
        ),
        ({"before_line": "no_such_module:before"}, "cannot be imported: No module named 'no_such_module'"),
        ({"after_line": "user_callbacks:seen"}, "is 'user_callbacks:seen', which is a list, not a function"),
        ({"after_line": "user_callbacks.after"}, "line_callbacks.after_line"),
    ],
    ids=["nothing", "attribute", "module", "list", "form"],
)
def test_callbacks_that_cannot_be_used(user_module: Any, options: dict[str, str], reason: str) -> None:
    with pytest.raises(thunder.ThunderError) as raised:
        thunder.jit(program, transforms=[{"line_callbacks": options}])(torch.ones(3))
    assert reason in str(raised.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="NVTX ranges can be used here")
def test_nvtx_ranges_without_cuda() -> None:
    """An error with the reason; the transform is left out where that is allowed."""
    with pytest.raises(thunder.ThunderError, match="marks lines for NVIDIA's profilers, but this PyTorch") as raised:
        thunder.jit(program, transforms=["nvtx_ranges"])(torch.ones(3))
    assert "line_timing" in str(raised.value)
    compiled = thunder.jit(program, transforms=[{"nvtx_ranges": {"optional": True}}])
    torch.testing.assert_close(compiled(torch.ones(3)), program(torch.ones(3)))


def test_the_configuration_is_in_the_report(wrong_gelu: Executor) -> None:
    compiled = thunder.jit(program, executors=[wrong_gelu], transforms=[{"bisect": {"atol": 0.5}}])
    assert math.isfinite(compiled(torch.ones(2)).item())
    assert "'atol': 0.5" in thunder.explain(compiled).details()


def test_patterns_that_match_no_line_are_in_the_report() -> None:
    options = {"include": ["torch.log", "torch.lgo", "torch.*.gelu", "torch.sin"], "exclude": ["*softmax*"]}
    compiled = thunder.jit(program, executors=[], config={"transforms": [{"nan_finder": options}]})
    compiled(torch.ones(3, requires_grad=True)).backward()
    assert thunder.explain(compiled).entries[0].notes == (
        "include of nan_finder: the pattern 'torch.lgo' matches no operation of this program",
        "include of nan_finder: the pattern 'torch.sin' matches no operation of this program",
        "exclude of nan_finder: the pattern '*softmax*' matches no operation of this program",
    )


def test_patterns_of_lines_of_backward_are_in_the_program() -> None:
    transforms = [{"nan_finder": {"exclude": ["torch.div", "torch.log"]}}]
    compiled = thunder.jit(program, executors=[], config={"transforms": transforms})
    compiled(torch.ones(3, requires_grad=True)).backward()
    assert thunder.explain(compiled).entries[0].notes == ()
