"""Compiled functions and modules, and their calls under transformations of `torch.func`."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from thunder._libraries import library
from thunder.compiled.coverage import Coverage, coverage
from thunder.compiled.other_compilers import hide_from_dynamo
from thunder.compiled.uncompiled_calls import UncompiledCalls
from thunder.config.settings import ConfiguredSettings
from thunder_core.checks.own_lookups import has_own_lookup, name_of
from thunder_core.errors import ThunderError
from thunder_core.pytorch_internals import peek_interpreter_stack
from thunder_core.runtime.program_cache import ProgramCache
from thunder_core.runtime.warm_up import WarmUp
from thunder_core.settings import Settings


class NotTransformed(ThunderError):
    """Raised for a call that has to run as eager PyTorch. The message is the reason."""


class TransformedCalls(Protocol):
    """Compiles the calls of one program under transformations of `torch.func`."""

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call.

        Raises:
            NotTransformed: the call has to run as eager PyTorch.
        """

    def caches(self) -> Iterable[ProgramCache]:
        """The caches of the transformed programs."""


Create = Callable[[Callable[..., Any], str, Settings, WarmUp], TransformedCalls]
_create: Create | None = None


def transform_calls_with(create: Create | None) -> None:
    """Compile the calls of all programs under transformations of `torch.func`, which otherwise run as eager PyTorch.

    Args:
        create: called at the first such call of a program with its function, name, settings and warm-up. It may raise
            `NotTransformed`. None for eager PyTorch.
    """
    global _create
    _create = create


class Compiled(ProgramCache):
    """A compiled function or module. `transform_calls_with` compiles its calls under `torch.func`."""

    _transformed: TransformedCalls | None = None

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if peek_interpreter_stack() is None:
            self._tune(args, kwargs)
            return super()._miss(args, kwargs)
        try:
            return self._transformed_calls().call(args, kwargs)
        except NotTransformed as error:
            reason = error.problem
        return self._eager(reason, args, kwargs)

    def _transformed_calls(self) -> TransformedCalls:
        if self._transformed is None:
            if _create is None:
                raise NotTransformed("a torch.func transformation is active")
            created = _create(self.function, self.name, self.settings, self.warm_up)
            self._transformed = self.__dict__.setdefault("_transformed", created)  # another thread may be first
        return self._transformed

    def _tune(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Choose the executors for the first call, if the configuration wants it and nothing is compiled before."""
        settings = self.settings
        if type(settings) is not ConfiguredSettings or not settings.config.tune or self.entries:
            return  # without `isinstance`, which a caller may have replaced
        first_call = library("tuning", "first_call", "jit(tune=...)", "thunder_plugin_")
        with self._lock:
            if self.settings is settings:  # no other thread has chosen them
                self.settings = first_call.tuned(self.function, args, kwargs, self.name, settings)

    @functools.cached_property
    def uncompiled_calls(self) -> UncompiledCalls:
        """Of a module: the calls of its submodules by its methods."""
        return UncompiledCalls()

    def programs(self) -> list[ProgramCache]:
        """This cache, and those for calls of the program under transformations of `torch.func`."""
        return [self, *(() if self._transformed is None else self._transformed.caches())]


class ThunderFunction(Compiled):
    """A compiled function. Looks like the original to `inspect`, and binds as a method when it is a class attribute."""

    def __init__(self, function: Callable[..., Any], settings: Settings) -> None:
        super().__init__(function, name_of(function), settings)
        names = () if has_own_lookup(type(function)) else functools.WRAPPER_ASSIGNMENTS
        functools.update_wrapper(self, function, assigned=names, updated=())

    def covers(self, *args: Any, **kwargs: Any) -> Coverage:
        """Whether a call has a compiled program; see `thunder.covers`, which also takes bound methods."""
        return coverage(self, args, kwargs)

    def __repr__(self) -> str:
        return f"<thunder.jit({self.name}) at {id(self):#x}>"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        return ThunderFunction, (self.function, self.settings)

    def __prepare_scriptable__(self) -> Any:
        """The function that `torch.jit.script` compiles."""
        return self.function


hide_from_dynamo(ProgramCache.__call__)
