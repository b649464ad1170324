"""Interceptions: attributes of PyTorch, Python or a library that do something else while a program is recorded.

Names are not enough: a program may hold the function itself, by ``from torch import manual_seed``, in a closure, in a
`functools.partial`, or as a bound method.

A row, `Interception`, names the attribute and a function that is called in its place; `installed` replaces those of a
table for a while. Of a Python function the code is replaced, so that it does not matter through which name the program
has it; of other objects the attribute.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from types import BuiltinFunctionType, ClassMethodDescriptorType, CodeType, FunctionType
from typing import Any, Final

from thunder_core.acquire.active import tensor_recorder
from thunder_core.acquire.recorder import Recorder
from thunder_core.errors import UnsupportedError
from thunder_core.tracing.user_frames import user_location


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


Owner = Any
"""A module or a class; or ``"module:attribute"`` or ``"module:"``, which is looked up if the module is imported."""


@dataclass(frozen=True, eq=False)
class Interception:
    """A function that is called in place of another one while a program is recorded.

    Every thread calls the replacement. Those that record no program get the original. Names of the program's own for a
    function of C, as ``log = print``, hold the replacement while the program is recorded
    (`thunder_core.guards.stand_ins`).

    Attributes:
        owner: the module or class that has the function; or, as text, ``"module:Class"`` or ``"module:"`` of one that
            programs need not import: nothing is replaced before they do.
        name: of the attribute.
        handler: called as ``handler(recorder, original, *args, **kwargs)``, where ``original`` does what the function
            does otherwise. The first argument of a method is its object, that of a class method its class.
        purpose: what it is for.
        when: gives the recorder if the call is to be intercepted: `tensor_recorder` for a call on tensors,
            `program_recorder` for one that is intercepted under transformations of `torch.func` as well,
            `active_recorder` for one that is also intercepted when the recorder itself makes it.
        always: the handler is called in any case, with None where ``when`` gives no recorder.
        observed: what a handler outside of the core reads is guarded as what the user's code reads. False: nothing is,
            nor what objects of the owner's class hold; the handler adds guards itself (`Observer.add_guard`).
        takes_over: the name of a class of modules that the core refuses (`thunder_core.acquire.module_calls`) because
            of what this row replaces: ``"FSDPModule"``. Calls of such modules are recorded from then on.
    """

    owner: Owner
    name: str
    handler: Callable[..., Any]
    purpose: str
    when: Callable[[], Recorder | None] = tensor_recorder
    always: bool = False
    observed: bool = True
    takes_over: str = ""

    @property
    def refuses(self) -> bool:
        """Whether it raises `UnsupportedError`; a plugin's row may take the place of such a row of the core."""
        return self.handler in _REFUSALS


@dataclass(frozen=True, eq=False)
class Setting:
    """A value that an attribute has while a program is recorded.

    Attributes:
        owner, name: of the attribute, as those of an `Interception`.
        value: in its place.
        purpose: what it is for.
    """

    owner: Owner
    name: str
    value: Any
    purpose: str


_REFUSALS: Final[set[Callable[..., Any]]] = set()
"""The handlers that `refusal` returned."""
_originals: Final[dict[Interception, Callable[..., Any]]] = {}
"""What each row that is installed replaces."""


@contextmanager
def installed(rows: Iterable[Interception | Setting]) -> Iterator[None]:
    """Replace what the rows say for the duration; all of it is put back, whatever is raised.

    Raises:
        AttributeError: an owner has no such attribute.
    """
    with ExitStack() as undo:
        for row in rows:
            owner = owner_of(row)
            if owner is not None:
                _install(row, owner, undo)
        yield


def owner_of(row: Interception | Setting) -> Any:
    """The module or class that has the attribute; None for one that is not imported."""
    if not isinstance(row.owner, str):
        return row.owner
    module, _, attribute = row.owner.partition(":")
    owner = sys.modules.get(module)
    return getattr(owner, attribute, None) if attribute else owner


def held_by(owner: Any, name: str) -> Any:
    """What an owner has under a name, itself or from a base, without binding it."""
    return inspect.getattr_static(owner, name)


@cache
def replacement_of(row: Interception) -> Callable[..., Any]:
    """The function that is called in place of the original."""

    def replacement(*args: Any, **kwargs: Any) -> Any:
        recorder = row.when()
        original = _originals.get(row) or _original_of(row)
        if recorder is None and not row.always:
            return original(*args, **kwargs)
        if row.observed or recorder is None:
            return row.handler(recorder, original, *args, **kwargs)
        observer = recorder.mode.observer
        observer.pause()
        try:
            return row.handler(recorder, original, *args, **kwargs)
        finally:
            observer.resume()

    return replacement


def refusal(problem: str, *advice: str) -> Callable[..., Any]:
    """A handler that raises `UnsupportedError` at the user's line."""

    def refuse(recorder: Recorder, original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(problem, location=user_location(), advice=advice)

    _REFUSALS.add(refuse)
    return refuse


def _install(row: Interception | Setting, owner: Any, undo: ExitStack) -> None:
    held = held_by(owner, row.name)
    if is_replaced(held):  # another owner has it, too
        return
    is_own = row.name in vars(owner)
    undo_attribute = partial(setattr, owner, row.name, held) if is_own else partial(delattr, owner, row.name)
    if isinstance(row, Setting):
        undo.callback(undo_attribute)
        setattr(owner, row.name, row.value)
        return
    undo.callback(_originals.pop, row, None)
    if is_own and has_code(held):
        _originals[row] = unbound(copy_of(held))
        undo.callback(ReplacedCode(held, replacement_of(row)).restore)
    else:
        _originals[row] = unbound(held)
        undo.callback(undo_attribute)
        setattr(owner, row.name, _bound_as(held, owner, replacement_of(row)))


def _original_of(row: Interception) -> Callable[..., Any]:
    """What a call of the function of a row does that is not installed any more."""
    return unbound(held_by(owner_of(row), row.name))


def unbound(held: Any) -> Callable[..., Any]:
    """What a class or a module holds as a function that takes what its replacement is called with."""
    if isinstance(held, classmethod | staticmethod):
        function: Callable[..., Any] = held.__func__
        return function
    if isinstance(held, ClassMethodDescriptorType):
        return lambda cls, *args, **kwargs: held.__get__(None, cls)(*args, **kwargs)
    unbound: Callable[..., Any] = held
    return unbound


def _bound_as(held: Any, owner: Any, replacement: Callable[..., Any]) -> Any:
    """The replacement as an attribute that is bound as ``held`` is."""
    if isinstance(held, classmethod | ClassMethodDescriptorType):
        return classmethod(replacement)
    if isinstance(held, staticmethod) or (isinstance(owner, type) and isinstance(held, BuiltinFunctionType)):
        return staticmethod(replacement)
    return replacement
