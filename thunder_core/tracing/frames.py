"""Frames and code: whose they are, by their files, and the user's line that a call comes from."""

from __future__ import annotations

import enum
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, TypeVar

import torch

import thunder_core
from thunder_core.ir.import_paths import module_of
from thunder_core.ir.location import SourceLocation
from thunder_core.tracing.this_thread import this_thread


class CodeKind(enum.Enum):
    """How the frames of a code object are observed."""

    USER = enum.auto()  # reads of attributes, globals and closures
    MODULE = enum.auto()  # modules of torch.nn: reads of attributes of the module
    MODULE_CALL = enum.auto()  # nn.Module.__call__: reads of hooks and forward
    LIBRARY = enum.auto()  # the standard library: it may read any attribute of its arguments
    IMPORT = enum.auto()  # the import of a module or plugin, which runs once in a process: not part of the program
    IGNORED = enum.auto()  # PyTorch's internals, NumPy, SymPy, Thunder


def _folder(path: str) -> str:
    return os.path.dirname(os.path.abspath(path)) + os.sep


_TORCH = _folder(torch.__file__)
_OBSERVED_TORCH = tuple(
    os.path.join(_TORCH, *parts) + os.sep
    for parts in (
        ("nn", "modules"), ("nn", "utils"), ("nn", "parallel"), ("nn", "attention"), ("ao",), ("distributions",)
    )
)  # fmt: skip
_HEAP_TYPE = 1 << 9
PACKAGES = set(thunder_core.PACKAGES)
"""Names of the packages whose objects count as Thunder's, with those of `add_library`."""
_ROOT = os.path.dirname(_folder(thunder_core.__file__).rstrip(os.sep))
_THUNDER = tuple([os.path.join(_ROOT, package) + os.sep for package in thunder_core.PACKAGES])
_LIBRARY = tuple({os.path.abspath(sysconfig.get_paths()[key]) + os.sep for key in ("stdlib", "platstdlib")})
_SITE = tuple({os.path.abspath(sysconfig.get_paths()[key]) + os.sep for key in ("purelib", "platlib")})
_COMPUTING = tuple(  # PyTorch computes with sizes by SymPy and mpmath
    [f"{os.sep}site-packages{os.sep}{package}{os.sep}" for package in ("numpy", "sympy", "mpmath")]
)
_OF_SELF = re.compile(r"^L\['self'\]\.?")  # paths of modules as Dynamo writes them
_OF_VARIABLE = re.compile(r"^[GL]\['(\w+)'\]")
_FRAME_TEXT = re.compile(r'File "(.+)", line (\d+), in (.+)')
_MODULE_FILE = os.path.join(_TORCH, "nn", "modules", "module.py")
_PARAMETRIZE_FILE = os.path.join(_TORCH, "nn", "utils", "parametrize.py")
_OF_CACHE = frozenset({"get_parametrized", "get_cached_parametrization", "cached"})  # which global variables hold
_MODULE_CALLS = frozenset({"_call_impl", "_wrapped_call_impl"})
# Attribute access and registration: the calling frame contains the names.
_MODULE_INTERNALS = frozenset(
    {"__getattr__", "__setattr__", "__delattr__", "remove_from", "register_buffer", "register_parameter"}
)

_IMPORT_FILE = "<frozen importlib._bootstrap>"
_IMPORT = "_find_and_load"  # runs the finders and the module; not called for imported modules, nor by reload()

_PLUGIN_HOST_FILE = os.path.join(_ROOT, "thunder_core", "plugins", "host.py")
_OF_PLUGINS = frozenset({"records", "load"})  # find and import plugins, and register them by pluggy

_by_file: dict[str, CodeKind] = {}
_packages: set[str] = set()  # folders of plugins, whose code counts as Thunder's


def add_package(folder: str) -> None:
    """Treat the files of a plugin's package as Thunder's, whose frames are not observed, and as internal."""
    _packages.add(os.path.abspath(folder) + os.sep)
    _by_file.clear()
    add_internal_package(folder)


def add_library(folder: str) -> None:
    """Treat a package as a part of Thunder: its files, as `add_package` does, and the objects of its classes."""
    add_package(folder)
    PACKAGES.add(os.path.basename(folder))


def kind_of(code: CodeType) -> CodeKind:
    """How frames of ``code`` are observed."""
    filename = code.co_filename
    kind = _by_file.get(filename) or _kind_of_file(filename)
    if kind is CodeKind.MODULE and filename == _MODULE_FILE:
        if code.co_name in _MODULE_CALLS:
            return CodeKind.MODULE_CALL
        if code.co_name in _MODULE_INTERNALS:
            return CodeKind.IGNORED
    if kind is CodeKind.IGNORED and filename == _PLUGIN_HOST_FILE and code.co_name in _OF_PLUGINS:
        return CodeKind.IMPORT
    if kind is CodeKind.MODULE and filename == _PARAMETRIZE_FILE and code.co_name in _OF_CACHE:
        return CodeKind.USER
    if kind is CodeKind.IMPORT and code.co_name != _IMPORT:
        return CodeKind.LIBRARY
    return kind


