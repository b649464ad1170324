"""The prologue: a generated Python program that checks the guards of a cache entry and finds its inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import torch

from thunder_core.guards.check import Check
from thunder_core.guards.conditions import TYPE, VALUE
from thunder_core.guards.fast_checks import ModesMemo, TensorsMemo, sees_requires_grad
from thunder_core.guards.global_state import GlobalState, always_checked, remaining
from thunder_core.guards.guard import Change, Guard, show
from thunder_core.guards.plain import identical
from thunder_core.guards.prologue_names import PrologueNames
from thunder_core.guards.shared_memory import NonOverlappingGuard, OverlapCheck, SharedMemoryGuard, relations
from thunder_core.guards.sizes import NUMBER, SizesGuard, VaryingNumber
from thunder_core.guards.source import PATH_ERRORS, Args, ConstantSource, Kwargs, Source, is_argument
from thunder_core.guards.steps import ItemSource
from thunder_core.guards.tensor_guard import TensorGuard
from thunder_core.ir.location import one_line
from thunder_core.ir.program import compile_source
from thunder_core.ir.size import SIZE_NAMES

_MARK = "\0"
_INDENTATION = "        "
_LONGEST_LINE = 110
_MOST_INLINE = 8


@dataclass(frozen=True)
class CallShape:
    """How many positional arguments a call has, and the names of the others in order."""

    positional: int
    keywords: tuple[str, ...] = ()

    @classmethod
    def of(cls, args: Args, kwargs: Kwargs) -> CallShape:
        """The shape of one call."""
        return cls(len(args), tuple(kwargs))

    def difference(self, args: Args, kwargs: Kwargs) -> str | None:
        """What is different in another call."""
        if len(args) != self.positional:
            return f"expected {self.positional} positional arguments, got {len(args)}"
        if tuple(kwargs) != self.keywords:
            return f"expected the keyword arguments {show(self.keywords)}, got {show(tuple(kwargs))}"
        return None


@dataclass(frozen=True, eq=False)
class Prologue:
    """The guards of one entry, compiled.

    Attributes:
        guards: all of them, those of input tensors included, in the order of checking.
        state: PyTorch's modes that it expects.
        shape: the call that it expects.
        function: ``function(args, kwargs)`` is the tuple of the computation's inputs, or None when a guard fails.
    """

    guards: tuple[Guard, ...]
    state: GlobalState
    shape: CallShape
    function: Callable[[Args, Kwargs], tuple[Any, ...] | None] = field(repr=False)
    source: str = field(repr=False)

    def python(self) -> str:
        """The prologue as Python."""
        return self.source

    def __str__(self) -> str:
        return self.source

    def why(self, args: Args, kwargs: Kwargs) -> str | None:
        """The text of `change`."""
        change = self.change(args, kwargs)
        return None if change is None else change.text

    def change(self, args: Args, kwargs: Kwargs) -> Change | None:
        """The first reason why this entry does not serve a call, or None when it does."""
        differences = self.state.differences(GlobalState.current())
        if differences:
            return Change(differences[0].partition(":")[0], differences[0], "call it under the same modes each time")
        difference = self.shape.difference(args, kwargs)
        if difference is not None:
            return Change("the arguments", difference, "pass the same number and names of arguments at each call")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # to ask for ``grad`` of what is no leaf warns
            return self._violation(args, kwargs)

    def differing_sizes(self, args: Args, kwargs: Kwargs) -> dict[Source, frozenset[int]] | None:
        """The dimensions of tensors, by their paths, whose sizes alone keep this entry from serving a call.

        For a Python int or float that differs it is `NUMBER`. Empty where only what the entry needs of sizes that vary
        does not hold; None where something else differs.
        """
        if self.state.differences(GlobalState.current()) or self.shape.difference(args, kwargs) is not None:
            return None
        found: dict[Source, frozenset[int]] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for guard in self.guards:
                if isinstance(guard, SizesGuard):
                    continue
                if isinstance(guard, TensorGuard):
                    differing = guard.differing_sizes(args, kwargs)
                    if differing is None:
                        return None
                    if differing:
                        found[guard.source] = found.get(guard.source, frozenset()) | differing
                elif isinstance(guard, Check) and guard.condition is VALUE:
                    numbers = _differing_numbers(guard, args, kwargs)
                    if numbers is None:
                        return None
                    found.update({source: frozenset({NUMBER}) for source in numbers})
                elif _is_violated(guard, args, kwargs):
                    return None
        return found

    def constant_sizes(self) -> list[tuple[str, int]]:
        """Sizes that were to vary and turned out to be constants: for each the path of the tensor and the dimension.

        For a Python int it is `NUMBER`.
        """
        return [place for guard in self.guards if isinstance(guard, SizesGuard) for place in guard.constant_places()]

    def _violation(self, args: Args, kwargs: Kwargs) -> Change | None:
        for guard in self.guards:
            try:
                violation = guard.violation(args, kwargs)
            except PATH_ERRORS as error:
                violation = f"{guard.source.describe()}: cannot be compared ({error})"
            if violation is not None:
                return Change(guard.source.describe(), violation, guard.remedy())
        return None


def build_prologue(
    guards: Sequence[Guard],
    inputs: Sequence[tuple[str, Source, Any]],
    *,
    state: GlobalState,
    shape: CallShape,
    non_overlapping: Iterable[tuple[str, str]] = (),
    sharing: Iterable[tuple[str, ...]] = (),
    exact_stride: bool = False,
    metadata: bool = True,
    sizes: SizesGuard | None = None,
) -> Prologue:
    """Compile guards.

    Args:
        guards: what the observer saw, each after the guards of the paths it goes through.
        inputs: for each input of the computation its name, where it is found, and the object it was this time.
        state: PyTorch's modes at acquisition.
        shape: the acquired call.
        non_overlapping: pairs of names of inputs that must not share memory.
        sharing: for each memory the names of inputs that must share it as they do now.
        exact_stride: the program saw strides, so they count in dimensions of one element too.
        metadata: check the class and metadata of the inputs.
        sizes: what has to hold of sizes that vary. The symbols follow the inputs in what the function returns.
    """
    sized_inputs = () if sizes is None else sizes.inputs
    varying = {id(sized.source): sized.shape for sized in sized_inputs if not isinstance(sized, VaryingNumber)}
    tensor_guards = {
        name: TensorGuard.of(source, value, exact_stride=exact_stride, sizes=varying.get(id(source)))
        for name, source, value in inputs
        if metadata and isinstance(value, torch.Tensor) and not isinstance(source, ConstantSource)
    }
    paths = {name: source for name, source, _ in inputs}
    pairs = tuple(non_overlapping)
    overlap_guards = tuple([NonOverlappingGuard(paths[one], paths[other]) for one, other in pairs])
    objects = {name: value for name, _, value in inputs}
    sharing_guards = {
        names: SharedMemoryGuard(
            paths[names[0]], tuple([paths[name] for name in names[1:]]), relations(*[objects[name] for name in names])
        )
        for names in sharing
    }
    lifted = {id(guard.source) for guard in tensor_guards.values()}
    plain = tuple(
        guard
        for guard in guards
        if not (isinstance(guard, Check) and guard.condition is TYPE and id(guard.source) in lifted)
    )
    of_sizes = () if sizes is None else (sizes,)
    everything = (*plain, *tensor_guards.values(), *of_sizes, *overlap_guards, *sharing_guards.values())
    writer = _Writer(inputs, sizes)
    source = writer.write(plain, tensor_guards, pairs, sharing_guards, state, shape)
    function = compile_source(source, "prologue", writer.names.namespace, title="prologue")
    return Prologue(everything, state, shape, function, source)


class _Writer:
    """Writes one program: in the order of checking, from the cheap and likely failures to the others.

    First come the form of the call, PyTorch's modes and the tensors among the arguments. Then come the objects from the
    roots down: each on the way gets a variable once, and what is expected of it is one condition.

    Attributes:
        names: the namespace that the program runs with.
    """

    def __init__(self, inputs: Sequence[tuple[str, Source, Any]], sizes: SizesGuard | None = None) -> None:
        self._inputs = inputs
        self._sizes = sizes
        self._symbols = () if sizes is None else tuple(sizes.symbols)
        self._input_names = {id(source): name for name, source, _ in inputs}
        self.names = PrologueNames(_INDENTATION)
        for name in (*[name for name, _, _ in inputs], *self._symbols):
            self.names.reserve(name)
        # inputs have the names of the program's parameters, which may be any
        self._value, self._looped = self.names.fresh("v"), self.names.fresh("d")

    def write(
        self,
        guards: Sequence[Guard],
        tensor_guards: dict[str, TensorGuard],
        overlaps: Sequence[tuple[str, str]],
        sharing: Mapping[tuple[str, ...], SharedMemoryGuard],
        state: GlobalState,
        shape: CallShape,
    ) -> str:
        """The program's source."""
        arguments = {name: guard for name, guard in tensor_guards.items() if is_argument(guard.source)}
        held = {name: guard for name, guard in tensor_guards.items() if name not in arguments}
        self._write_call(shape)
        self._write_modes(state)
        self._write_tensors("arguments", arguments, state)
        self._write_guards(guards)
        self._write_tensors("tensors", held, state)
        for name, source, _ in self._inputs:
            self._bind_input(name, source)
        self._write_sizes()
        self._write_overlaps(overlaps)
        self._write_sharing(sharing)
        returned = "".join(f"{name}, " for name in (*[name for name, _, _ in self._inputs], *self._symbols))
        self.names.line(f"return ({returned.rstrip()})")
        caught = PATH_ERRORS if self._sizes is None else (*PATH_ERRORS, ZeroDivisionError)
        errors = self.names.constant(caught, "PATH_ERRORS")
        body = "\n".join(self.names.lines)
        return (
            "def prologue(args, kwargs):\n"
            f"    try:\n{body}\n"
            f"    except {errors}:  # a part of a path is missing\n"
            "        return None\n"
        )

    def _write_call(self, shape: CallShape) -> None:
        condition = f"len(args) != {shape.positional} or "
        self._check([condition + (f"tuple(kwargs) != {shape.keywords!r}" if shape.keywords else "kwargs")])

    def _write_modes(self, state: GlobalState) -> None:
        name = self.names.constant(ModesMemo(), "modes")
        self._check(always_checked(state, self.names))
        self.names.line(f"if not {name}.check():  # not the modes of the last call")
        self._check(remaining(state, self.names), indentation="    ")
        self.names.line(f"    {name}.remember()")

    def _write_tensors(self, memo_name: str, guards: dict[str, TensorGuard], state: GlobalState) -> None:
        """Find and check tensors; conditions are written out for a few, and kept in tables for many."""
        if not guards:
            return
        for name, guard in guards.items():
            self._bind_input(name, guard.source, comment=guard.summary())
        variables = ", ".join(guards)
        memo = self.names.constant(TensorsMemo(tuple(guards.values())), memo_name)
        condition = f"not {memo}.check({variables})"
        if not state["grad_enabled"] and not sees_requires_grad():
            condition += "".join(
                f" or {'not ' if guard.requires_grad else ''}{name}.requires_grad" for name, guard in guards.items()
            )
        if len(guards) > _MOST_INLINE:
            self.names.line(f"if ({condition}) and not {memo}.recheck({variables}):")
            self.names.line("    return None")
            return
        self.names.line(f"if {condition}:  # not the metadata of the last call")
        for name, guard in guards.items():
            self._check([guard.failure(name, self.names)], indentation="    ")
        self.names.line(f"    {memo}.remember({variables})")

    def _write_sizes(self) -> None:
        """Read the sizes that vary, and check what has to hold of them."""
        if self._sizes is None:
            return
        tensors = [
            self._input_names.get(id(sized.source)) or sized.source.expression(self.names)
            for sized in self._sizes.inputs
        ]
        for line in self._sizes.lines(tensors):
            self.names.line(line)
        conditions = self._sizes.conditions(tensors)
        self.names.namespace.update(SIZE_NAMES)
        self._check([f"not ({condition})" for condition in conditions])

    def _write_overlaps(self, pairs: Sequence[tuple[str, str]]) -> None:
        if not pairs:
            return
        taking_part = {name for pair in pairs for name in pair}
        values = {name: value for name, _, value in self._inputs if name in taking_part}
        position = {name: index for index, name in enumerate(values)}
        varies = self._sizes is not None
        check = OverlapCheck(
            [(position[one], position[other]) for one, other in pairs], list(values.values()), varies=varies
        )
        name = self.names.constant(check, "overlaps")
        self.names.line("# what the program writes shares no memory with other inputs")
        self._check([f"not {name}.apart({', '.join(values)})"])

    def _write_sharing(self, guards: Mapping[tuple[str, ...], SharedMemoryGuard]) -> None:
        if not guards:
            return
        function = self.names.constant(relations, "memory_relations")
        self.names.line("# what the program writes is shared by these inputs as it was")
        self._check([f"{function}({', '.join(names)}) != {guard.relations!r}" for names, guard in guards.items()])

    def _bind_input(self, name: str, source: Source, comment: str = "") -> None:
        known = self.names.bound(source) or self.names.bind(source, name, comment)
        if known != name:
            self.names.line(f"{name} = {known}")

    def _write_guards(self, guards: Sequence[Guard]) -> None:
        groups: dict[int, tuple[Source, list[Guard]]] = {}
        anchors = self._anchors(guards)
        looped: list[Check] = []
        for guard in guards:
            anchor = anchors[id(guard.source)]
            members = groups.setdefault(id(anchor), (anchor, []))[1]
            if _is_looped(guard):
                looped.append(guard)
            else:
                members.append(guard)
        for anchor, members in groups.values():
            before = len(self.names.lines)
            self._bind(anchor)
            conditions = []
            for guard in members:
                for path in guard.paths:
                    self._bind(path)
                conditions.append(self._condition(guard))
            self._check(conditions)
            if len(self.names.lines) > before:
                self.names.lines.insert(before, f"{_INDENTATION}# {one_line(anchor.describe())}")
        self._write_looped(looped)

    def _anchors(self, guards: Sequence[Guard]) -> dict[int, Source]:
        """For each guarded path the object whose condition its guards are part of: itself, or the object before it."""
        sources = [guard.source for guard in guards] + [source for _, source, _ in self._inputs]
        bases = {id(parent) for source in sources if (parent := source.parent) is not None}
        count: dict[int, int] = {}
        for guard in guards:
            count[id(guard.source)] = count.get(id(guard.source), 0) + 1
        anchors: dict[int, Source] = {}
        for guard in guards:
            source, parent = guard.source, guard.source.parent
            own = id(source) in bases or count[id(source)] > 1 or id(source) in self._input_names
            anchors[id(source)] = source if parent is None or own else parent
        return anchors

    def _bind(self, source: Source) -> str:
        return self.names.bind(source, self._input_names.get(id(source)))

    def _condition(self, guard: Guard) -> str:
        variable = self.names.bound(guard.source)
        if variable is not None:
            return guard.failure(variable, self.names)
        text = guard.failure(_MARK, self.names)
        path = guard.source.expression(self.names)
        if text.count(_MARK) == 1 or path.isidentifier():
            return text.replace(_MARK, path)
        first, _, rest = text.partition(_MARK)
        return f"{first}({self._value} := {path}){rest.replace(_MARK, self._value)}"

    def _write_looped(self, checks: Sequence[Check]) -> None:
        """Of each condition one loop over the objects that have it."""
        for condition in dict.fromkeys(check.condition for check in checks):
            alike = [check for check in checks if check.condition is condition]
            objects = [check.source.expression(self.names) for check in alike]
            self.names.line(f"# {condition.title}")
            self.names.line(f"for {self._looped} in ({', '.join(objects)},):")
            self._check([alike[0].failure(self._looped, self.names)], indentation="    ")

    def _check(self, conditions: Sequence[str], indentation: str = "") -> None:
        if not conditions:
            return
        joined = " or ".join(conditions)
        line = self.names.line
        if len(joined) <= _LONGEST_LINE or len(conditions) == 1:
            line(f"{indentation}if {joined}:")
        else:
            line(f"{indentation}if (")
            for position, condition in enumerate(conditions):
                line(f"{indentation}{'    or ' if position else '    '}{condition}")
            line(f"{indentation}):")
        line(f"{indentation}    return None")


def _is_violated(guard: Guard, args: Args, kwargs: Kwargs) -> bool:
    try:
        return guard.violation(args, kwargs) is not None
    except PATH_ERRORS:
        return True


def _differing_numbers(guard: Check, args: Args, kwargs: Kwargs) -> list[Source] | None:
    """The paths to ints and floats that differ from what is expected; None where something else differs."""
    try:
        value = guard.source.read(args, kwargs)
    except PATH_ERRORS:
        return None
    return _numbers_between(guard.expected, value, guard.source)


def _numbers_between(expected: Any, value: Any, source: Source) -> list[Source] | None:
    if identical(value, expected):
        return []
    kind = type(expected)
    if type(value) is not kind:
        return None
    if kind is int or kind is float:
        return [source]
    if kind is dict and list(value) == list(expected):
        keys = list(expected)
    elif kind is list and len(value) == len(expected):
        keys = list(range(len(expected)))
    else:
        return None
    found = [_numbers_between(expected[key], value[key], ItemSource(source, key)) for key in keys]
    return None if None in found else [source for numbers in found for source in numbers or ()]


def _is_looped(guard: Guard) -> TypeGuard[Check]:
    return isinstance(guard, Check) and bool(guard.condition.title)
