"""What is known about the tensor objects of the running program."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import CellType
from typing import Any

import torch

from thunder_core.acquire.inputs import Inputs
from thunder_core.acquire.naming import Names
from thunder_core.acquire.storages import Storages
from thunder_core.acquire.traced_tensor import leave, make_traced, variable_of
from thunder_core.acquire.variable import Variable
from thunder_core.guards.torch_generators import TorchGenerators
from thunder_core.ir.proxy import OpaqueProxy
from thunder_core.ir.tree import map_leaves
from thunder_core.tracing.fake_mode import ObservingFakeMode
from thunder_core.tracing.fake_tensors import make_alias, make_derived


class Suspended:
    """Sets ``recorder.busy`` for the duration. A class: frames of `contextlib` would be observed as the program's."""

    __slots__ = ("_outer", "_recorder")

    def __init__(self, recorder: Tensors) -> None:
        self._recorder = recorder
        self._outer = False

    def __enter__(self) -> None:
        self._outer, self._recorder.busy = self._recorder.busy, True

    def __exit__(self, *_: object) -> None:
        self._recorder.busy = self._outer


class Tensors:
    """The state of every tensor object that the program has touched.

    Attributes:
        names: of the values of the trace.
        storages: of its tensors.
        mode: the fake mode, where metadata comes from.
        inputs: the real tensors and opaque objects met so far, as inputs of the trace.
        made: the traced tensors handed to the program.
        generators: PyTorch's random generators that the program reaches.
        busy: True while the recorder itself runs torch code, which is no part of the program.
    """

    def __init__(
        self,
        source_of: Callable[[Any], Any],
        on_escape: Callable[..., Any],
        closure_of: Callable[[CellType], Any],
        generators: TorchGenerators | None,
        new_generator: Callable[[torch.Generator], OpaqueProxy],
    ) -> None:
        self.names = Names()
        self.storages = Storages()
        self.mode = ObservingFakeMode(on_escape)
        self.made: list[weakref.ref[torch.Tensor]] = []
        self.busy = False
        self.generators = generators or TorchGenerators()
        self.inputs = Inputs(
            self.names, self.storages, self.mode, self.generators, source_of, closure_of, new_generator
        )

    def close(self) -> None:
        """Let go of the user's objects at once instead of when reference cycles are collected."""
        for reference in self.made:
            if (tensor := reference()) is not None:
                leave(tensor)
        self.mode.on_escape = None
        self.inputs.close()
        self.made.clear()

    def suspended(self) -> Suspended:
        """A context manager for code of the recorder's: nothing that it calls is recorded as a call of the program."""
        return Suspended(self)

    def variable(self, tensor: torch.Tensor) -> Variable:
        """The variable of a tensor object; a real tensor becomes an input of the trace."""
        return variable_of(tensor) or self.inputs.lift(tensor)

    def traced(self, variable: Variable, kind: type[torch.Tensor] = torch.Tensor) -> torch.Tensor:
        """A new traced tensor for a variable; ``kind`` is given for tensors of the user's classes."""
        tensor = make_traced(variable, kind)
        self.made.append(weakref.ref(tensor))
        return tensor

    def kept_by_pytorch(self, tensor: torch.Tensor) -> None:
        """PyTorch itself keeps ``tensor`` and shows it to nobody: that it is still there in the end is no leak."""
        self.made = [reference for reference in self.made if reference() is not tensor]

    def is_constant(self, variable: Variable) -> bool:
        """Whether a tensor's value is the same in every run."""
        return variable.constant and variable.proxy.storage in self.storages.constant

    def fake(self, variable: Variable) -> Any:
        """The fake of a variable, made now if it was not needed before."""
        if variable.fake is None:
            with self.suspended(), self.mode.observing():
                if variable.base is not None:
                    variable.fake = make_alias(self.fake(variable.base), variable.proxy, leaf=variable.detached)
                else:
                    variable.fake = make_derived(self.mode, variable.proxy)
                    self.storages.bind(variable.fake, variable.proxy.storage)
        return variable.fake

    def requires_grad(self, variable: Variable) -> bool:
        """Whether a tensor requires grad now: a write to one tensor is one to all that share its history."""
        if variable.fake is not None:
            return bool(variable.fake.requires_grad)
        base = variable.base
        if base is None or variable.detached or self.requires_grad(base) == base.proxy.requires_grad:
            return variable.proxy.requires_grad
        return self.requires_grad(base) and (variable.proxy.dtype.is_floating_point or variable.proxy.dtype.is_complex)

    def all_variables(self) -> list[Variable]:
        """Those of the tensor objects that the program can reach, and those that they are views of."""
        objects = [reference() for reference in self.made]
        found = [variable_of(tensor) for tensor in objects if tensor is not None]
        variables = dict.fromkeys([*self.inputs.variables(), *[variable for variable in found if variable is not None]])
        for variable in list(variables):
            while (base := variable.base) is not None and base not in variables:
                variables[base] = None
                variable = base
        return list(variables)

    def fakes(self, value: Any) -> Any:
        """Nested arguments with fakes in place of tensors."""
        return map_leaves(
            lambda leaf: self.fake(self.variable(leaf)) if isinstance(leaf, torch.Tensor) else leaf, value
        )

    def ask(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Ask the fakes of the arguments a question about metadata."""
        with self.suspended(), self.mode.observing():
            return func(*self.fakes(args), **self.fakes(kwargs))