def is_users(code: CodeType) -> bool:
    """Whether ``code`` is of `CodeKind.USER`; builtins that are replaced during the run ask this in each call."""
    kind = _by_file.get(code.co_filename)
    return (kind_of(code) if kind is None else kind) is CodeKind.USER


def is_installed(filename: str) -> bool:
    """Whether a file belongs to an installed package, whose classes and variables are assumed not to change."""
    return f"{os.sep}site-packages{os.sep}" in filename


def is_in_installed(module: str) -> bool:
    """Whether the file of a Python module, by its name, belongs to an installed package."""
    return is_installed(str(getattr(sys.modules.get(module), "__file__", "")))


def is_of_thunder(code: CodeType) -> bool:
    """Whether a code object is in a file of Thunder; generated programs are in none."""
    return is_file_of_thunder(code.co_filename)


def is_file_of_thunder(filename: str) -> bool:
    """Whether a file is Thunder's, or of a package that was added by `add_package`."""
    return filename.startswith((*_THUNDER, *_packages))


def kind_of_class(kind: type) -> CodeKind:
    """How the code of a class is observed; classes without a Python file count as the standard library's.

    A class is the user's if code that `exec` runs in variables without ``__name__`` has defined it, too: its module is
    ``builtins``, whose own classes are not allocated on the heap (``Py_TPFLAGS_HEAPTYPE``). So is one without a module.
    """
    name = module_of(kind)
    module = sys.modules.get(name)
    filename = getattr(module, "__file__", None)
    if filename is None:
        of_user = name == "__main__" or (name in ("", "builtins") and kind.__flags__ & _HEAP_TYPE)
        return CodeKind.USER if of_user else CodeKind.LIBRARY
    return _by_file.get(filename) or _kind_of_file(filename)


def _kind_of_file(filename: str) -> CodeKind:
    kind = _by_file[filename] = _find_kind(filename)
    return kind


def _find_kind(filename: str) -> CodeKind:
    if filename == _IMPORT_FILE:
        return CodeKind.IMPORT
    if filename.startswith("<frozen "):
        return CodeKind.LIBRARY
    if filename.startswith("<"):
        return CodeKind.USER
    path = os.path.abspath(filename)
    if path.startswith(_OBSERVED_TORCH):
        return CodeKind.MODULE
    if path.startswith((_TORCH, *_THUNDER, *_packages)) or any(package in path for package in _COMPUTING):
        return CodeKind.IGNORED
    if path.startswith(_SITE) or is_installed(path):
        return CodeKind.USER
    return CodeKind.LIBRARY if path.startswith(_LIBRARY) else CodeKind.USER


# ---------------------------------------------------------------- exceptions of the program

_calling: set[CodeType] = set()
_Function = TypeVar("_Function", bound=Callable[..., Any])


def calls_program(function: _Function) -> _Function:
    """Mark a function that calls the user's program, or a part of it: its own exceptions count as the program's."""
    _calling.add(function.__code__)
    return function


