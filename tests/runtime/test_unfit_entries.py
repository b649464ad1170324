"""An entry whose guards do not hold for the call that it was compiled for."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable

import pytest
import torch

import thunder
from thunder_core.errors import UncacheableWarning


class Counting(type):
    """A metaclass that counts assignments to attributes of its classes. The observer does not follow its reads."""

    def __setattr__(cls, name: str, value: object) -> None:
        type.__setattr__(cls, name, value)
        type.__setattr__(cls, "count", type.__getattribute__(cls, "count") + 1)


def test_the_result_is_returned_and_the_entry_is_not_kept() -> None:
    class Counted(metaclass=Counting):
        count = 0
        last = 0

    def program(x: torch.Tensor) -> torch.Tensor:
        Counted.last = 1
        return x * Counted.count

    compiled = thunder.jit(program)
    x = torch.arange(3.0)
    with pytest.warns(UncacheableWarning, match=r"Counted.count: expected") as caught:
        results = [compiled(x) for _ in range(3)]
    assert all(torch.equal(result, x * times) for times, result in enumerate(results, 1))
    assert len(caught) == 1
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (0, 3)
    assert not thunder.explain(compiled).entries[0].cached


def test_classes_that_the_program_makes_and_changes_have_no_guards() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        made = dataclasses.make_dataclass("Made", [("a", torch.Tensor), ("b", int, dataclasses.field(default=3))])
        changed = types.new_class("Changed", (), {}, lambda namespace: namespace.update(count=4))
        changed.count += 1  # type: ignore[attr-defined]
        return made(x).a * made(x).b + changed.count  # type: ignore[attr-defined]

    compiled = thunder.jit(program)
    x = torch.arange(3.0)
    assert all(torch.equal(compiled(x), program(x)) for _ in range(3))
    assert thunder.cache_misses(compiled) == 1


def test_keys_and_names_with_line_breaks(jit: Callable[..., Callable[..., torch.Tensor]]) -> None:
    """What is printed into generated source is escaped."""
    module = torch.nn.Module()
    module.register_module('a\nb "', torch.nn.Linear(3, 3))
    module.register_buffer("x\n'y", torch.ones(3))

    def program(x: torch.Tensor) -> torch.Tensor:
        return module._modules['a\nb "'](x) * module._buffers["x\n'y"]

    x = torch.arange(3.0)
    compiled = jit(program)
    for _ in range(2):
        assert torch.equal(compiled(x), program(x))


def test_variables_named_as_builtins(jit: Callable[..., Callable[..., torch.Tensor]]) -> None:
    """The generated prologue needs the builtins itself."""

    class tuple:
        len = 2.0

    def program(type: torch.Tensor, dict: list[torch.Tensor], id: float) -> torch.Tensor:
        return type * dict[0] * id * tuple.len

    x = torch.arange(3.0)
    compiled = jit(program)
    for _ in range(2):
        assert torch.equal(compiled(x, [x], id=2.0), program(x, [x], id=2.0))
