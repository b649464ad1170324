"""Interceptions: functions of PyTorch, Python or a library that are replaced while a program is recorded.

A row, `Interception`, names an attribute and a function that is called in its place; `installed` is a context in which
the rows of a table apply. Replacing the attribute is not enough: a program may refer to the function itself, by ``from
torch import manual_seed``, in a closure, in a `functools.partial`, or as a bound method. So the code of a Python
function is replaced. Other objects have no code that could be replaced; for these the attribute is.
"""

from __future__ import annotations

import builtins
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from types import BuiltinFunctionType, ClassMethodDescriptorType, CodeType, FunctionType
from typing import Any, Final, NoReturn

from thunder_core.checks.global_state import ORIGINAL_BUILTINS
from thunder_core.errors import UnsupportedError, advice_on_plugins
from thunder_core.forking import renew_in_child
from thunder_core.private_names import is_missing
from thunder_core.pytorch_internals import disable_current_modes
from thunder_core.tracing.frames import calls_program, user_location
from thunder_frontend.record.recorder import Recorder, set_active_recorder, tensor_recorder


def _call_replacement(*args: Any, **kwargs: Any) -> Any:
    replacement: Any = "replacement"  # a constant, for which `replace_code` substitutes the function
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
    """`_CODE` with this number of closure variables: a function accepts only code with as many as it has itself."""
    if not free_variables:
        return _CODE
    variables: dict[str, Any] = {}
    names = ", ".join([f"v{index}" for index in range(free_variables)])
    exec(compile(_WITH_CLOSURE.format(names=names), _CODE.co_filename, "exec"), variables)
    return next(item for item in variables["outer"].__code__.co_consts if isinstance(item, CodeType))


def copy_of(function: Any) -> Any:
    """A copy of a function with its current code; a callable without Python code is returned unchanged."""
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


def _has_code(function: Any) -> bool:
    """Whether ``function`` is a Python function, or a class or static method of one: its code can be replaced."""
    return type(getattr(function, "__func__", function)) is FunctionType


def replace_code(attribute: Any, replacement: Callable[..., Any], undo: list[Callable[[], Any]]) -> None:
    """Replace the code of a function by a call of ``replacement``. Appends a function that restores it to ``undo``."""
    function: FunctionType = getattr(attribute, "__func__", attribute)
    original = function.__code__
    code = _code_that_calls(replacement, bool(original.co_flags & inspect.CO_GENERATOR), original.co_freevars)
    undo.append(partial(setattr, function, "__code__", original))
    function.__code__ = code


def calling_instead(function: FunctionType, replacement: Callable[..., Any]) -> Callable[[], None]:
    """Have all calls of a function call ``replacement``, in all threads, until the returned function is called."""
    original = function.__code__
    function.__code__ = _new_code_that_calls(replacement, False, original.co_freevars)

    def restore() -> None:
        function.__code__ = original

    return restore


def _new_code_that_calls(
    replacement: Callable[..., Any], is_generator: bool, free_variables: tuple[str, ...]
) -> CodeType:
    """The code of a function with these closure variables that calls ``replacement``."""
    # _CODE_OF_GENERATOR has no closure variables: no table has a generator function with a closure
    code = _CODE_OF_GENERATOR if is_generator else _code(len(free_variables))
    constants = [replacement if constant == "replacement" else constant for constant in code.co_consts]
    return code.replace(co_consts=tuple(constants), co_freevars=free_variables)


_code_that_calls = cache(_new_code_that_calls)  # like `replacement_of`: replacements live as long as the process


def _is_replaced(attribute: Any) -> bool:
    """Whether the code of ``attribute`` is currently replaced."""
    return _has_code(attribute) and getattr(attribute, "__func__", attribute).__code__.co_filename == _CODE.co_filename


