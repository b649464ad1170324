"""Comparison of a compiled program with the original program in everything that a caller can observe."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_testing.copying import copy_together
from thunder_testing.difference import Comparison, differences
from thunder_testing.seeding import seed_generators
from thunder_testing.snapshot import Entry, snapshot


class BehaviourMismatch(AssertionError):
    """The behavior of a compiled program differs from that of the original; the message lists the differences."""


class Arguments:
    """Positional and keyword arguments of a call: ``Arguments(x, scale=2)``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs


@dataclass(frozen=True)
class Observation:
    """The effects of a call that a caller can observe."""

    entries: dict[str, Entry] = field(repr=False)
    exception: Exception | None
    torch_random_state: torch.Tensor = field(repr=False)
    python_random_state: object = field(repr=False)


def assert_same_behaviour(
    function: Callable[..., Any],
    make_arguments: Callable[[], Arguments | tuple[Any, ...]],
    compile: Callable[[Callable[..., Any]], Callable[..., Any]],
    *,
    rounds: int = 2,
    cache_hits: Callable[[Any], int] | None = None,
    comparison: Comparison | None = None,
    seed: int = 0,
) -> None:
    """Call ``function`` and ``compile(function)`` with equal arguments and compare all observable effects.

    These are the result (structure, types, tensor metadata, values), the arguments and the state of ``function`` after
    the call, shared storages and identical objects, the state of the random generators, and the type of an exception.
    Callables with state (modules, bound methods, partials) are copied for the compiled run. State in a closure is
    shared by both runs, so state that is written must be in a module or a callable object.

    Args:
        make_arguments: returns the arguments of a call; called with a different fixed seed in each round.
        compile: returns the compiled callable; called once.
        rounds: number of calls; with ``cache_hits`` the last one must be a cache hit.
        cache_hits: from a compiled callable to its number of cache hits.
        comparison: how values are compared; bitwise by default.

    Raises:
        BehaviourMismatch: the runs differ.
        Exception: an exception of the compiled program that the original does not raise.
    """
    comparison = comparison or Comparison()
    (twin,) = copy_together(function)
    compiled = compile(twin)
    for round_number in range(rounds):
        seed_generators(seed + round_number)
        arguments = make_arguments()
        if not isinstance(arguments, Arguments):
            arguments = Arguments(*arguments)
        equal_args, equal_kwargs = copy_together(arguments.args, arguments.kwargs)
        equal_arguments = Arguments(*equal_args, **equal_kwargs)
        hits_before = cache_hits(compiled) if cache_hits else 0
        expected = observe(function, function, arguments, comparison, seed=seed + round_number)
        actual = observe(compiled, twin, equal_arguments, comparison, seed=seed + round_number)
        _check(expected, actual, comparison, f"call {round_number + 1}")
        if (
            cache_hits
            and 0 < round_number == rounds - 1
            and not expected.exception
            and cache_hits(compiled) <= hits_before
        ):
            raise BehaviourMismatch(f"call {round_number + 1} missed the cache though only values changed")


def observe(
    function: Callable[..., Any], state: Any, arguments: Arguments, comparison: Comparison, *, seed: int
) -> Observation:
    """Call ``function`` once and record all observable effects; ``state`` is the object that it may modify."""
    seed_generators(seed)
    result, exception = None, None
    try:
        result = function(*arguments.args, **arguments.kwargs)
        if comparison.gradients:
            _run_backward(result, seed)
    except Exception as error:  # noqa: BLE001 - whatever the program raises is what is observed
        exception = error
    entries = snapshot(function=state, args=arguments.args, kwargs=arguments.kwargs, result=result)
    return Observation(entries, exception, torch.get_rng_state(), random.getstate())


def _run_backward(result: Any, seed: int) -> None:
    """Compute the gradients of the leaves behind the tensors in ``result``, with fixed random cotangents."""
    tensors = [entry.value for entry in snapshot(result=result).values() if isinstance(entry.value, torch.Tensor)]
    outputs = [tensor for tensor in tensors if tensor.requires_grad]
    generator = torch.Generator().manual_seed(seed)
    cotangents = [torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype) for tensor in outputs]
    torch.autograd.backward(outputs, cotangents)


def _check(expected: Observation, actual: Observation, comparison: Comparison, where: str) -> None:
    if actual.exception is not None and expected.exception is None:
        raise actual.exception
    if type(actual.exception) is not type(expected.exception):
        raise BehaviourMismatch(
            f"{where}: the original raised {expected.exception!r}, the compiled program {actual.exception!r}"
        ) from actual.exception
    lines = differences(expected.entries, actual.entries, comparison)
    if comparison.random_state and not torch.equal(expected.torch_random_state, actual.torch_random_state):
        lines.append("the state of torch's random generator differs after the call")
    if comparison.random_state and expected.python_random_state != actual.python_random_state:
        lines.append("the state of Python's random generator differs after the call")
    if lines:
        shown = lines[:20] + ([f"and {len(lines) - 20} more"] if len(lines) > 20 else [])
        raise BehaviourMismatch("\n  ".join([f"{where}: original and compiled program differ:", *shown]))