@calls_program
def call_for_program(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The result of a function that the program has called; what it raises is the program's exception."""
    return function(*args, **kwargs)


def is_calling(code: CodeType) -> bool:
    """Whether the function of this code was marked with `calls_program`."""
    return code in _calling


# ---------------------------------------------------------------- lines of the user

_INTERNAL = (_TORCH, *_THUNDER)
# The commands call programs like a user's script. Ops without a user line are located at a command's line, which
# reports leave out.
_COMMANDS = os.path.join(_ROOT, "thunder", "command_line") + os.sep
# By file: code objects of different files are equal if all but the file is.
_is_internal: dict[str, bool] = {}
_is_of_user: dict[str, bool] = {}
_internal_packages: set[str] = set()  # also those of plugins that record nothing
_locations: dict[tuple[int, int], tuple[CodeType, SourceLocation]] = {}  # by id of the code, which the entry holds
_LIMIT = 100_000  # locations remembered; programs that generate code endlessly must not leak
_generated: dict[str, Mapping[int, SourceLocation]] = {}


def is_internal(code: CodeType) -> bool:
    """Whether a code object belongs to PyTorch or to Thunder."""
    return is_internal_file(code.co_filename)


def add_internal_package(folder: str) -> None:
    """Treat the files of a plugin's package as internal, so that ops they record are located at the user's line."""
    _internal_packages.add(os.path.abspath(folder) + os.sep)
    _is_internal.clear()
    _is_of_user.clear()


def is_internal_file(filename: str) -> bool:
    """Whether a file, named as code objects and tracebacks do, belongs to PyTorch, to Thunder or to a plugin."""
    known = _is_internal.get(filename)
    if known is None:
        if len(_is_internal) > _LIMIT:
            _is_internal.clear()
        internal = filename.startswith((*_INTERNAL, *_internal_packages, "<frozen", "<thunder"))
        known = _is_internal[filename] = internal and not filename.startswith(_COMMANDS)
    return known


def set_generated_lines(filename: str, locations: Mapping[int, SourceLocation]) -> None:
    """Map lines of generated code to the user's lines, until `forget_generated_lines`.

    Args:
        filename: the file name of the code, which must be unique.
        locations: the user's location by generated line number. Other lines are not mapped.
    """
    _generated[filename] = locations


def forget_generated_lines(filename: str) -> None:
    """Remove the mapping of the generated code with this file name."""
    _generated.pop(filename, None)


def library_callers() -> frozenset[str]:
    """Names of the PyTorch and Thunder modules with frames between the user's line and the caller."""
    names: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_internal(frame.f_code):
        names.append(str(frame.f_globals.get("__name__")))
        frame = frame.f_back
    return frozenset(names)


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the innermost line that is the user's; where PyTorch alone called Thunder, at PyTorch's.

    As `warnings.warn`, but the line does not depend on how many of Thunder's and PyTorch's frames lie between.
    """
    frame: FrameType | None = sys._getframe(1)
    outside: FrameType | None = None
    while frame is not None and is_internal(frame.f_code):
        if outside is None and not (is_of_thunder(frame.f_code) or frame.f_code.co_filename.startswith("<")):
            outside = frame
        frame = frame.f_back
    frame = frame or outside or sys._getframe(1)
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        frame.f_globals.get("__name__"),
        frame.f_globals.setdefault("__warningregistry__", {}),
    )


def user_location() -> SourceLocation | None:
    """The line of the innermost frame that is the user's; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:  # called for each op, with several frames of Thunder and PyTorch above the user's
        code = frame.f_code
        of_user = _is_of_user.get(code.co_filename)
        if _is_users(code) if of_user is None else of_user:
            location, ranges, module = _location(code, frame.f_lineno), this_thread.ranges, this_thread.module
            return replace(location, ranges=ranges, module=module) if ranges or module else location
        frame = frame.f_back
    return None


def location_of_node(node: torch.fx.Node) -> SourceLocation | None:
    """The innermost line in the stack trace of a node of an FX graph that is not in PyTorch or Thunder.

    If all are, the innermost of PyTorch's or Thunder's; None for a node without a stack trace.
    """
    modules = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
    path = _OF_VARIABLE.sub(r"\1", _OF_SELF.sub("", modules[-1])) if modules else ""
    frames = [
        SourceLocation(file, int(line), name, module=path)
        for file, line, name in _FRAME_TEXT.findall(node.stack_trace or "")
        if not file.startswith("<")  # generated code
    ]
    of_user = [frame for frame in frames if not is_internal_file(frame.filename)]
    candidates = of_user or frames
    return candidates[-1] if candidates else None


def raising_location(error: BaseException) -> SourceLocation | None:
    """The innermost of the user's lines that an exception passed through; None if there is none."""
    found = None
    for frame, line in walk_tb(error.__traceback__):
        if _is_users(frame.f_code):
            found = _location(frame.f_code, line)
    return found


def _is_users(code: CodeType) -> bool:
    """Whether code is neither of PyTorch and Thunder nor of the standard library, as `copy` and `contextlib`."""
    known = _is_of_user.get(code.co_filename)
    if known is None:
        if len(_is_of_user) > _LIMIT:
            _is_of_user.clear()
        known = not is_internal(code) and kind_of(code) is not CodeKind.LIBRARY
        _is_of_user[code.co_filename] = known
    return known


def _location(code: CodeType, line: int) -> SourceLocation:
    key = (id(code), line)
    known = _locations.get(key)
    if known is None:
        if len(_locations) > _LIMIT:
            _locations.clear()
        location = _generated.get(code.co_filename, {}).get(line)
        if location is None:
            location = SourceLocation(code.co_filename, line, code.co_qualname)
        known = _locations[key] = (code, location)
    return known[1]


# Debuggers print tensors of the program that they stop in; these calls are not part of the program. `signal` formats a
# handler, for `asyncio.run` one with the result of the task, for a message that it discards.
_READERS = frozenset({"pdb", "bdb", "pydevd", "_pydevd_bundle", "debugpy", "ipdb", "signal"})


def calling_frame() -> FrameType | None:
    """The innermost frame outside Thunder."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_of_thunder(frame.f_code):
        frame = frame.f_back
    return frame


def calling_module() -> str:
    """The name of the module whose code calls Thunder; empty if there is none."""
    frame = calling_frame()
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


def called_outside_of_program() -> bool:
    """Whether the program does not read the result of the call: a debugger does, or it is part of a discarded message.

    Their frames are between the caller and the function of Thunder that calls the program.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not is_calling(frame.f_code):
        if str(frame.f_globals.get("__name__")).partition(".")[0] in _READERS:
            return True
        frame = frame.f_back
    return False
