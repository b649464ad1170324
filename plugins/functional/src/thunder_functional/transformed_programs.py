"""Flat programs, and their `torch.func` transformations: the functions that are compiled for transformed calls.

A flat program takes the user's function and tensors, and returns a tuple of tensors and a template of the result that
contains them, None for a derivative. Each function here returns one; equal arguments result in equivalent programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

import torch

from thunder.compiled.function import NotTransformed
from thunder_core.errors import UnsupportedError
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.pytorch_internals import current_level, tree_flatten, tree_map, tree_unflatten
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_core.runtime.program_cache import ProgramCache
from thunder_core.runtime.warm_up import WarmUp
from thunder_core.settings import Settings
from thunder_frontend.record.traced_tensor import any_transformed

Tensors = tuple[torch.Tensor, ...]
FlatProgram = Callable[..., tuple[Tensors, Any]]
CONSTANTS: Final = (type(None), bool, int, float, complex, str, torch.dtype, torch.device)
"""Classes of arguments and results other than tensors."""


def flat_program(spec: Any, leaves: tuple[tuple[bool, Any], ...], names: tuple[str, ...]) -> FlatProgram:
    """The flat program that calls a function. The function is an argument, so that guards reach what it reads.

    Args:
        spec: the structure of the positional and keyword arguments.
        leaves: for each leaf of the arguments, whether it is a tensor, and its value if not.
        names: names of the parameters and buffers of the module that are the first tensors of the program.
    """

    def program(function: Callable[..., Any], *tensors: torch.Tensor) -> tuple[Tensors, Any]:
        rest = iter(tensors[len(names) :])
        args, kwargs = tree_unflatten([next(rest) if tensor else leaf for tensor, leaf in leaves], spec)
        if not names:
            return _split(function(*args, **kwargs))
        state = dict(zip(names, tensors, strict=False))
        return _split(torch.func.functional_call(function, state, args, kwargs))  # type: ignore[arg-type]

    return program


def _split(result: Any) -> tuple[Tensors, Any]:
    leaves, spec = tree_flatten(result)
    tensors = tuple([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
    others = tuple([None if isinstance(leaf, torch.Tensor) else (leaf,) for leaf in leaves])
    if not tensors or not all(other is None or type(other[0]) in CONSTANTS for other in others):
        raise UnsupportedError(
            "under torch.func, results are tensors and plain values",
            advice=("return the tensors that the object holds",),
        )
    return tensors, (tree_unflatten(list(range(len(leaves))), spec), others)


def joined(template: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """The result that a template describes."""
    tree, others = template
    rest = iter(tensors)
    leaves = [next(rest) if other is None else other[0] for other in others]
    return tree_map(lambda index: leaves[index], tree)


def vmap_program(program: FlatProgram, in_dims: tuple[int | None, ...], randomness: str) -> FlatProgram:
    """`torch.func.vmap` of ``program``, whose results have the batch as their first dimension."""

    def mapped(function: Callable[..., Any], *tensors: torch.Tensor) -> tuple[Tensors, Any]:
        templates = []

        def of(*tensors: torch.Tensor) -> Tensors:
            results, template = program(function, *tensors)
            templates.append(template)
            return results

        results = torch.func.vmap(of, in_dims, randomness=randomness)(*tensors)
        return results, templates[0]

    return mapped


def vjp_program(program: FlatProgram, varied: tuple[bool, ...], used: tuple[bool, ...]) -> FlatProgram:
    """`torch.func.vjp` of ``program``: takes its tensors and cotangents, returns gradients.

    Args:
        program: what is differentiated.
        varied: for each of its tensors, whether it gets a gradient.
        used: for each of its results, whether there is a cotangent.
    """
    return _derivative(program, varied, used, lambda of, at, cotangents: torch.func.vjp(of, *at)[1](cotangents))


def jvp_program(program: FlatProgram, varied: tuple[bool, ...], used: tuple[bool, ...]) -> FlatProgram:
    """`torch.func.jvp` of ``program``: takes its tensors and tangents, returns tangents.

    Args:
        program: what is differentiated.
        varied: for each of its tensors, whether there is a tangent.
        used: for each of its results, whether it gets a tangent.
    """
    return _derivative(program, varied, used, lambda of, at, tangents: torch.func.jvp(of, at, tangents)[1])


def _derivative(
    program: FlatProgram,
    varied: tuple[bool, ...],
    used: tuple[bool, ...],
    derive: Callable[[Callable[..., Tensors], Tensors, Tensors], Tensors],
) -> FlatProgram:
    """A program that takes the tensors of ``program`` and those by which ``derive`` multiplies its derivative."""

    def derived(function: Callable[..., Any], *tensors: torch.Tensor) -> tuple[Tensors, Any]:
        own, given = tensors[: len(varied)], tensors[len(varied) :]

        def of(*chosen: torch.Tensor) -> Tensors:
            rest = iter(chosen)
            every = [next(rest) if vary else tensor for tensor, vary in zip(own, varied, strict=True)]
            results, _ = program(function, *every)
            return _chosen(results, used)

        return derive(of, _chosen(own, varied), given), None

    return derived


def _chosen(values: Sequence[torch.Tensor], which: tuple[bool, ...]) -> Tensors:
    return tuple([value for value, chosen in zip(values, which, strict=False) if chosen])


NO_LEVEL: Final = -1
"""The level of forward-mode differentiation while it is not active."""


class TransformedCache(ProgramCache):
    """The cache of a transformed program, whose entries run without transformations.

    Args:
        function: the transformed program.
        called: the program that the user calls.
        name: its name, for messages.
        settings: how it is compiled.
        warm_up: when calls may compile.
        may_be_random: whether it may use random numbers.
    """

    def __init__(
        self,
        function: FlatProgram,
        called: Callable[..., Any],
        name: str,
        settings: Settings,
        warm_up: WarmUp,
        may_be_random: bool,
    ) -> None:
        super().__init__(function, name, settings)
        self.warm_up = warm_up
        self.called = called
        self._may_be_random = may_be_random
        self._refusals: WeakKeyDictionary[CacheEntry, str | None] = WeakKeyDictionary()

    def entry_for(self, tensors: Tensors) -> tuple[CacheEntry, tuple[Any, ...]]:
        """The entry for the tensors, compiled if there is none, and its inputs.

        Raises:
            NotTransformed: the program has to run as eager PyTorch.
        """
        found = self.cached_entry(tensors)
        if found is None:
            entry, inputs = self._miss((self.called, *tensors), {})
            return entry, inputs
        why = self._refusal(*found)
        if why is not None:
            raise NotTransformed(why)
        self.hits += 1
        return found

    def cached_entry(self, tensors: Tensors) -> tuple[CacheEntry, tuple[Any, ...]] | None:
        """The entry for the tensors and its inputs, if there is one."""
        return self._dispatcher.find((self.called, *tensors), {})

    def _bypass_reason(self) -> str | None:
        # a level of forward mode is that of a jvp of functorch, to which these tensors do not belong
        return super()._bypass_reason() if current_level.value == NO_LEVEL else None

    def _run(self, entry: CacheEntry, inputs: tuple[Any, ...], *_: Any, **__: Any) -> Any:
        return entry, inputs

    def _eager(self, reason: str, *_: Any, **__: Any) -> Any:
        raise NotTransformed(reason)

    def _accept(self, entry: CacheEntry, inputs: tuple[Any, ...]) -> None:
        why = self._refusal(entry, inputs)
        if why is None:
            return
        if entry.cached and not any_transformed(inputs):
            self._store(entry)  # so that the next call is refused without a compilation
        raise NotTransformed(why)

    def _refusal(self, entry: CacheEntry, inputs: tuple[Any, ...]) -> str | None:
        if any_transformed(inputs):
            return "it reads a tensor of a torch.func transformation that is not among its arguments"
        if entry not in self._refusals:
            self._refusals[entry] = self._refusal_of(entry)
        return self._refusals[entry]

    def _refusal_of(self, entry: CacheEntry) -> str | None:
        if entry.raised is not None:
            return "under torch.func, it ends with an exception"
        if any(isinstance(value, torch.Tensor) for value in entry.constants.values()):  # perhaps below a wrapped one
            return "under torch.func, it reads a tensor that is neither an argument nor an attribute or variable"
        random, visible = _effects(entry.program.traces[0])
        if (
            _writes_input(entry.program.traces[0])
            or entry.program.functional.epilogue is not None
            or entry.writes
            or visible
        ):
            return "under torch.func, it writes, or does something else that happens once"
        if entry.random_states or (random and not self._may_be_random):
            return "it draws random numbers under a torch.func transformation that would draw them again"
        if entry.guesses or entry.uncopied or entry.unfit or entry.program.as_recorded:
            return "under torch.func, what it does depends on values, or cannot be compiled as a whole"
        if self.states.by_key or self.states.loaded:
            return "an executor keeps states between its calls"
        return None


class TransformedProgram:
    """The program of one kind of call, or a transformation of such a program.

    Args:
        function: the flat program.
        called, name, settings, warm_up, may_be_random: as for `TransformedCache`; no derivative recomputes a random
            program.
    """

    def __init__(
        self,
        function: FlatProgram,
        called: Callable[..., Any],
        name: str,
        settings: Settings,
        warm_up: WarmUp,
        may_be_random: bool,
    ) -> None:
        self.function = function
        self.cache = TransformedCache(function, called, name, settings, warm_up, may_be_random)
        self.refusals = 0
        self.checked: WeakSet[CacheEntry] = WeakSet()
        self._may_be_random = may_be_random
        self._derived: dict[tuple[Any, ...], TransformedProgram] = {}

    def derived(self, make: Callable[..., FlatProgram], *options: Any) -> TransformedProgram:
        """The program ``make(function, *options)``; the same object for equal options."""
        known = self._derived.get((make, *options))
        if known is None:
            cache = self.cache
            function = make(self.function, *options)
            derived = TransformedProgram(
                function, cache.called, cache.name, cache.settings, cache.warm_up, self._may_be_random
            )
            known = self._derived.setdefault((make, *options), derived)
        return known

    def caches(self) -> Iterator[TransformedCache]:
        """The caches of this program and of its transformations."""
        yield self.cache
        for derived in tuple(self._derived.values()):
            yield from derived.caches()


def _effects(trace: Trace) -> tuple[bool, bool]:
    """Whether a trace has random ops, and whether it has effects that are visible outside of its tensors."""
    ops = [bound for program in trace.programs() for bound in program.symbols]
    return any(bound.effects.random for bound in ops), any(bound.effects.visible for bound in ops)


def _writes_input(trace: Trace) -> bool:
    written = Aliases.of(trace).written
    return any(isinstance(proxy, TensorProxy) and proxy.storage in written for proxy in trace.inputs)
