"""The forward of a derivative pair: what it returns, really and on fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder_core.executors import DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_testing.conformance.asking import Asked
from thunder_testing.conformance.failure import Breach
from thunder_testing.conformance.results import strides_that_matter
from thunder_testing.conformance.running import quietly
from thunder_testing.conformance.tested import raised
from thunder_testing.snapshot import storage_key


@dataclass(frozen=True, slots=True)
class Pieces:
    """What forward returned.

    Attributes:
        outputs: the tensors among its outputs.
        residuals: as returned.
    """

    outputs: list[torch.Tensor]
    residuals: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class PairForward:
    """Makes the calls.

    Attributes:
        pair: forward and backward.
        asked: the line that they stand for.
    """

    pair: DerivativePair
    asked: Asked

    def run(self, tensors: Sequence[torch.Tensor], *, fake: bool = False) -> Pieces:
        """Call forward, or what stands for it on fake tensors, with ``tensors`` for those of the line's call."""

        def value(leaf: Any) -> Any:
            return tensors[self.asked.positions[leaf.name]] if isinstance(leaf, TensorProxy) else leaf

        function = (self.pair.fake or self.pair.forward) if fake else self.pair.forward
        name = ("fake" if self.pair.fake is not None else "forward on fake tensors") if fake else "forward"
        args, kwargs = map_leaves(value, self.asked.line.args), map_leaves(value, self.asked.line.kwargs)
        result = called(f"{name} of the pair", function, *args, **kwargs)
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], tuple)):
            raise Breach("derivative pair", f"{name} returns {_kind(result)}, not (outputs, tuple of residuals)")
        return Pieces(tensors_in(result[0]), result[1])


def called(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a function of the pair. Raises Breach for what it raises."""
    __tracebackhide__ = True
    with quietly(), torch.no_grad():
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise raised(what, error) from error


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in nested containers, in order."""
    return [leaf for leaf in iterate_leaves(value) if isinstance(leaf, torch.Tensor)]


def compare_with_fake(
    real: Pieces, arguments: Sequence[torch.Tensor], fake: Pieces, fakes: Sequence[torch.Tensor]
) -> None:
    """Raise `Breach` where forward returned something else than on fake tensors, for which programs are compiled."""
    ours, theirs = _leaves(real), _leaves(fake)
    if len(ours) != len(theirs) or len(real.outputs) != len(fake.outputs):
        raise Breach("fake", f"forward returns {len(ours)} values, and {len(theirs)} on fake tensors")
    names = [f"output {index}" for index in range(len(real.outputs))]
    names += [f"residual {index}" for index in range(len(ours) - len(names))]
    for name, one, other in zip(names, ours, theirs, strict=True):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            _compare_tensors(name, one, other)
            shared = _owner(one, arguments)
            if shared is not None and shared != _owner(other, fakes):
                problem = f"{name} of forward shares memory with tensor {shared} among the arguments"
                raise Breach("memory sharing", f"{problem}; on fake tensors it does not")
        elif isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor) or _differ(one, other):
            raise Breach("fake", f"{name} of forward is {_kind(one)} {_short(one)}; on fake tensors {_short(other)}")


def _compare_tensors(name: str, real: torch.Tensor, fake: torch.Tensor) -> None:
    for rule in ("shape", "dtype", "device"):
        if getattr(real, rule) != getattr(fake, rule):
            one, other = getattr(real, rule), getattr(fake, rule)
            raise Breach("fake", f"{name} of forward has the {rule} {one}; on fake tensors {other}")
    if strides_that_matter(real) != strides_that_matter(fake):
        raise Breach("fake", f"{name} of forward has the strides {real.stride()}; on fake tensors {fake.stride()}")


def _leaves(pieces: Pieces) -> list[Any]:
    return [*pieces.outputs, *iterate_leaves(pieces.residuals)]


def _differ(real: Any, fake: Any) -> bool:
    return isinstance(real, int | float | str | None) and real != fake and real == real


def _owner(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> int | None:
    key = storage_key(tensor)
    return next((index for index, other in enumerate(others) if storage_key(other) == key), None)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"


def _short(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else f"{value!r:.80}"
