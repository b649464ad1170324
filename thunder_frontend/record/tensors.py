"""The tensor objects of the running program, with their variables and fakes."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import map_leaves
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_alias, make_derived
from thunder_frontend.record.inputs import Inputs
from thunder_frontend.record.open_trace import OpenTrace
from thunder_frontend.record.traced_number import TracedNumber
from thunder_frontend.record.traced_size import untraced
from thunder_frontend.record.traced_tensor import Variable, invalidate, make_traced, metadata_key, variable_of


class Suspension:
    """A context for torch code that the recorder itself runs: its calls are not recorded as calls of the program.

    Not written with `contextlib`, whose frames would be observed as frames of the program.

    Attributes:
        active: how often the context is entered: 0 while the program runs.
    """

    __slots__ = ("active",)

    def __init__(self) -> None:
        self.active = 0

    def __enter__(self) -> None:
        self.active += 1

    def __exit__(self, *_: object) -> None:
        self.active -= 1


class Tensors:
    """The tensor objects that the program has used: the variable and the fake of each.

    Attributes:
        fake_mode: the mode that infers metadata.
        created: the traced tensors that the program received.
        numbers: the computed numbers that the program received.
        renamed: variables that got a new proxy by a write, each with its former proxy, in order.
        other_gradients: tensors whose gradient the program set or deleted, or that a user's function changed.
    """

    def __init__(self, trace: OpenTrace, inputs: Inputs, fake_mode: ObservingFakeMode, suspension: Suspension) -> None:
        self.fake_mode = fake_mode
        self.created: list[weakref.ref[torch.Tensor]] = []
        self.numbers: list[weakref.ref[Any]] = []
        self.renamed: list[tuple[Variable, TensorProxy]] = []
        self.other_gradients: set[Variable] = set()
        self._names = trace.names
        self._storages = trace.storages
        self._inputs = inputs
        self._suspension = suspension

    def close(self) -> None:
        """Release the user's objects at once, not only when reference cycles are collected."""
        for tensor in self.alive():
            invalidate(tensor)
        self.created.clear()

    def variable(self, tensor: torch.Tensor) -> Variable:
        """The variable of a tensor object; a real tensor becomes an input of the trace."""
        return variable_of(tensor) or self._inputs.lift(tensor)

    def proxy_of(self, tensor: torch.Tensor) -> TensorProxy:
        """The current proxy of a tensor object; a real tensor becomes an input of the trace."""
        return self.variable(tensor).proxy

    def find(self, tensor: torch.Tensor) -> Variable | None:
        """The variable of a tensor object; None for a real tensor that is not an input of the trace."""
        return variable_of(tensor) or self._inputs.find(tensor)

    def traced(self, variable: Variable, kind: type[torch.Tensor] = torch.Tensor) -> torch.Tensor:
        """A new traced tensor for a variable; ``kind`` is given for tensors of the user's classes."""
        tensor = make_traced(variable, kind)
        self.created.append(weakref.ref(tensor))
        return tensor

    def alive(self, first: int = 0) -> list[torch.Tensor]:
        """The traced tensors of ``created[first:]`` that are still referenced."""
        return [tensor for reference in self.created[first:] if (tensor := reference()) is not None]

    def exempt_from_leak_check(self, tensor: torch.Tensor) -> None:
        """Exempt ``tensor`` from the check for leaks: PyTorch itself stores it, where no program can reach it."""
        self.created = [reference for reference in self.created if reference() is not tensor]

    def objects(self) -> Iterator[tuple[torch.Tensor, Variable]]:
        """The tensor objects that the program can reach, with their variables."""
        for item in self._inputs:
            if isinstance(item.value, torch.Tensor) and (variable := self._inputs.find(item.value)) is not None:
                yield item.value, variable
        for tensor in self.alive():
            yield tensor, self.variable(tensor)

    def rename(self, variable: Variable, **metadata: Any) -> TensorProxy:
        """The new proxy of a tensor object that a call wrote, or whose ``metadata`` it changed."""
        self.renamed.append((variable, variable.proxy))
        variable.proxy = replace(variable.proxy, name=self._names.intermediate(), **metadata)
        variable.key = metadata_key(variable.proxy, variable.bits)
        return variable.proxy

    def is_constant(self, variable: Variable) -> bool:
        """Whether a tensor's value is the same in every run."""
        return variable.constant and variable.proxy.storage in self._storages.constant

    def fake(self, variable: Variable) -> Any:
        """The fake of a variable, created at the first use."""
        if variable.fake is None:
            with self._suspension, self.fake_mode.observing():
                if variable.base is not None:
                    variable.fake = make_alias(self.fake(variable.base), variable.proxy, leaf=variable.detached)
                else:
                    variable.fake = make_derived(self.fake_mode, variable.proxy)
                    self._storages.bind(variable.fake, variable.proxy.storage)
        return variable.fake

    def create_fakes_of_views(self, variables: Iterable[Variable]) -> None:
        """Create the fakes of the views that share storage with these tensors, before a call that may write them.

        A fake that is created later would be a view of the written tensor: of its new storage, or without its history.
        """
        storages = {variable.proxy.storage for variable in variables}
        for tensor in self.alive():
            variable = self.variable(tensor)
            if variable.base is not None and variable.proxy.storage in storages:
                self.fake(variable)

    def requires_grad(self, variable: Variable) -> bool:
        """Whether a tensor requires grad now, also by a write to another tensor with the same history."""
        if variable.fake is not None:
            return bool(variable.fake.requires_grad)
        base = variable.base
        if base is None or variable.detached or self.requires_grad(base) == base.proxy.requires_grad:
            return variable.proxy.requires_grad
        return self.requires_grad(base) and (variable.proxy.dtype.is_floating_point or variable.proxy.dtype.is_complex)

    def all_variables(self) -> list[Variable]:
        """The variables of the tensor objects that the program can reach, and of their bases."""
        variables = dict.fromkeys(variable for _, variable in self.objects())
        for variable in list(variables):
            while (base := variable.base) is not None and base not in variables:
                variables[base] = None
                variable = base
        return list(variables)

    def fakes(self, value: Any) -> Any:
        """Nested arguments with fakes in place of tensors."""
        return map_leaves(
            lambda leaf: self.fake(self.variable(leaf)) if isinstance(leaf, torch.Tensor) else _plain(leaf), value
        )

    def proxies(self, value: Any) -> Any:
        """Nested values with proxies in place of tensors."""
        return map_leaves(lambda leaf: self.proxy_of(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)

    def query(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a metadata function on the fakes of its arguments."""
        with self._suspension, self.fake_mode.observing():
            return func(*self.fakes(args), **self.fakes(kwargs))


def _plain(leaf: Any) -> Any:
    """A number as calls on fakes accept it."""
    return leaf.numbers.hint(leaf) if type(leaf) is TracedNumber else untraced(leaf)
