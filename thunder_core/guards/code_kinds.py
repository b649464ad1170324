"""Kinds of code by the files that contain it: of the user, of PyTorch's modules, of the standard library, ignored."""

from __future__ import annotations

import enum
import os
import sys
import sysconfig
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

import torch

import thunder_core


class CodeKind(enum.Enum):
    """How the frames of a code object are observed."""

    USER = enum.auto()  # reads of attributes, globals and closures
    MODULE = enum.auto()  # modules of torch.nn: reads of attributes of the module
    MODULE_CALL = enum.auto()  # nn.Module.__call__: reads of hooks and forward
    LIBRARY = enum.auto()  # the standard library: it may read any attribute of its arguments
    IMPORT = enum.auto()  # the import of a module, which runs once in a process and is not part of the program
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
_THUNDER = _folder(thunder_core.__file__)
_THUNDER_FRONT = os.path.join(os.path.dirname(_THUNDER.rstrip(os.sep)), "thunder") + os.sep
_LIBRARY = tuple({os.path.abspath(sysconfig.get_paths()[key]) + os.sep for key in ("stdlib", "platstdlib")})
_SITE = tuple({os.path.abspath(sysconfig.get_paths()[key]) + os.sep for key in ("purelib", "platlib")})
_COMPUTING = tuple(  # PyTorch computes with sizes by SymPy and mpmath
    [f"{os.sep}site-packages{os.sep}{package}{os.sep}" for package in ("numpy", "sympy", "mpmath")]
)
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

_by_file: dict[str, CodeKind] = {}
_packages: set[str] = set()  # folders of plugins, whose code counts as Thunder's
PACKAGES = {"thunder", "thunder_core"}
"""Names of the packages whose objects count as Thunder's."""


def add_package(folder: str) -> None:
    """Treat the files of a plugin's package as Thunder's, whose frames are not observed."""
    _packages.add(os.path.abspath(folder) + os.sep)
    _by_file.clear()


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
    return filename.startswith((_THUNDER, _THUNDER_FRONT, *_packages))


def kind_of_class(kind: type) -> CodeKind:
    """How the code of a class is observed; classes without a Python file count as the standard library's."""
    module = sys.modules.get(kind.__module__)
    filename = getattr(module, "__file__", None)
    if filename is None:
        return CodeKind.USER if kind.__module__ == "__main__" else CodeKind.LIBRARY
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
    if path.startswith((_TORCH, _THUNDER, _THUNDER_FRONT, *_packages)) or any(
        package in path for package in _COMPUTING
    ):
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
