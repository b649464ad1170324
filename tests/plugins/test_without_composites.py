"""Programs where the package with the composites is not installed: they compile and run as they are written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from thunder_testing.forked import LIBRARIES, run_forked

ABSENT = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "thunder_plugin_composites":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())

from thunder_core.plugins.distributions import Installed

with_plugins = Installed.with_plugins
Installed.with_plugins = lambda self: [one for one in with_plugins(self) if "composites" not in one.name]
"""

PROGRAM = """
import torch
import torch.nn.functional as F

import thunder
from thunder_core.executors import Claim, OperatorExecutor
from thunder_core.plugins.host import host
from thunder_testing.pointwise import Pointwise


def rms_norm(x, weight):
    n = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
    return weight * n


def program(x, weight):
    n = F.rms_norm(rms_norm(x, weight), (8,), weight)
    return F.cross_entropy(F.linear(F.silu(n) * x, x), torch.arange(4))


assert "composites" not in [record.name for record in host().records]
x, weight = torch.randn(4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
norm = OperatorExecutor("norm", (Claim(F.rms_norm, run=F.rms_norm),))
for executors in (None, [norm], [norm, Pointwise()]):
    compiled = thunder.jit(program, executors=executors)
    result, expected = compiled(x, weight), program(x, weight)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(torch.autograd.grad(result, (x, weight)), torch.autograd.grad(expected, (x, weight)))
    report = thunder.explain(compiled)
    assert "recognize_composites" not in [stage.name for stage in report.entries[0].stages]
    assert not [line for line in report.decisions if line.phase == "pattern"]
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, weight), program(x, weight))
    lines = {line.symbol: line.executor for line in thunder.explain(compiled).decisions if line.phase == "inference"}
    assert lines["torch.nn.functional.rms_norm"] == ("norm" if executors else "reference"), lines
assert "thunder_plugin_composites" not in sys.modules
"""


@pytest.mark.slow
def test_programs_run_as_they_are_written() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "THUNDER_PLUGINS"}
    done = run_forked(ABSENT + PROGRAM, environment=environment, preloaded=LIBRARIES)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_an_optional_executor_that_claims_them_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "claims_composites.py").write_text(
        "from thunder_core.executors import Claim, OperatorExecutor\n"
        "from thunder_core.plugins import ExecutorSpec, hookimpl\n"
        "@hookimpl\n"
        "def thunder_executors():\n"
        "    return [ExecutorSpec('claims', 'claims_composites:make')]\n"
        "def make(options):\n"
        "    import thunder_plugin_composites as composites\n"
        "    return OperatorExecutor('claims', (Claim(composites.swiglu, run=composites.swiglu),))\n"
    )
    information = tmp_path / "claims-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: claims\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[thunder.plugins]\nclaims = claims_composites\n")
    program = """
from thunder.config import settings_of

((name, why),) = settings_of("reference", executors=[{"claims": {"optional": True}}]).left_out
assert name == "claims", name
assert "No module named 'thunder_plugin_composites'" in why, why
"""
    left_out = ("THUNDER_PLUGINS", "THUNDER_STRICT")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    done = run_forked(ABSENT + program, environment=environment, path=[tmp_path], preloaded=LIBRARIES)
    assert done.returncode == 0, done.stderr
