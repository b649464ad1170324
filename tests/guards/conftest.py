"""A stand-in for acquisition: run a program under the observer, lift the tensors it uses, build the prologue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from thunder_core.checks.guard import CallShape
from thunder_core.checks.prologue import build_prologue
from thunder_frontend.observe.observer import Observer
from thunder_frontend.observe.writes import Write


class Lifting(TorchFunctionMode):
    """Calls through, with the observer paused, and collects the tensors that existed before the run."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self._observer = observer
        self._seen: dict[int, torch.Tensor] = {}
        self._made: set[int] = set()
        self._kept: list[Any] = []
        self.inputs: list[tuple[str, Any, Any]] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._observer.pause()
        try:
            for value in _pytree.tree_leaves((args, kwargs or {})):
                if isinstance(value, torch.Tensor):
                    self._lift(value)
            result = function(*args, **(kwargs or {}))
            for value in _pytree.tree_leaves(result):
                if id(value) not in self._seen:
                    self._made.add(id(value))
                    self._kept.append(value)
            return result
        finally:
            self._observer.resume()

    def _lift(self, tensor: torch.Tensor) -> None:
        if id(tensor) in self._seen or id(tensor) in self._made:
            return
        self._seen[id(tensor)] = tensor
        source = self._observer.source_of(tensor)
        if source is not None:
            self.inputs.append((f"t{len(self.inputs)}", source, tensor))


class Observed:
    """A program that was observed once.

    Attributes:
        writes, random: what the observer reported about the run.
        paths: where the lifted tensors were found.
    """

    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.observer = Observer(function, args, kwargs)
        lifting = Lifting(self.observer)
        with lifting, self.observer:
            self.result = function(*args, **kwargs)
        self.writes: tuple[Write, ...] = self.observer.writes()
        self.random = self.observer.consumed_python_rng()
        self.observer.undo()
        self.guards = self.observer.guards()
        self.paths = [source.describe() for _, source, _ in lifting.inputs]
        self.prologue = build_prologue(
            self.guards, lifting.inputs, state=self.observer.global_state, shape=CallShape.of(args, kwargs)
        )
        assert self.hits(*args, **kwargs), self.reason(*args, **kwargs)

    def hits(self, *args: Any, **kwargs: Any) -> bool:
        """Whether the entry serves a call; twice, since the second call takes the short ways."""
        first = self.prologue.function(args, kwargs) is not None
        second = self.prologue.function(args, kwargs) is not None
        why = self.prologue.why(args, kwargs)
        assert first == second == (why is None), why
        return first

    def reason(self, *args: Any, **kwargs: Any) -> str:
        """Why it does not."""
        return self.prologue.why(args, kwargs) or "it hits"


@pytest.fixture
def observe() -> type[Observed]:
    return Observed


@pytest.fixture
def x() -> torch.Tensor:
    return torch.ones(2, 4)