@dataclass(frozen=True)
class Refusal:
    """A handler that raises `UnsupportedError` at the user's line.

    Attributes:
        problem, advice: the problem and the advice of the error.
        subject: the subject for which `advice_on_plugins` names plugins that record the call; this advice comes first.
            Empty if no plugin records it.
    """

    problem: str
    advice: tuple[str, ...]
    subject: str = ""

    def __call__(self, recorder: Recorder, original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> NoReturn:
        on_plugins = advice_on_plugins(self.subject) if self.subject else ()
        raise UnsupportedError(self.problem, location=user_location(), advice=(*on_plugins, *self.advice))


def refusal(problem: str, *advice: str, subject: str = "") -> Refusal:
    """The `Refusal` with this advice."""
    return Refusal(problem, advice, subject)


Owner = Any
"""A module or a class; or ``"module:attribute"`` or ``"module:"``, which is resolved once the module is imported."""


@dataclass(frozen=True, eq=False)
class Interception:
    """A function that is called in place of another one while a program is recorded.

    Every thread calls the replacement, which calls the original in threads that record no program. If a variable of the
    program refers to a function implemented in C (``log = print``), it refers to the replacement while the program is
    recorded (`thunder_frontend.observe.stand_ins`).

    Attributes:
        owner: the module or class that has the function; or the text ``"module:Class"`` or ``"module:"`` for a module
            that programs need not import: nothing is replaced before they do.
        name: the name of the attribute.
        handler: called as ``handler(recorder, original, *args, **kwargs)``, where ``original`` is the original
            function. ``args`` starts with the object for a method, and with the class for a class method.
        purpose: the reason for the interception.
        when: returns the recorder if the call is to be intercepted, otherwise None: `tensor_recorder` for calls on
            tensors, `program_recorder` to intercept calls under transformations of `torch.func` as well,
            `active_recorder` to intercept calls of the recorder itself as well.
        always: whether the handler is called even if ``when`` returns None, with None as the recorder.
        observed: whether reads of a handler outside of the core are guarded like reads of the user's code. If False,
            neither these reads nor those of objects of the owner's class are guarded; the handler adds guards itself
            (`Observer.add_guard`).
        takes_over: the name of a class of modules that is refused (`thunder_frontend.record.module_calls`) because of
            the function that this row replaces: ``"FSDPModule"``. With the row, calls of such modules are recorded.
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
        """Whether the handler raises `UnsupportedError`; a plugin's row may replace such a row of the core."""
        return isinstance(self.handler, Refusal)


@dataclass(frozen=True, eq=False)
class ApplyInterception(Interception):
    """A function that is called in place of ``cls.apply``, for one subclass of `torch.autograd.Function`.

    A call of any other subclass is recorded as one bound symbol.

    Attributes:
        owner: the subclass, or the text ``"module:Class"``.
        handler: called as ``handler(recorder, original, cls, *args, **kwargs)``.
    """

    name: str = field(default="apply", init=False)


@dataclass(frozen=True, eq=False)
class Setting:
    """A value that an attribute has while a program is recorded.

    Attributes:
        owner, name: as for an `Interception`.
        value: the value while a program is recorded.
        purpose: the reason for the setting.
    """

    owner: Owner
    name: str
    value: Any
    purpose: str


_originals: Final[dict[Interception, Callable[..., Any]]] = {}
"""The original of each installed row."""
_installed: Final[list[list[Callable[[], Any]]]] = []
"""For each context of `installed`, what puts back the functions and values that it has replaced so far."""
_apply_rows: Final[list[ApplyInterception]] = []
"""The installed rows for subclasses of `torch.autograd.Function`."""


@contextmanager
def installed(rows: Iterable[Interception | Setting]) -> Iterator[None]:
    """Replace the functions and values of the rows in this context. All are restored, even after an exception.

    Raises:
        AttributeError: an owner has no such attribute.
    """
    undo: list[Callable[[], Any]] = []
    _installed.append(undo)
    try:
        for row in rows:
            if isinstance(row, ApplyInterception):
                _apply_rows.append(row)
                undo.append(partial(_apply_rows.remove, row))
            elif (owner := owner_of(row)) is not None:
                _install(row, owner, undo)
        yield
    finally:
        try:
            _call_all(undo)
        finally:
            _call_all(undo)  # the exception of a signal handler may have been raised before it began
            _installed[:] = [other for other in _installed if other is not undo]


class SharedRows:
    """Rows that are installed while any thread is in the context of this object."""

    def __init__(self, rows: Callable[[], Iterable[Interception | Setting]]) -> None:
        self._rows = rows
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")
        self._depth = 0
        self._undo = ExitStack()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """A context in which the rows are installed: the first thread installs them, and the last one uninstalls."""
        entered = False
        try:
            with self._lock:
                if self._depth == 0:
                    self._undo.enter_context(installed(self._rows()))
                self._depth += 1
                entered = True
            yield
        finally:
            with self._lock:
                self._depth -= entered
            self.uninstall_unused()

    def uninstall_unused(self) -> None:
        """Uninstall them, unless a thread is in the context: a signal handler that raises may have prevented it."""
        with self._lock:
            if self._depth == 0:
                self._undo.close()

    def keep_for_this_thread(self, *, is_entered: bool) -> None:
        """In a forked process: only the thread that forked may still be in the context."""
        self._depth = int(is_entered)


def uninstall_all() -> None:
    """Put back what all contexts of `installed` have replaced, also those that are just being entered or left."""
    for undo in _installed:
        _call_all(undo)


def _call_all(functions: list[Callable[[], Any]]) -> None:
    """Call and remove the functions, the last one first; all of them, even if one raises an exception.

    As `contextlib.ExitStack`, without a wrapper for each of the hundred rows of a recording.
    """
    try:
        while functions:
            function = functions[-1]
            del functions[-1]  # a signal handler may raise after `functions.pop()`, before the call
            function()
    finally:
        if functions:
            _call_all(functions)


def apply_handler(cls: type) -> Callable[..., Any] | None:
    """The handler of the installed `ApplyInterception` for a class; None if there is none."""
    return next((row.handler for row in _apply_rows if owner_of(row) is cls), None)


def owner_of(row: Interception | Setting) -> Any:
    """The module or class that has the attribute; None if it is not imported."""
    if not isinstance(row.owner, str):
        return row.owner
    module, _, attribute = row.owner.partition(":")
    owner = sys.modules.get(module)
    return getattr(owner, attribute, None) if attribute else owner


def static_attribute(owner: Any, name: str) -> Any:
    """The attribute of an owner or of its bases, without calling descriptors."""
    attributes = vars(owner)  # most have it: 3 us less than `getattr_static`, for each of a hundred rows
    return attributes[name] if name in attributes else inspect.getattr_static(owner, name)


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


def for_private_name(
    entry_point: Any, handler: Callable[..., Any], purpose: str, **options: Any
) -> tuple[Interception, ...]:
    """The row for an entry point of a table of private names; no row if the installed PyTorch lacks it."""
    if is_missing(entry_point):
        return ()
    return (Interception(entry_point.owner, entry_point.name, handler, purpose, **options),)


def setting_for_private_name(entry_point: Any, value: Any, purpose: str) -> tuple[Setting, ...]:
    """As `for_private_name`, for a `Setting`."""
    return () if is_missing(entry_point) else (Setting(entry_point.owner, entry_point.name, value, purpose),)


@calls_program
def outside_modes(recorder: Recorder, original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The handler of functions that run without the recording modes: their results are real objects."""
    with disable_current_modes():
        return original(*args, **kwargs)


@calls_program
def run_once(recorder: Recorder, original: Callable[..., Any], /, *args: Any) -> Any:
    """The handler of functions that run once per process: an import, or a function that caches its result."""
    set_active_recorder(None)
    try:
        with disable_current_modes():
            return original(*args)
    finally:
        set_active_recorder(recorder)


def _install(row: Interception | Setting, owner: Any, undo: list[Callable[[], Any]]) -> None:
    attribute = static_attribute(owner, row.name)
    if _is_replaced(attribute):  # by the row of another owner of the same function
        return
    inherited = row.name not in vars(owner)
    undo_attribute = partial(delattr, owner, row.name) if inherited else partial(setattr, owner, row.name, attribute)
    if isinstance(row, Setting):
        undo.append(undo_attribute)
        setattr(owner, row.name, row.value)
        return
    undo.append(partial(_originals.pop, row, None))
    if owner is builtins and attribute is not ORIGINAL_BUILTINS[row.name]:
        _originals[row] = ORIGINAL_BUILTINS[row.name]  # what replaces it is observed, and may call it
        return
    if not inherited and _has_code(attribute):
        _originals[row] = unbound(copy_of(attribute))
        replace_code(attribute, replacement_of(row), undo)
    else:
        _originals[row] = unbound(attribute)
        undo.append(undo_attribute)
        setattr(owner, row.name, _with_binding_of(attribute, owner, replacement_of(row)))


def _original_of(row: Interception) -> Callable[..., Any]:
    """The original function of a row that is not installed: a variable may still refer to its replacement."""
    return unbound(static_attribute(owner_of(row), row.name))


def unbound(attribute: Any) -> Callable[..., Any]:
    """An attribute of a class or a module as a function that takes the same arguments as its replacement."""
    if isinstance(attribute, classmethod | staticmethod):
        function: Callable[..., Any] = attribute.__func__
        return function
    if isinstance(attribute, ClassMethodDescriptorType):
        return lambda cls, *args, **kwargs: attribute.__get__(None, cls)(*args, **kwargs)
    unbound: Callable[..., Any] = attribute
    return unbound


def _with_binding_of(attribute: Any, owner: Any, replacement: Callable[..., Any]) -> Any:
    """The replacement as a function, class method or static method, like ``attribute``."""
    if isinstance(attribute, classmethod | ClassMethodDescriptorType):
        return classmethod(replacement)
    if isinstance(attribute, staticmethod) or (isinstance(owner, type) and isinstance(attribute, BuiltinFunctionType)):
        return staticmethod(replacement)
    return replacement
