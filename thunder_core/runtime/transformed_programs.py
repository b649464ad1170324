"""Programs of tensors alone, and what torch.func makes of them: what runs for a call under its transformations.

A flat program takes the user's function and tensors, and returns a tuple of tensors and a template for the result that
they belong in, None for a derivative. Each function here makes one; programs that are made of equal things do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

import torch

from thunder_core.acquire.mode import any_wrapped
from thunder_core.errors import ThunderError, UnsupportedError
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.pytorch_internals import current_level, tree_flatten, tree_map, tree_unflatten
from thunder_core.runtime.compiled import Compiled
from thunder_core.runtime.entry import Entry

Tensors = tuple[torch.Tensor, ...]
FlatProgram = Callable[..., tuple[Tensors, Any]]
CONSTANTS: Final = (type(None), bool, int, float, complex, str, torch.dtype, torch.device)
"""Classes of what may be among arguments and results beside tensors."""


def flat_program(spec: Any, leaves: tuple[tuple[bool, Any], ...], names: tuple[str, ...]) -> FlatProgram:
    """A call of a function, which is an argument so that guards follow what it reads.

    Args:
        spec: the structure of positional and keyword arguments.
        leaves: for each leaf of it whether it is a tensor, and what it is otherwise.
        names: of the parameters and buffers of the module that are the program's first tensors.
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
        raise UnsupportedError("under torch.func, results are tensors and plain values")
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
        varied: which of its tensors get a gradient.
        used: for which of its results there is a cotangent.
    """

    def pulled(function: Callable[..., Any], *tensors: torch.Tensor) -> tuple[Tensors, Any]:
        count = len(varied)
        _, pull, *_ = torch.func.vjp(
            _partial(program, function, tensors[:count], varied, used), *_chosen(tensors, varied)
        )
        return pull(tensors[count:]), None

    return pulled


def jvp_program(program: FlatProgram, varied: tuple[bool, ...], used: tuple[bool, ...]) -> FlatProgram:
    """`torch.func.jvp` of ``program``: takes its tensors and tangents, returns tangents.

    Args:
        program: what is differentiated.
        varied: for which of its tensors there is a tangent.
        used: which of its results get a tangent.
    """

    def pushed(function: Callable[..., Any], *tensors: torch.Tensor) -> tuple[Tensors, Any]:
        count = len(varied)
        of = _partial(program, function, tensors[:count], varied, used)
        return torch.func.jvp(of, _chosen(tensors, varied), tensors[count:])[1], None

    return pushed


def _partial(
    program: FlatProgram,
    function: Callable[..., Any],
    tensors: Tensors,
    varied: tuple[bool, ...],
    used: tuple[bool, ...],
) -> Callable[..., Tensors]:
    """``program`` as a function of some of its tensors that returns some of its results."""

    def of(*chosen: torch.Tensor) -> Tensors:
        rest = iter(chosen)
        every = [next(rest) if vary else tensor for tensor, vary in zip(tensors, varied, strict=True)]
        results, _ = program(function, *every)
        return _chosen(results, used)

    return of


def _chosen(values: Sequence[torch.Tensor], which: tuple[bool, ...]) -> Tensors:
    return tuple([value for value, chosen in zip(values, which, strict=False) if chosen])


NO_LEVEL: Final = -1
"""Of forward-mode differentiation that is not active."""


class NotTransformed(ThunderError):
    """The call runs as eager PyTorch, for the reason that the message gives."""


class PlainPrograms(Compiled):
    """The cache of a program that runs without transformations.

    Args:
        of: the program that the user calls.
        function: what it is under transformations.
        may_draw: it may draw random numbers.
    """

    def __init__(self, of: Compiled, function: FlatProgram, may_draw: bool) -> None:
        super().__init__(function, of.name, of.settings)
        self.called = of.function
        self._may_draw = may_draw
        self._refusals: WeakKeyDictionary[Entry, str | None] = WeakKeyDictionary()

    def found(self, tensors: Tensors) -> tuple[Entry, tuple[Any, ...]]:
        """The entry for the tensors, compiled if there is none, and its inputs.

        Raises:
            NotTransformed: the program has to run as eager PyTorch.
        """
        found = self.known(tensors)
        if found is None:
            entry, inputs = self._miss((self.called, *tensors), {})
            return entry, inputs
        why = self._refusal(*found)
        if why is not None:
            raise NotTransformed(why)
        self.hits += 1
        return found

    def known(self, tensors: Tensors) -> tuple[Entry, tuple[Any, ...]] | None:
        """The entry for the tensors and its inputs, if there is one."""
        return self._dispatcher.find((self.called, *tensors), {})

    def _bypass_reason(self) -> str | None:
        # a level of forward mode is functorch's: that of a jvp, of which these tensors are no part
        return super()._bypass_reason() if current_level.value == NO_LEVEL else None

    def _run(self, entry: Entry, inputs: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return entry, inputs

    def _eager(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotTransformed(reason)

    def _accept(self, entry: Entry, inputs: tuple[Any, ...]) -> None:
        why = self._refusal(entry, inputs)
        if why is None:
            return
        if entry.made.cached and not any_wrapped(inputs):
            self._keep(entry)  # so that the next call is refused without a compilation
        raise NotTransformed(why)

    def _refusal(self, entry: Entry, inputs: tuple[Any, ...]) -> str | None:
        if any_wrapped(inputs):
            return "it reads a tensor of a torch.func transformation that is not among its arguments"
        if entry not in self._refusals:
            self._refusals[entry] = self._refusal_of(entry)
        return self._refusals[entry]

    def _refusal_of(self, entry: Entry) -> str | None:
        if entry.raises:
            return "under torch.func, it ends with an exception"
        if any(isinstance(value, torch.Tensor) for value in entry.constants.values()):  # perhaps below a wrapped one
            return "under torch.func, it reads a tensor that is neither an argument nor an attribute or variable"
        drawn, visible = _effects(entry.traces[0])
        if _writes_input(entry.traces[0]) or entry.epilogue is not None or entry.made.writes or visible:
            return "under torch.func, it writes, or does something else that happens once"
        if entry.random_states or (drawn and not self._may_draw):
            return "it draws random numbers under a torch.func transformation that would draw them again"
        if entry.guesses or entry.once or entry.unfit or entry.made.as_recorded:
            return "under torch.func, what it does depends on values, or cannot be compiled as a whole"
        if self.states.found or self.states.loaded:
            return "an executor keeps states between its calls"
        return None


class Transformed:
    """A kind of call, or what transformations made of it.

    Args:
        of: the program that the user calls.
        function: what is called.
        may_draw: nothing computes again what it computes.
    """

    def __init__(self, of: Compiled, function: FlatProgram, may_draw: bool) -> None:
        self.function = function
        self.compiled = PlainPrograms(of, function, may_draw)
        self.refusals = 0
        self.checked: WeakSet[Entry] = WeakSet()
        self._of = of
        self._may_draw = may_draw
        self._derived: dict[tuple[Any, ...], Transformed] = {}

    def derived(self, make: Callable[..., FlatProgram], *options: Any) -> Transformed:
        """What ``make(function, *options)`` makes of it: the same for equal options."""
        known = self._derived.get((make, *options))
        if known is None:
            made = Transformed(self._of, make(self.function, *options), self._may_draw)
            known = self._derived.setdefault((make, *options), made)
        return known

    def programs(self) -> Iterator[Compiled]:
        """The programs that were compiled for it."""
        yield self.compiled
        for derived in tuple(self._derived.values()):
            yield from derived.programs()


def _effects(trace: Trace) -> tuple[bool, bool]:
    """Whether a trace draws random numbers, and whether it does what is visible outside of its tensors."""
    lines = [line for program in trace.programs() for line in program.symbols]
    return any(line.effects.random for line in lines), any(line.effects.visible for line in lines)


def _writes_input(trace: Trace) -> bool:
    written = Aliases.of(trace).written
    return any(isinstance(proxy, TensorProxy) and proxy.storage in written for proxy in trace.inputs)
