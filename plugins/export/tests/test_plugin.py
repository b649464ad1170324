"""The package as a plugin, and the choice of its front end by `thunder.jit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from exported_programs import exported

import thunder
import thunder_plugin_export
from thunder_core.errors import PluginError
from thunder_core.plugins.host import reset_host
from thunder_plugin_export.pytorch_internals import NAMES
from thunder_testing import package_suite, private_names_suite

pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec:FutureWarning")

test_package = package_suite(__file__)


def _higher_order(kind: Any) -> None:
    operator = torch.ops.higher_order.wrap_with_set_grad_enabled
    assert isinstance(operator, kind)
    assert operator.name() == "wrap_with_set_grad_enabled"


def _check_inputs(function: Any) -> None:
    program, (x,), _ = exported("mlp")
    module = program.module()
    assert function in module._forward_pre_hooks.values()
    assert function(module, (x,), {}) is None
    with pytest.raises(ValueError, match="tree spec"):
        function(module, (), {})


def _flatten(function: Any) -> None:
    spec = torch.utils._pytree.tree_structure({"a": 1, "b": 2})
    assert function({"b": 2, "a": 1}, spec) == [1, 2]


def _functional(function: Any) -> None:
    program, _, _ = exported("custom_write")
    nodes = program.run_decompositions().graph.nodes
    node = next(node for node in nodes if str(node.target) == "auto_functionalized_v2")
    x, y = torch.zeros(3, 4), torch.ones(3, 4)
    result = function(node.args[0], **{**node.kwargs, "y": y, "_all_bases": [x]})
    torch.testing.assert_close(result[-1], y)
    torch.testing.assert_close(x, torch.zeros(3, 4))


def _structure(read: Any, position: int) -> None:
    program, _, _ = exported("mlp")
    assert read(program.module()) == (program.call_spec.in_spec, program.call_spec.out_spec)[position]


def _scalar(operator: Any) -> None:
    assert operator(True, "message") is None
    with pytest.raises(RuntimeError, match="message"):
        operator(False, "message")


def _metadata(operator: Any) -> None:
    assert operator(torch.ones(2), dtype=torch.float32) is None
    with pytest.raises(RuntimeError):
        operator(torch.ones(2), dtype=torch.int32)


CHECKS = {
    "in_spec": lambda read: _structure(read, 0),
    "out_spec": lambda read: _structure(read, 1),
    "assert_scalar": _scalar,
    "assert_tensor_metadata": _metadata,
    "HigherOrderOperator": _higher_order,
    "check_inputs": _check_inputs,
    "tree_flatten_spec": _flatten,
    "auto_functionalized_v2_dense": _functional,
}

test_private_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_export.__file__).parent])


def test_without_the_plugin_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    program, _, _ = exported("mlp")
    monkeypatch.setenv("THUNDER_PLUGINS", "-export")
    reset_host()
    try:
        with pytest.raises(PluginError, match="export") as raised:
            thunder.jit(program)
    finally:
        monkeypatch.undo()
        reset_host()
    assert "THUNDER_PLUGINS" in str(raised.value)
