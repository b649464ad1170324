"""Which installations of Apex the executor can use, by the functions of their modules."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType

import fake_apex
import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder_core.errors import ExecutorError
from thunder_plugin_apex import library
from thunder_plugin_apex.executor import ApexExecutor
from thunder_plugin_apex.library import CROSS_ENTROPY, NORMS, SIGNATURES


def test_the_fake_has_the_interface() -> None:
    for name, module in fake_apex.modules().items():
        found = {
            key: tuple(inspect.signature(value).parameters) for key, value in vars(module).items() if key[0] != "_"
        }
        assert found == SIGNATURES[name]


def test_all_is_there() -> None:
    assert [library.problem(name) for name in SIGNATURES] == [None, None]
    assert library.check().ok


@pytest.mark.parametrize("name", SIGNATURES)
def test_not_built(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A module is None in ``sys.modules`` where importing it shall fail."""
    monkeypatch.setitem(sys.modules, name, None)
    assert f"Apex was built without {name}; build it with {library.FLAGS[name]}" in str(library.problem(name))
    found = library.check()
    assert not found.ok
    assert "APEX_CPP_EXT=1 APEX_CUDA_EXT=1 APEX_XENTROPY=1 pip install" in found.advice


def test_what_is_built_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, CROSS_ENTROPY, None)

    def program(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(F.layer_norm(x, (8,)), labels)

    function = thunder.jit(program, executors=[ApexExecutor(device="cpu")])
    function(torch.randn(2, 8), torch.tensor([1, 2]))
    assert fake_apex.calls == ["forward"]
    reasons = [reason for decision in thunder.explain(function).decisions for _, reason in decision.declined]
    assert any(reason.startswith(f"Apex was built without {CROSS_ENTROPY}") for reason in reasons)


def test_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SIGNATURES:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ExecutorError, match="none of its kernels can be used") as raised:
        ApexExecutor()
    assert len(raised.value.advice) == 2


def test_built_for_another_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> ModuleType:
        raise ImportError("undefined symbol: _ZN3c10")

    monkeypatch.setattr(library, "extension", fails)
    assert "cannot be imported: undefined symbol: _ZN3c10; build it" in str(library.problem(NORMS))


class Compiled:
    """A function of pybind11, which has no signature but in its documentation."""

    def __init__(self, arguments: int) -> None:
        names = ", ".join(f"arg{index}: torch.Tensor" for index in range(arguments))
        self.__doc__ = f"f({names}) -> list[torch.Tensor]\n\nLayerNorm backward (CUDA)\n"


def test_an_old_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions of before 2023, without ``memory_efficient``, and of before that, without rms_norm."""
    module = sys.modules[NORMS]
    for name, parameters in SIGNATURES[NORMS].items():
        monkeypatch.setattr(module, name, Compiled(len(parameters)))
    assert library.problem(NORMS) is None
    monkeypatch.setattr(module, "backward_affine", Compiled(8))
    assert f"{NORMS}.backward_affine of Apex takes 8 arguments, not 9" in str(library.problem(NORMS))
    monkeypatch.delattr(module, "rms_forward")
    monkeypatch.setattr(module, "backward_affine", Compiled(9))
    assert f"{NORMS} of Apex has no rms_forward" in str(library.problem(NORMS))
