"""Generates the code of a prologue: constants, local variables for objects on several paths, and conditions."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import torch

from thunder_core.checks.check import Check
from thunder_core.checks.global_state import GlobalState, ModesMemo, always_checked, remaining
from thunder_core.checks.guard import CallShape, Guard
from thunder_core.checks.shared_memory import OverlapCheck, SharedMemoryGuard, relations
from thunder_core.checks.sizes import SizesGuard
from thunder_core.checks.source import (
    PATH_ERRORS,
    Names,
    Source,
    StoredAttributeSource,
    is_argument,
)
from thunder_core.checks.tensor_guard import TensorGuard, TensorsMemo, sees_requires_grad
from thunder_core.ir.location import one_line
from thunder_core.ir.size import SIZE_NAMES

_DICTIONARY_PREFIXES = {"__dict__": "d", "_parameters": "p", "_buffers": "b", "_modules": "s"}
_MARK = "\0"
"""Marks the place of the object in the code of a condition."""
_INDENTATION = "        "
_LONGEST_LINE = 110
_MOST_INLINE = 8
"""The largest number of tensors whose conditions are in the code of the prologue."""
_OBJECT_PREFIXES = {"_parameters": "t", "_buffers": "t", "_modules": "m"}
_RESERVED = frozenset({"args", "kwargs", "prologue", "key", *SIZE_NAMES, *dir(builtins)})


class PrologueNames(Names):
    """Allocates the names of constants and local variables of one function.

    Attributes:
        namespace: the constants by name.
        lines: the indented lines of the function's body so far.
    """

    def __init__(self, indentation: str) -> None:
        self.namespace: dict[str, Any] = {}
        self.lines: list[str] = []
        self._indentation = indentation
        self._constants: dict[Any, str] = {}
        self._variables: dict[int, str] = {}
        self._by_value: dict[Source, str] = {}
        self._dictionaries: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set(_RESERVED)
        self._numbers: dict[str, int] = {}
        self._count = 0

    def line(self, text: str) -> None:
        """Append a line."""
        self.lines.append(self._indentation + text)

    def constant(self, value: Any, hint: str) -> str:
        """The global name of ``value``."""
        key = value if isinstance(value, torch.device) else id(value)
        name = self._constants.get(key)
        if name is None:
            name = self._constants[key] = self.fresh(hint)
            self.namespace[name] = value
        return name

    def fresh(self, hint: str) -> str:
        """An unused identifier that resembles ``hint``."""
        base = hint
        if not (hint.isascii() and hint.isidentifier()):  # Python normalizes other letters
            base = "".join(c if c.isascii() and c.isalnum() else "_" for c in hint) or "constant"
        if base[0].isdigit() or keyword.iskeyword(base):
            base = "_" + base
        name, number = base, self._numbers.get(base, 1)
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._numbers[base] = number
        self._taken.add(name)
        return name

    def reserve(self, name: str) -> None:
        """Exclude ``name``, that of an input of the computation, from the results of `fresh`."""
        self._taken.add(name)

    def bound(self, source: Source) -> str | None:
        """The variable of a path; None if it was not bound."""
        return self._variables.get(id(source))

    def dictionary(self, base: str, attribute: str) -> str:
        """A variable for ``base.attribute``, if ``base`` is a variable."""
        prefix = _DICTIONARY_PREFIXES.get(attribute)
        if prefix is None or not base.isidentifier():
            return f"{base}.{attribute}"
        name = self._dictionaries.get((base, attribute))
        if name is None:
            number = base.lstrip("abcdefghijklmnopqrstuvwxyz")
            name = self._dictionaries[base, attribute] = self.fresh(
                f"{prefix}{number}" if number.isdigit() else f"{prefix}_{base}"
            )
            self.line(f"{name} = {base}.{attribute}")
        return name

    def bind(self, source: Source, name: str | None = None, comment: str = "") -> str:
        """The variable of a path; assigned on the first call, after those of the objects on the path."""
        known = self._variables.get(id(source))
        if known is not None:
            return known
        is_root = source.parent is None  # other paths are expensive to compare by value
        known = self._by_value.get(source) if is_root else None
        if known is not None:
            self._variables[id(source)] = known
            return known
        if source.parent is not None:
            self.bind(source.parent)
        expression = source.expression(self)
        variable = name or self._variable(source)
        self.line(f"{variable} = {expression}" + (f"  # {one_line(comment)}" if comment else ""))
        self._variables[id(source)] = variable
        if is_root:
            self._by_value[source] = variable
        return variable

    def _variable(self, source: Source) -> str:
        self._count += 1
        dictionary = source.dictionary if isinstance(source, StoredAttributeSource) else ""
        return self.fresh(f"{_OBJECT_PREFIXES.get(dictionary, 'o')}{self._count}")


class PrologueWriter(PrologueNames):
    """Generates one prologue, which checks cheap guards and those that fail often first.

    First it checks the shape of the call, PyTorch's modes and the tensors among the arguments, then the other objects:
    each object on several paths gets a local variable, and one condition combines all guards on it.
    """

    def __init__(
        self, inputs: Sequence[tuple[str, Source, Any]], sizes: SizesGuard | None = None, *, modes: bool = True
    ) -> None:
        super().__init__(_INDENTATION)
        self._modes = modes
        self._inputs = inputs
        self._sizes = sizes
        self._symbols = () if sizes is None else tuple(sizes.symbols)
        self._input_names = {id(source): name for name, source, _ in inputs}
        for name in (*[name for name, _, _ in inputs], *self._symbols, *(() if sizes is None else sizes.floats)):
            self.reserve(name)
        # inputs have the names of the program's parameters, which can be arbitrary
        self._value, self._looped = self.fresh("v"), self.fresh("d")

    def write(
        self,
        guards: Sequence[Guard],
        tensor_guards: Mapping[str, TensorGuard],
        overlaps: Sequence[tuple[str, str]],
        sharing: Mapping[tuple[str, ...], SharedMemoryGuard],
        state: GlobalState,
        shape: CallShape,
    ) -> str:
        """The source of the prologue."""
        arguments = {name: guard for name, guard in tensor_guards.items() if is_argument(guard.source)}
        held = {name: guard for name, guard in tensor_guards.items() if name not in arguments}
        self._write_call(shape)
        if self._modes:
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
        self.line(f"return ({returned.rstrip()})")
        caught = PATH_ERRORS if self._sizes is None else (*PATH_ERRORS, ArithmeticError)
        errors = self.constant(caught, "PATH_ERRORS")
        body = "\n".join(self.lines)
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
        name = self.constant(ModesMemo(), "modes")
        self._check(always_checked(state, self))
        self.line(f"if not {name}.check():  # not the modes of the last call")
        self._check(remaining(state, self), indentation="    ")
        self.line(f"    {name}.remember()")

    def _write_tensors(self, memo_name: str, guards: dict[str, TensorGuard], state: GlobalState) -> None:
        """Bind and check tensors. For a few, the code contains their conditions; for many, it calls `TensorsMemo`."""
        if not guards:
            return
        for name, guard in guards.items():
            self._bind_input(name, guard.source, comment=guard.summary())
        variables = ", ".join(guards)
        memo = self.constant(TensorsMemo(tuple(guards.values())), memo_name)
        condition = f"not {memo}.check({variables})"
        if not state["grad_enabled"] and not sees_requires_grad():
            condition += "".join(
                f" or {'not ' if guard.requires_grad else ''}{name}.requires_grad" for name, guard in guards.items()
            )
        if len(guards) > _MOST_INLINE:
            self.line(f"if ({condition}) and not {memo}.recheck({variables}):")
            self.line("    return None")
            return
        self.line(f"if {condition}:  # not the metadata of the last call")
        for name, guard in guards.items():
            self._check([guard.failure(name, self)], indentation="    ")
        self.line(f"    {memo}.remember({variables})")

    def _write_sizes(self) -> None:
        """Read symbolic sizes and varying numbers, and check the conditions on them."""
        if self._sizes is None:
            return
        tensors = [
            self._input_names.get(id(sized.source)) or sized.source.expression(self) for sized in self._sizes.inputs
        ]
        floats = [
            self._input_names.get(id(source)) or source.expression(self) for source in self._sizes.floats.values()
        ]
        for line in self._sizes.lines(tensors, floats):
            self.line(line)
        conditions = self._sizes.conditions(tensors)
        self.namespace.update(SIZE_NAMES)
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
        name = self.constant(check, "overlaps")
        self.line("# inputs that the program writes share no memory with other inputs")
        self._check([f"not {name}.apart({', '.join(values)})"])

    def _write_sharing(self, guards: Mapping[tuple[str, ...], SharedMemoryGuard]) -> None:
        if not guards:
            return
        function = self.constant(relations, "memory_relations")
        self.line("# inputs that the program writes share memory as they did when it was recorded")
        self._check([f"{function}({', '.join(names)}) != {guard.relations!r}" for names, guard in guards.items()])

    def _bind_input(self, name: str, source: Source, comment: str = "") -> None:
        known = self.bound(source) or self.bind(source, name, comment)
        if known != name:
            self.line(f"{name} = {known}")

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
            before = len(self.lines)
            self._bind(anchor)
            conditions = []
            for guard in members:
                for path in guard.paths:
                    self._bind(path)
                conditions.append(self._condition(guard))
            self._check(conditions)
            if len(self.lines) > before:
                self.lines.insert(before, f"{_INDENTATION}# {one_line(anchor.describe())}")
        self._write_looped(looped)

    def _anchors(self, guards: Sequence[Guard]) -> dict[int, Source]:
        """For each guarded path the one whose condition contains its guards: itself, or its parent."""
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
        return self.bind(source, self._input_names.get(id(source)))

    def _condition(self, guard: Guard) -> str:
        variable = self.bound(guard.source)
        if variable is not None:
            return guard.failure(variable, self)
        text = guard.failure(_MARK, self)
        path = guard.source.expression(self)
        if text.count(_MARK) == 1 or path.isidentifier():
            return text.replace(_MARK, path)
        first, _, rest = text.partition(_MARK)
        return f"{first}({self._value} := {path}){rest.replace(_MARK, self._value)}"

    def _write_looped(self, checks: Sequence[Check]) -> None:
        """Write one loop for each condition, over the objects to which it applies."""
        for condition in dict.fromkeys(check.condition for check in checks):
            alike = [check for check in checks if check.condition is condition]
            objects = [check.source.expression(self) for check in alike]
            self.line(f"# {condition.title}")
            self.line(f"for {self._looped} in ({', '.join(objects)},):")
            self._check([alike[0].failure(self._looped, self)], indentation="    ")

    def _check(self, conditions: Sequence[str], indentation: str = "") -> None:
        if not conditions:
            return
        joined = " or ".join(conditions)
        if len(joined) <= _LONGEST_LINE or len(conditions) == 1:
            self.line(f"{indentation}if {joined}:")
        else:
            self.line(f"{indentation}if (")
            for position, condition in enumerate(conditions):
                self.line(f"{indentation}{'    or ' if position else '    '}{condition}")
            self.line(f"{indentation}):")
        self.line(f"{indentation}    return None")


def _is_looped(guard: Guard) -> TypeGuard[Check]:
    return isinstance(guard, Check) and bool(guard.condition.title)
