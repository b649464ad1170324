"""Attention through programs, with the fake in the library's place on a CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder_core.errors import ExecutorError
from thunder_plugin_cudnn import attention, plans
from thunder_plugin_cudnn.attention_graphs import attention_backward
from thunder_plugin_cudnn.executor import CudnnExecutor
from thunder_plugin_cudnn.options import CudnnOptions

B16 = torch.bfloat16


def inputs(queries: int = 6, keys: int = 6, heads: int = 4, key_heads: int = 4, size: int = 16) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = (heads, queries), (key_heads, keys), (key_heads, keys)
    return [torch.randn(2, h, s, size, dtype=B16) for h, s in shapes]


def compare(program: Any, tensors: list[torch.Tensor], executor: Any = None) -> Any:
    """Compile, compare values, gradients and strides with eager PyTorch in float64; the compiled program."""
    compiled = thunder.jit(program, executors=[executor or CudnnExecutor(device="cpu")])
    found = _outcome(compiled, tensors)
    expected = _outcome(program, [tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=3e-2, atol=3e-2)
    assert found[0].stride() == program(*tensors).stride()
    return compiled


def _outcome(program: Any, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in tensors]
    output = program(*leaves)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    cotangent = torch.sin(torch.arange(output.numel()).view(output.shape)).to(output.dtype)
    return [output.detach(), *torch.autograd.grad(output, wanted, cotangent)]


def executors(compiled: Any) -> list[str | None]:
    return [line.symbol.executor for line in thunder.last_traces(compiled)[-1].symbols]


PROGRAMS: dict[str, Any] = {
    "plain": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "scaled": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3),
    "grouped": lambda q, k, v: F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True),
    "heads inside": lambda q, k, v: F.scaled_dot_product_attention(
        *(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)), is_causal=True
    ),
    "slices": lambda q, k, v: F.scaled_dot_product_attention(
        *torch.cat((q, k, v), -1).split(q.shape[-1], -1), is_causal=True
    ),
    "an odd offset": lambda q, k, v: F.scaled_dot_product_attention(
        torch.cat((q.flatten()[:1], q.flatten()))[1:].view(q.shape), k, v
    ),
    "same tensor": lambda q, k, v: F.scaled_dot_product_attention(q, q, q) + k + v,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    compiled = compare(PROGRAMS[name], inputs())
    assert "cudnn" in executors(compiled)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs()), PROGRAMS[name](*inputs()), rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize(("queries", "keys"), [(4, 7), (7, 4)])
def test_the_diagonal_starts_at_the_top_left(queries: int, keys: int) -> None:
    compare(PROGRAMS["causal"], inputs(queries, keys))


MASKS: dict[str, Any] = {
    "truth": lambda: torch.rand(6, 6) > 0.3,
    "rows of truth": lambda: torch.rand(2, 1, 1, 6) > 0.1,
    "expanded truth": lambda: (torch.rand(2, 1, 6, 6) > 0.3).expand(2, 4, 6, 6),
    "of a head": lambda: torch.randn(4, 6, 6, dtype=B16),
    "of all": lambda: torch.randn(2, 4, 6, 6, dtype=B16),
    "float32": lambda: torch.randn(6, 6),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str) -> None:
    torch.manual_seed(1)
    mask = MASKS[name]()
    if mask.dtype is torch.bool:
        mask = mask | torch.eye(6, dtype=torch.bool)

    def program(query: Any, key: Any, value: Any) -> Any:
        added = mask if mask.dtype is torch.bool else mask.to(query.dtype)
        return F.scaled_dot_product_attention(query, key, value, added)

    assert "cudnn" in executors(compare(program, inputs()))


@pytest.mark.parametrize("shape", [(6, 6), (4, 6, 6), (2, 1, 6, 6), (2, 4, 6, 6)], ids=str)
def test_gradients_of_masks(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    mask = torch.randn(shape, dtype=B16)
    assert "cudnn" in executors(compare(F.scaled_dot_product_attention, [*inputs(), mask]))


def test_a_query_that_sees_no_key_sees_all() -> None:
    query, key, value = inputs()
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[2] = False
    compiled = thunder.jit(F.scaled_dot_product_attention, executors=[CudnnExecutor(device="cpu")])
    found, expected = compiled(query, key, value, mask), F.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(found[:, :, 2], expected[:, :, 2], rtol=2e-2, atol=2e-2)


def test_repeated_heads_are_not_made() -> None:
    def program(query: Any, key: Any, value: Any) -> Any:
        key, value = key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)
        return F.scaled_dot_product_attention(query, key, value)

    tensors = inputs(key_heads=2)
    assert executors(compare(program, tensors)) == ["cudnn"]
    kept = CudnnExecutor(CudnnOptions(grouped=False), device="cpu")
    assert len(executors(compare(program, tensors, kept))) > 1


def test_dropout() -> None:
    """Backward drops what forward dropped (the fake compares the results), and seeds come from PyTorch's generator."""
    executor = CudnnExecutor(CudnnOptions(dropout=True), device="cpu")

    def program(query: Any, key: Any, value: Any) -> Any:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=0.25)

    compiled = thunder.jit(program, executors=[executor])
    found, given = [], inputs()
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(_outcome(compiled, given))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    assert not torch.equal(found[0][0], found[2][0])
    assert "cudnn" in executors(compiled)


