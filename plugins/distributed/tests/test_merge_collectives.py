"""Which all-reduces are merged, with a fake process group, in which they return what they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.distributed._functional_collectives import all_reduce, reduce_scatter_tensor

import thunder
from thunder_testing.processes import fake_process_group


@pytest.fixture(autouse=True)
def fake_group() -> Iterator[None]:
    with fake_process_group():
        yield


def reduced(x: torch.Tensor, operation: str = "sum") -> torch.Tensor:
    """PyTorch differentiates sums alone."""
    return all_reduce(x if operation == "sum" else x.detach(), operation, torch.distributed.group.WORLD)


def read_twice(x: torch.Tensor) -> Any:
    one = reduced(x.sin())
    return one + reduced(x.cos()), one * 2


def scattered(x: torch.Tensor) -> torch.Tensor:
    one, other = (reduce_scatter_tensor(each, "sum", 0, torch.distributed.group.WORLD) for each in (x.sin(), x.cos()))
    return one + other


def of_integers(x: torch.Tensor) -> Any:
    one, other = (reduced((x * number).int(), "avg") for number in (3, 5))
    return x.sin(), one + other


PROGRAMS: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
    "two": (lambda x: reduced(x.sin()) + reduced(x.cos()), 1),
    "averages": (lambda x: (x * 2, reduced(x.sin(), "avg") + reduced(x.cos(), "avg")), 1),
    "three": (lambda x: reduced(x.sin()) + reduced(x.cos()) + reduced(x.exp()), 2),
    "three, and another tensor first": (lambda x: x + reduced(x.sin()) + reduced(x.cos()) + reduced(x.exp()), 2),
    "expanded": (lambda x: reduced(x[:1].expand(4, 3)) + reduced(x[1:2].expand(4, 3)), 1),
    "sum and average": (lambda x: reduced(x.sin()) + reduced(x.cos(), "avg"), 0),
    "largest": (lambda x: (x * 2, reduced(x.sin(), "max") + reduced(x.cos(), "max")), 0),
    "of other dtypes": (lambda x: x + reduced(x.bfloat16()) + reduced(x.cos().bfloat16()), 0),
    "of other shapes": (lambda x: reduced(x.sin()) + reduced(x[0].cos()), 0),
    "scaled": (lambda x: torch.add(reduced(x.sin()), reduced(x.cos()), alpha=2), 0),
    "integers": (of_integers, 0),
    "read twice": (read_twice, 0),
    "reduce-scatters": (scattered, 0),
}


@pytest.mark.filterwarnings("ignore:.*reduce_scatter_tensor:FutureWarning")
def test_which_are_merged() -> None:
    for name, (program, expected) in PROGRAMS.items():
        compiled, found = thunder.jit(program, executors=[], config="thunder:default"), []
        for run in (program, compiled):
            x = torch.linspace(-1, 1, 12).view(4, 3).requires_grad_()
            results = run(x)
            results = results if isinstance(results, tuple) else (results,)
            sum(result.sum() for result in results if result.requires_grad).backward()
            found.append([*[result.detach() for result in results], x.grad])
        torch.testing.assert_close(found[1], found[0], msg=lambda text, name=name: f"{name}: {text}")
        notes = [note for note in thunder.explain(compiled).entries[0].notes if note.startswith("merge_collectives")]
        less = [f"merge_collectives: {expected} collectives less, because sums are reduced"] if expected else []
        assert notes == less, name
