"""The words of `torch.compile` and of lightning-thunder, given to `thunder.jit`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("mode", "max-autotune", r"executors=\[\.\.\.\], transforms=\[\.\.\.\]"),
        ("fullgraph", True, "leave it out"),
        ("backend", "inductor", r'write executors=\["inductor"\]'),
        ("backend", "eager", r"write executors=\[\]"),
        ("backend", print, r"executors=\[\.\.\.\]"),
        ("options", {"shape_padding": True}, r"executors=\[\{name: \{option: value\}\}\]"),
    ],
)
def test_words_of_torch_compile(name: str, value: Any, hint: str) -> None:
    with pytest.raises(thunder.OptionError, match=hint) as error:
        thunder.jit(torch.sin, **{name: value})
    assert f"`{name}` is torch.compile's" in str(error.value)
    assert "recompile_warning" not in str(error.value)


def test_several_words_at_once() -> None:
    with pytest.raises(thunder.OptionError) as error:
        thunder.jit(torch.sin, fullgraph=True, backend="eager", cash=1)
    text = str(error.value)
    assert text.count("torch.compile's") == 2
    assert "did you mean 'cache'?" in text
    assert "one of" in text


@pytest.mark.parametrize("name", ["torch", "eager", "aten"])
def test_pytorch_is_no_executor_to_name(name: str) -> None:
    with pytest.raises(thunder.ConfigError, match=r"executors=\[\] for PyTorch alone"):
        thunder.jit(torch.sin, executors=[name])


@pytest.mark.parametrize(
    ("name", "replacement"), [("torchcompile", "inductor"), ("transformer_engine", "te"), ("unsloth", "triton")]
)
def test_executors_of_lightning_thunder(name: str, replacement: str) -> None:
    with pytest.raises(thunder.ConfigError, match=f"write '{replacement}', which replaces the executor '{name}'"):
        thunder.jit(torch.sin, executors=[name])


def test_the_nearest_name_is_one_of_an_executor() -> None:
    """`torchscript` is a plugin without executors."""
    with pytest.raises(thunder.ConfigError, match=r"there is no executor 'torch_script'(?!; did you mean)"):
        thunder.jit(torch.sin, executors=["torch_script"])
