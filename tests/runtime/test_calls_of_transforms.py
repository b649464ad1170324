"""The methods of transforms that are called around compilations and runs of a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch

import thunder
from thunder_core.ir.trace import Trace
from thunder_core.passes.transform import Phase, Place, Transform


@dataclass(frozen=True, eq=False)
class Watching(Transform):
    name: ClassVar[str] = "watching"
    place: ClassVar[Place] = Place.LAST
    refuses: bool = False
    calls: list[Any] = field(default_factory=list)

    def before_compilation(self) -> None:
        self.calls.append("before compilation")

    def before_first_run(
        self,
        name: str,
        programs: Mapping[Phase, Trace],
        groups: Mapping[str, tuple[int, ...]],
        raised: Exception | None,
    ) -> None:
        self.calls.append((name, list(programs), dict(groups), raised))
        if self.refuses:
            raise RuntimeError("refused")

    def on_exception(self, name: str, error: Exception) -> None:
        self.calls.append((name, error))


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def fails(x: torch.Tensor) -> torch.Tensor:
    raise KeyError(x.shape[0])


def test_they_are_called_once_for_each_program() -> None:
    watching = Watching()
    compiled = thunder.jit(double, transforms=[watching])
    for _ in range(2):
        compiled(torch.ones(2))
    assert watching.calls == ["before compilation", ("double", [Phase.INFERENCE], {}, None)]
    compiled(torch.ones(2, requires_grad=True))
    assert watching.calls[2:] == ["before compilation", ("double", [Phase.FORWARD, Phase.BACKWARD], {}, None)]


def test_a_program_that_is_refused_is_not_cached() -> None:
    watching = Watching(refuses=True)
    compiled = thunder.jit(double, transforms=[watching])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="refused") as caught:
            compiled(torch.ones(2))
        assert watching.calls[-1] == ("double", caught.value)
    assert thunder.cache_misses(compiled) == 2
    assert len(watching.calls) == 6


def test_exceptions_of_the_program() -> None:
    watching = Watching()
    with pytest.raises(KeyError) as caught:
        thunder.jit(fails, transforms=[watching])(torch.ones(2))
    (_, (name, _, _, raised), (_, error)) = watching.calls
    assert name == "fails"
    assert type(raised) is KeyError
    assert error is caught.value


@dataclass(frozen=True)
class Raising(Transform):
    name: ClassVar[str] = "raising"
    place: ClassVar[Place] = Place.LAST

    def on_exception(self, name: str, error: Exception) -> None:
        raise ConnectionError("lost")


def test_the_exception_of_the_program_is_raised_if_a_transform_raises_another() -> None:
    watching = Watching()
    with pytest.raises(KeyError) as caught:
        thunder.jit(fails, transforms=[Raising(), watching])(torch.ones(2))
    assert caught.value.__notes__ == ["Thunder: on_exception of the transform raising raised ConnectionError: lost"]
    assert watching.calls[-1] == ("fails", caught.value)
