"""Compare a compiled program with the program it was compiled from, in everything a caller can see."""

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
    """A compiled program did something else than the program it was compiled from; the message lists what."""


class Arguments:
    """Positional and keyword arguments of one call: ``Arguments(x, scale=2)``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs


@dataclass(frozen=True)
class Observation:
    """What one call did, as a caller can see it."""

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
    """Call ``function`` and ``compile(function)`` on equal fresh arguments and compare all that the calls did.

    Compared are the result (structure, types, tensor metadata, values), the arguments and the state of ``function``
    after the call, which tensors share storage and which are the same object, the state of the random generators, and
    the type of an exception. Callables with state (modules, bound methods, partials) are copied for the compiled run;
    state in a closure is shared by both runs, so put state that is written to into a module or a callable object.

    Args:
        make_arguments: makes the arguments of one call; called under a different fixed seed for each round.
        compile: makes the compiled callable; called once.
        rounds: number of calls; the last has to be a cache hit if ``cache_hits`` is given.
        cache_hits: the number of cache hits of a compiled callable so far.
        comparison: how values are compared; bitwise equal by default.

    Raises:
        BehaviourMismatch: listing each difference.
        Exception: what the compiled program raised where the original did not.
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
    """Call ``function`` once and note all that a caller can see; ``state`` is the object that the call may change."""
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
    """Fill in the gradients of the leaves behind the tensors in ``result``, from fixed random cotangents."""
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
    found = differences(expected.entries, actual.entries, comparison)
    if not torch.equal(expected.torch_random_state, actual.torch_random_state):
        found.append("the state of torch's random generator differs after the call")
    if expected.python_random_state != actual.python_random_state:
        found.append("the state of Python's random generator differs after the call")
    if found:
        shown = found[:20] + ([f"and {len(found) - 20} more"] if len(found) > 20 else [])
        raise BehaviourMismatch("\n  ".join([f"{where}: original and compiled program differ:", *shown]))
