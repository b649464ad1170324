"""Write guards down as the Python program of a prologue.

The program checks the form of the call, PyTorch's modes, the tensors among the arguments, then walks from the roots
down: each object on the way gets a variable once, and what is expected of it is one condition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thunder_core.guards.call_shape import CallShape
from thunder_core.guards.fast_checks import ModesMemo, TensorsMemo, sees_requires_grad
from thunder_core.guards.global_state import GlobalState, always_checked, remaining
from thunder_core.guards.guard import Guard
from thunder_core.guards.overlap_check import OverlapCheck
from thunder_core.guards.prologue_names import PrologueNames
from thunder_core.guards.shared_memory import SharedMemoryGuard, relations
from thunder_core.guards.source import PATH_ERRORS, Source, is_argument
from thunder_core.guards.structure_guards import (
    NoHooksGuard,
)
from thunder_core.guards.tensor_guard import TensorGuard
from thunder_core.ir.location import one_line

_MARK = "\0"
_INDENTATION = "        "
_LONGEST_LINE = 110
_MOST_INLINE = 8


class PrologueWriter:
    """Writes one program.

    Attributes:
        names: the namespace that the program runs with.
    """

    def __init__(self, inputs: Sequence[tuple[str, Source, Any]]) -> None:
        self._inputs = inputs
        self._input_names = {id(source): name for name, source, _ in inputs}
        self.names = PrologueNames(_INDENTATION)
        for name, _, _ in inputs:
            self.names.reserve(name)
        # inputs have the names of the program's parameters, which may be any
        self._value, self._dictionary = self.names.fresh("v"), self.names.fresh("d")

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
        self._write_overlaps(overlaps)
        self._write_sharing(sharing)
        returned = "".join(f"{name}, " for name, _, _ in self._inputs)
        self.names.line(f"return ({returned.rstrip()})")
        errors = self.names.constant(PATH_ERRORS, "PATH_ERRORS")
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

    def _write_overlaps(self, pairs: Sequence[tuple[str, str]]) -> None:
        if not pairs:
            return
        taking_part = {name for pair in pairs for name in pair}
        values = {name: value for name, _, value in self._inputs if name in taking_part}
        position = {name: index for index, name in enumerate(values)}
        check = OverlapCheck([(position[one], position[other]) for one, other in pairs], list(values.values()))
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
        known = self.names.bound(source)
        if known is None:
            self.names.bind(source, name, comment)
        elif known != name:
            self.names.line(f"{name} = {known}")

    def _write_guards(self, guards: Sequence[Guard]) -> None:
        groups: dict[int, tuple[Source, list[Guard]]] = {}
        anchors = self._anchors(guards)
        unhooked: list[Source] = []
        for guard in guards:
            anchor = anchors[id(guard.source)]
            members = groups.setdefault(id(anchor), (anchor, []))[1]
            if type(guard) is NoHooksGuard:
                unhooked.append(anchor)
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
        self._write_hooks(unhooked)

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
            anchors[id(source)] = source if parent is None or own or type(guard) is NoHooksGuard else parent
        return anchors

    def _bind(self, source: Source) -> str:
        return self.names.bind(source, self._input_names.get(id(source)))

    def _condition(self, guard: Guard) -> str:
        variable = self.names.bound(guard.source)
        if variable is not None:
            return guard.failure(variable, self.names)
        text = guard.failure(_MARK, self.names)
        path = guard.source.expression(self.names)
        if text.count(_MARK) == 1:
            return text.replace(_MARK, path)
        first, _, rest = text.partition(_MARK)
        return f"{first}({self._value} := {path}){rest.replace(_MARK, self._value)}"

    def _write_hooks(self, unhooked: Sequence[Source]) -> None:
        """All modules that were called have the same condition: one loop."""
        if not unhooked:
            return
        own = [self.names.dictionary(self._bind(source), "__dict__") for source in unhooked]
        self.names.line("# modules that were called: no hooks, and the forward of their class")
        one = self._dictionary
        self.names.line(f"for {one} in ({', '.join(own)},):")
        conditions = [f"'forward' in {one}", *(f"{one}[{name!r}]" for name in NoHooksGuard.dictionaries)]
        self._check([" or ".join(conditions)], indentation="    ")

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
