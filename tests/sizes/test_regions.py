"""Programs that lines take, with sizes that vary: bodies of checkpoint regions, and branches of `torch.cond`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import thunder

SIZES = [(2, 5), (3, 7), (4, 9)]


def contexts() -> Any:
    return create_selective_checkpoint_contexts([torch.ops.aten.addmm.default])


class Block(nn.Module):
    """A region that takes sizes of what it is given, and one from outside.

    Args:
        options: of `checkpoint`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.options = options

    def region(self, x: torch.Tensor, length: int) -> torch.Tensor:
        y = F.gelu(self.linear(x))[:, :length]
        return y + y.softmax(1) * y.shape[1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.region, x * 2, x.shape[1] - 1, **self.options).sum(0).sin()  # type: ignore[no-any-return]


class Nested(nn.Module):
    """Regions in regions, and autocast in one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def inner(t: torch.Tensor) -> torch.Tensor:
            return t.relu() * t.shape[1]

        def outer(t: torch.Tensor) -> torch.Tensor:
            u = checkpoint(inner, t.sin(), use_reentrant=False)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return (u @ u.mT).float().sum(-1) / t.shape[0]

        return checkpoint(outer, x, use_reentrant=False) + checkpoint(outer, x * 2, use_reentrant=False)  # type: ignore[no-any-return]


class Writing(nn.Module):
    """A region that writes a buffer, which backward writes again."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def region(t: torch.Tensor) -> torch.Tensor:
            self.total.add_(t.detach().sum())
            return t.sin() * t.shape[0]

        return checkpoint(region, x * 1, use_reentrant=False)  # type: ignore[no-any-return]


class Choice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda t: t.exp() * t.shape[0], lambda t: t.cos(), (x,))  # type: ignore[no-any-return]


MODULES: dict[str, Callable[[], nn.Module]] = {
    "non-reentrant": lambda: Block(use_reentrant=False),
    "reentrant": lambda: Block(use_reentrant=True),
    "policy": lambda: Block(use_reentrant=False, context_fn=contexts),
    "nested": Nested,
    "writing": Writing,
    "cond": Choice,
}


CASES = [(name, True) for name in MODULES] + [(name, False) for name in MODULES if name != "reentrant"]
"""PyTorch warns of reentrant regions without gradients."""


@pytest.mark.parametrize(("name", "trained"), CASES)
@pytest.mark.slow
def test_one_program_for_all_sizes(name: str, trained: bool) -> None:
    torch.manual_seed(0)
    expected_module = MODULES[name]()
    torch.manual_seed(0)
    module = thunder.jit(MODULES[name](), dynamic=True, executors=[])
    for b, n in SIZES:
        x = torch.randn(b, n, 8, requires_grad=trained)
        y = x.detach().clone().requires_grad_(trained)
        with torch.set_grad_enabled(trained):
            actual, expected = module(x), expected_module(y)
        torch.testing.assert_close(actual, expected)
        if trained:
            actual.sum().backward()
            expected.sum().backward()
            torch.testing.assert_close(x.grad, y.grad)
        torch.testing.assert_close(dict(module.named_buffers()), dict(expected_module.named_buffers()))
        for one, other in zip(module.parameters(), expected_module.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
    assert thunder.cache_misses(module) == 1


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.slow
def test_gradient_checkpointing_of_hugging_face(frozen: bool) -> None:
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        use_cache=False,
    )
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config).train()
        # transformers 5.24 renames it, and warns of the old name
        getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not frozen or "q_proj" in name)
        models.append(model)
    compiled, eager = thunder.jit(models[0], executors=[]), models[1]
    for b, n in [(2, 8), (2, 9), (3, 12), (4, 5)]:
        tokens = torch.randint(0, 64, (b, n))
        actual, expected = (model(tokens, labels=tokens).loss for model in (compiled, eager))
        torch.testing.assert_close(actual, expected)
        actual.backward()
        expected.backward()
    for one, other in zip(compiled.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert thunder.cache_misses(compiled) <= 3
    assert thunder.last_backward_traces(compiled)[-1].symbols  # though a hook calls requires_grad_ of the embedding
