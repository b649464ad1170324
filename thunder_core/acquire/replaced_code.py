"""Python functions whose code is replaced for a while: everybody who holds one calls the replacement then.

Names are not enough: a program may hold the function itself, by ``from torch import manual_seed``, in a closure, in a
`functools.partial`, or as a bound method.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType
from typing import Any


def _call_replacement(*args: Any, **kwargs: Any) -> Any:
    replacement: Any = "replacement"  # the constant in whose place the function is put
    return replacement(*args, **kwargs)


def _iterate_replacement(*args: Any, **kwargs: Any) -> Any:
    replacement: Any = "replacement"
    return (yield from replacement(*args, **kwargs))


_CODE = _call_replacement.__code__
_CODE_OF_GENERATOR = _iterate_replacement.__code__


_WITH_CLOSURE = """
def outer({names}):
    def _call_replacement(*args, **kwargs):
        if False:
            {names}
        replacement = "replacement"
        return replacement(*args, **kwargs)
"""


@cache
def _code(free_variables: int) -> CodeType:
    """`_CODE`, in a function with so many variables from around it: where its frames keep them, they must be set."""
    if not free_variables:
        return _CODE
    variables: dict[str, Any] = {}
    names = ", ".join([f"v{index}" for index in range(free_variables)])
    exec(compile(_WITH_CLOSURE.format(names=names), _CODE.co_filename, "exec"), variables)
    return next(item for item in variables["outer"].__code__.co_consts if isinstance(item, CodeType))


def copy_of(function: Any) -> Any:
    """A function that keeps the code which ``function`` has now; what has no code of Python is returned itself."""
    if type(function) in (classmethod, staticmethod):
        return type(function)(copy_of(function.__func__))
    if type(function) is not FunctionType:
        return function
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__dict__.update(function.__dict__)
    copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
    return copy


def has_code(function: Any) -> bool:
    """Whether the code of ``function``, which may be a class method or a static one, can be replaced."""
    return type(getattr(function, "__func__", function)) is FunctionType


class ReplacedCode:
    """The code of one function, replaced until `restore`."""

    def __init__(self, held: Any, replacement: Callable[..., Any]) -> None:
        self._function: FunctionType = getattr(held, "__func__", held)
        self._code = self._function.__code__
        if inspect.isgeneratorfunction(self._function):  # none that is replaced has a closure
            code = _CODE_OF_GENERATOR
        else:
            code = _code(len(self._code.co_freevars))
        constants = [replacement if constant == "replacement" else constant for constant in code.co_consts]
        self._function.__code__ = code.replace(co_consts=tuple(constants), co_freevars=self._code.co_freevars)

    def restore(self) -> None:
        self._function.__code__ = self._code


def is_replaced(held: Any) -> bool:
    """Whether the code of ``held`` is replaced now."""
    return has_code(held) and getattr(held, "__func__", held).__code__.co_filename == _CODE.co_filename
