"""The arguments of `torch.compile`, given to `thunder.jit`."""

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
