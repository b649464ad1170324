"""Lists that a program only appends to may be of any length: one entry serves all calls."""

from __future__ import annotations

import torch

import thunder


def test_a_list_that_grows_is_no_reason_to_compile_again() -> None:
    losses: list[torch.Tensor] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        losses.append(x.sum())
        return x * 2

    compiled = thunder.jit(program)
    for count in range(1, 6):
        x = torch.full((3,), float(count))
        assert torch.equal(compiled(x), x * 2)
        assert [loss.item() for loss in losses] == [3.0 * number for number in range(1, count + 1)]
    assert thunder.cache_misses(compiled) == 1


def test_activations_of_a_hook() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    kept: list[torch.Tensor] = []
    model[0].register_forward_hook(lambda module, inputs, output: kept.append(output.detach()))
    compiled = thunder.jit(model)
    for count in range(1, 4):
        x = torch.randn(2, 3)
        result = compiled(x)
        assert len(kept) == count
        assert torch.equal(result, kept[-1].relu())
    assert thunder.cache_misses(compiled) == 1


def test_a_list_that_is_read_is_guarded() -> None:
    seen: list[float] = [1.0]

    def program(x: torch.Tensor) -> torch.Tensor:
        note()
        return x * len(seen)

    def note() -> None:
        seen.append(2.0)

    compiled = thunder.jit(program)
    x = torch.arange(3.0)
    for count in range(2, 5):
        assert torch.equal(compiled(x), x * count)
