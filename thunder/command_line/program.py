"""Find the program that ``thunder explain`` is asked about, and call it."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import typer

_INPUTS: Final = ("inputs", "example_inputs")
_NO_INPUTS: Final = (
    'how to call it? Give --inputs, like "torch.randn(2, 4)", or define `inputs` next to it: one argument, a tuple of '
    "arguments, a dict of keyword arguments, or a function that makes one of these"
)


@dataclass(frozen=True)
class Program:
    """A program as it stands in a file.

    Attributes:
        target: what the user called it: ``path/to/program.py:name`` or ``package.module:name``.
        module: where it was found.
        called: a function, an `nn.Module`, or what `thunder.jit` made of one.
        without_inputs: whether it takes none.
    """

    target: str
    module: ModuleType
    called: Any
    without_inputs: bool

    def arguments(self, expression: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What to call it with.

        Args:
            expression: evaluated among the names of its module, and torch. None for its attribute `inputs` or
                `example_inputs`, else that of its module.

        Raises:
            typer.BadParameter: there are none, or the expression cannot be evaluated.
        """
        import torch

        if expression is not None:
            return _split(_evaluate(expression, self.module))
        if self.without_inputs:
            return (), {}
        for holder in (self.called, self.module):
            for name in _INPUTS:
                value = getattr(holder, name, None)
                if value is not None and not isinstance(value, torch.nn.Module):  # a layer of this name
                    return _split(value() if callable(value) else value)
        raise _problem(f"{self.target}: {_NO_INPUTS}", "--inputs")


def load_program(target: str) -> Program:
    """Import the module of ``target`` and find the program in it; a class or a factory is called.

    Raises:
        typer.BadParameter: there is no such file, module or name, or it is nothing that can be compiled.
    """
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise _problem(f"{target!r} names no object; write program.py:model or package.module:model")
    module = _file(Path(place)) if place.endswith(".py") else _module(place)
    found = functools.reduce(functools.partial(_attribute, place), name.split("."), module)
    return _program(target, module, found)


def is_compiled(called: Any) -> bool:
    """Whether `thunder.jit` made it."""
    from thunder_core.runtime.compiled import Compiled
    from thunder_core.runtime.module import ThunderModule

    return isinstance(getattr(called, "__func__", called), Compiled | ThunderModule)


def _program(target: str, module: ModuleType, found: Any) -> Program:
    import torch

    if inspect.isclass(found) and issubclass(found, torch.nn.Module):
        found = found()
    elif inspect.isfunction(found) and not inspect.signature(found).parameters:
        made = found()
        if not callable(made):
            return Program(target, module, found, without_inputs=True)
        found = made
    if inspect.isclass(found) or not callable(found):
        what = f"the class {found.__name__}" if inspect.isclass(found) else f"an object of type {type(found).__name__}"
        raise _problem(f"{target} is {what}; it must be an nn.Module, a function, or what makes one of these")
    return Program(target, module, found, without_inputs=False)


def _file(path: Path) -> ModuleType:
    """The module in a file, imported as ``python path`` would find what it imports, but not as ``__main__``."""
    if not path.is_file():
        raise _problem(f"there is no file {path}")
    sys.path.insert(0, str(path.resolve().parent))
    name = path.stem if path.stem not in sys.modules else f"_program_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def _module(name: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # something that the module imports
        raise _problem(f"there is no module {error.name!r}; for a file, write its path with .py") from error


def _attribute(place: str, holder: Any, name: str) -> Any:
    missing = object()
    found = getattr(holder, name, missing)
    if found is missing:
        near = difflib.get_close_matches(name, dir(holder), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise _problem(f"{place} has no {name!r}{hint}")
    return found


def _evaluate(expression: str, module: ModuleType) -> Any:
    import torch

    try:
        return eval(expression, {"torch": torch} | vars(module))
    except Exception as error:
        raise _problem(f"{expression!r} raises {type(error).__name__}: {error}", "--inputs") from error


def _split(value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(value, Mapping):
        return (), dict(value)
    return (value if type(value) is tuple else (value,)), {}


def _problem(text: str, where: str = "PROGRAM") -> typer.BadParameter:
    return typer.BadParameter(text, param_hint=where)
