"""What `thunder.jit` returns for a function."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from thunder_core.config.settings import Settings
from thunder_core.runtime.compiled import Compiled


class ThunderFunction(Compiled):
    """A compiled function. Looks like the original to `inspect`, and binds as a method when it is a class attribute."""

    def __init__(self, function: Callable[..., Any], settings: Settings) -> None:
        super().__init__(function, getattr(function, "__qualname__", type(function).__qualname__), settings)
        functools.update_wrapper(self, function, updated=())

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        return ThunderFunction, (self.function, self.settings)