def test_dropout_needs_the_option() -> None:
    compiled = thunder.jit(
        lambda *x: F.scaled_dot_product_attention(*x, dropout_p=0.5), executors=[CudnnExecutor(device="cpu")]
    )
    compiled(*inputs())
    assert "cudnn" not in executors(compiled)


@pytest.mark.parametrize("way", ["option", "PyTorch"])
def test_deterministic(way: str) -> None:
    executor = CudnnExecutor(CudnnOptions(deterministic=way == "option"), device="cpu")
    if way == "PyTorch":
        torch.use_deterministic_algorithms(True)
    try:
        compare(PROGRAMS["plain"], inputs(), executor)
    finally:
        torch.use_deterministic_algorithms(False)
    asked = [key[2][-1] for key in plans._PLANS if key[0] is attention_backward]
    assert asked == [True]


def test_equal_calls_share_a_plan() -> None:
    compare(lambda q, k, v: PROGRAMS["plain"](q, k, v) + PROGRAMS["plain"](k, q, v), inputs())
    assert len(plans._PLANS) == 2  # forward and backward


def test_the_result_lies_as_the_line_says() -> None:
    """Whatever PyTorch's kernel would have given; the plugin allocates it so, and copies nothing."""
    executor = CudnnExecutor(device="cpu")
    compiled = compare(PROGRAMS["heads inside"], inputs(), executor)
    assert [line.symbol.name for line in thunder.last_traces(compiled)[-1].symbols].count("torch.clone") == 0


@pytest.mark.parametrize("name", ["plain", "heads inside"])
def test_older_frontends_take_addresses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import fake_cudnn

    def execute(self: Any, pack: dict[int, int], workspace: int, handle: Any = None) -> None:
        assert {type(address) for address in (*pack.values(), workspace)} == {int}
        self._execute(pack, workspace, handle)

    monkeypatch.setattr(fake_cudnn.pygraph, "execute", execute)
    compare(PROGRAMS[name], inputs())


def test_a_refusal_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    import fake_cudnn

    def refuse(self: Any) -> None:
        raise fake_cudnn.cudnnGraphNotSupportedError("\nno valid engine configs\nmore")

    monkeypatch.setattr(fake_cudnn.pygraph, "check_support", refuse)
    compiled = thunder.jit(PROGRAMS["plain"], executors=[CudnnExecutor(device="cpu")])
    compiled(*inputs())
    reasons = [str(line) for line in thunder.explain(compiled).decisions]
    assert any("cuDNN has no kernel for it: no valid engine configs" in reason for reason in reasons)
    with pytest.raises(ExecutorError, match="no valid engine configs") as caught:
        attention.run(*inputs())
    assert "option exclude" in caught.value.advice[0]
