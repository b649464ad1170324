"""Composites in the language models of LitGPT and Transformers: all are found, and train as in eager."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import thunder
import thunder_plugin_composites as composites
from tests.models import hugging_face, lit_gpt
from tests.models.inputs import VOCABULARY
from thunder_testing.by_definition import by_definition, run_by

pytest.importorskip("litgpt")
pytest.importorskip("transformers")

COMPOSITES = [getattr(composites, name) for name in composites.__all__]
LLAMA = {"rms_norm": 5, "rotary_embedding": 4, "swiglu": 2, "linear_cross_entropy": 1}
GEMMA = {"rms_norm": 5, "rotary_embedding": 4, "geglu": 2, "linear_cross_entropy": 1}
# Under autocast, keys are repeated for their heads before attention rounds them, and not right after they are rotated.
WIDE_KEYS = {"rotary_embedding": 2}


def litgpt_loss(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    from litgpt.utils import chunked_cross_entropy

    loss: torch.Tensor = chunked_cross_entropy(model(ids), ids, chunk_size=0)
    return loss


def hugging_face_loss(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(input_ids=ids, labels=ids, use_cache=False).loss
    return loss


def check(model: torch.nn.Module, loss: Any, expected: dict[str, int], dtype: torch.dtype | None) -> Any:
    """The composites, the loss and all gradients; autocast without a dtype of the parameters."""
    ids = torch.randint(5, VOCABULARY, (2, 8))
    compiled = thunder.jit(loss, executors=[by_definition(*COMPOSITES)])
    gradients = []
    for function in (compiled, loss):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is None), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = function(model, ids)
        value.backward()
        gradients.append([value.detach(), *[one.grad for one in model.parameters()]])
        model.zero_grad()
    assert run_by(compiled) == expected
    for own, eager in zip(*gradients, strict=True):
        limit = 1e-4 if dtype is torch.float32 else 2e-2
        assert (own - eager).float().norm() <= limit * eager.float().norm() + 1e-7
    return compiled


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, None])
@pytest.mark.slow
def test_litgpt_llama(dtype: torch.dtype | None) -> None:
    check(lit_gpt.ROWS["llama3"].build().to(dtype), litgpt_loss, LLAMA, dtype)


@pytest.mark.slow
def test_litgpt_gemma() -> None:
    check(lit_gpt.ROWS["gemma"].build().bfloat16(), litgpt_loss, GEMMA, torch.bfloat16)
    check(lit_gpt.ROWS["gemma"].build(), litgpt_loss, GEMMA, torch.float32)


@pytest.mark.slow
def test_litgpt_pythia() -> None:
    expected = {"rotary_embedding": 4, "linear_cross_entropy": 1}
    check(lit_gpt.ROWS["pythia"].build(), litgpt_loss, expected, torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, None])
@pytest.mark.parametrize("name", ["llama", "gemma"])
@pytest.mark.slow
def test_transformers(name: str, dtype: torch.dtype | None) -> None:
    expected = {**(GEMMA if name == "gemma" else LLAMA), **(WIDE_KEYS if dtype is None else {})}
    check(hugging_face.ROWS[name].build().to(dtype), hugging_face_loss, expected, dtype)


@pytest.mark.parametrize("name", ["qwen2", "mistral"])
@pytest.mark.slow
def test_transformers_with_attention_spelled_out(name: str) -> None:
    model = hugging_face.ROWS[name].build(attn_implementation="eager")
    compiled = check(model, hugging_face_loss, {**LLAMA, "scaled_softmax": 2}, torch.float32)
    (line, *_) = [one for one in thunder.explain(compiled).decisions if one.symbol.endswith("rms_norm")]
    assert "RMSNorm.forward" in str(line.location)


@pytest.mark.slow
def test_logits_that_are_returned_are_made() -> None:
    """The loss that Transformers returns with the logits cannot do without them."""

    def program(model: torch.nn.Module, ids: torch.Tensor) -> Any:
        return model(input_ids=ids, labels=ids, use_cache=False).to_tuple()

    model, ids = hugging_face.ROWS["llama"].build(), torch.randint(5, VOCABULARY, (2, 8))
    compiled = thunder.jit(program, executors=[by_definition(composites.linear_cross_entropy)])
    torch.testing.assert_close(compiled(model, ids), program(model, ids))
    (line,) = [one for one in thunder.explain(compiled).decisions if one.phase == "pattern"]
    assert "has other users" in line.declined[0][1]
