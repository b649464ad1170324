"""Load the program that a command names, and call it."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import typer

from thunder_core.errors import suggestion

_INPUTS: Final = ("inputs", "example_inputs")
_NONE: Final = object()
_LISTED: Final = 8
"""The largest number of names that a message lists."""
_NO_INPUTS: Final = (
    'how to call it? Give --inputs, like "torch.randn(2, 4)", or define `inputs` next to it: one argument, a tuple of '
    "arguments, a dict of keyword arguments, or a function that returns one of these"
)


@dataclass(frozen=True)
class Program:
    """A program in a module.

    Attributes:
        target: the name that the user gave: ``path/to/program.py:name`` or ``package.module:name``.
        module: its module.
        called: a function, an `nn.Module`, or a compiled one.
        without_inputs: whether it takes no inputs.
        given: the inputs that a factory returned with it; `_NONE` for none.
    """

    target: str
    module: ModuleType
    called: Any
    without_inputs: bool
    given: Any = _NONE

    def arguments(self, expression: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call it with.

        Args:
            expression: evaluated among the names of its module, and torch. None for its attribute `inputs` or
                `example_inputs`, else that of its module.

        Raises:
            typer.BadParameter: there are none, the expression cannot be evaluated, or the program does not take them.
        """
        args, kwargs = self._inputs(expression)
        problem = _call_problem(self.called, args, kwargs)
        if problem is not None:
            raise _problem(f"{self.target} cannot be called with its inputs: {problem}", "--inputs")
        return args, kwargs

    def _inputs(self, expression: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if expression is not None:
            return _split(_evaluate(expression, self.module))
        if self.given is not _NONE:
            return _split(self.given)
        if self.without_inputs:
            return (), {}
        for name, value in self._named_inputs():
            what = f"{self.target}: `{name}` must be a value, or a function that takes no arguments"
            return _split(_without_arguments(value, what, "--inputs") if callable(value) else value)
        raise _problem(f"{self.target}: {_NO_INPUTS}", "--inputs")

    def has_inputs(self) -> bool:
        """Whether it can be called without an expression of its inputs."""
        return self.without_inputs or self.given is not _NONE or any(True for _ in self._named_inputs())

    def _named_inputs(self) -> Iterator[tuple[str, Any]]:
        """The attributes of the program and of its module that may be its inputs."""
        import torch

        for holder in (self.called, self.module):
            for name in _INPUTS:
                value = getattr(holder, name, None)
                if value is not None and not isinstance(value, torch.nn.Module):  # a layer of this name
                    yield name, value


def load_program(target: str) -> Program:
    """Import the module of ``target`` and find the program in it; a class or a factory is called.

    Raises:
        typer.BadParameter: the file, module or name does not exist, or cannot be compiled.
    """
    module, found = _import(target)
    return _program(target, module, found)


def _import(target: str) -> tuple[ModuleType, Any]:
    """The module of ``target``, and the object."""
    place, _, name = target.rpartition(":")
    if not place or not all(name.split(".")):
        raise _problem(f"{target!r} does not name an object; write program.py:model or package.module:model")
    if ".py:" in place:
        raise _problem(f"{target!r} has more than one colon; write program.py:model.part for a part of an object")
    module = _file(Path(place)) if place.endswith(".py") else _module(place)
    return module, functools.reduce(functools.partial(_attribute, place), name.split("."), module)


def load_for_mesh(target: str) -> Callable[[Any], Program]:
    """As `load_program`, for a program that may depend on a mesh of devices.

    A function with one parameter ``mesh`` is called with the mesh, and returns the program, or it and its inputs.

    Raises:
        typer.BadParameter: as `load_program` does, here or when the result is called.
    """
    module, found = _import(target)

    def load(mesh: Any) -> Program:
        made = found
        if inspect.isfunction(found) and list(inspect.signature(found).parameters) == ["mesh"]:
            made = found(mesh)
        if isinstance(made, tuple) and len(made) == 2:
            made, inputs = made
            return replace(_program(target, module, made), given=inputs, without_inputs=False)
        return _program(target, module, made)

    return load


def is_compiled(called: Any) -> bool:
    """Whether it is a result of `thunder.jit`."""
    from thunder.compiled.function import Compiled
    from thunder.compiled.module import ThunderModule

    return isinstance(getattr(called, "__func__", called), Compiled | ThunderModule)


def _program(target: str, module: ModuleType, found: Any) -> Program:
    import torch

    if inspect.isclass(found) and issubclass(found, torch.nn.Module):
        found = _without_arguments(
            found, f"{target} cannot be created without arguments; name an object, or a function that returns one"
        )
    elif inspect.isfunction(found) and not inspect.signature(found).parameters:
        made = found()
        if not callable(made):
            return Program(target, module, found, without_inputs=True)
        found = made
    if inspect.isclass(found) or not callable(found):
        what = f"the class {found.__name__}" if inspect.isclass(found) else f"an object of type {type(found).__name__}"
        raise _problem(
            f"{target} is {what}; it must be an nn.Module, a function, or a class or function that creates one"
        )
    return Program(target, module, found, without_inputs=False)


def _without_arguments(function: Any, what: str, where: str = "PROGRAM") -> Any:
    """Call it. Raises its exceptions, and typer.BadParameter if it requires arguments."""
    try:
        return function()
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:  # from a line of the program
            raise
        raise _problem(f"{what}: {error}", where) from error


def _call_problem(called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Why it does not take these arguments; None if it does, or has no signature."""
    import torch

    strangers = [name for name in kwargs if not isinstance(name, str)]
    if strangers:
        return f"names of keyword arguments are text, not {strangers[0]!r}; write ({{...}},) for one that is a dict"
    if isinstance(called, torch.nn.Module):
        if type(called).__call__ is not torch.nn.Module.__call__ or called._forward_pre_hooks:  # which change arguments
            return None
        called = called.forward
    try:
        signature = inspect.signature(called, follow_wrapped=False)  # a wrapper may add arguments
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return None


def _file(path: Path) -> ModuleType:
    """The module in a file. It finds its imports as under ``python path``, but is not named ``__main__``."""
    if not path.is_file():
        siblings = [file.name for file in path.parent.glob("*.py")]
        near = suggestion(path.name, siblings, cutoff=0.8)  # high, since all have the same ending
        raise _problem(f"file not found: {path}{near}")
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
    if Path(name).is_file():
        raise _problem(f"{name} is a file, but its name does not end with .py")
    if name.startswith(".") or os.sep in name:
        raise _problem(f"{name!r} is not the name of a module; write program.py:model or package.module:model")
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # something that the module imports
        raise _problem(f"module not found: {error.name!r}; for a file, write its path with .py") from error


def _attribute(place: str, holder: Any, name: str) -> Any:
    missing = object()
    found = getattr(holder, name, missing)
    if found is missing:
        raise _problem(f"{place} has no {name!r}{suggestion(name, dir(holder)) or _programs(holder)}")
    return found


def _programs(holder: Any) -> str:
    """The functions and modules of a file, for the message about a name that it does not have."""
    import torch

    if not isinstance(holder, ModuleType):
        return ""
    names = [
        name
        for name, value in vars(holder).items()
        if isinstance(value, torch.nn.Module)
        or (isinstance(value, FunctionType) and value.__module__ == holder.__name__)
    ]
    return f"; it has {', '.join(names)}" if 0 < len(names) <= _LISTED else ""


def _evaluate(expression: str, module: ModuleType) -> Any:
    import torch

    if not expression.strip():
        raise _problem("it is empty", "--inputs")
    try:
        return eval(expression, {"torch": torch} | vars(module))
    except SyntaxError as error:
        advice = """for keyword arguments write a dict: {"x": torch.randn(2, 4)}"""
        raise _problem(f"{expression!r} is not a Python expression: {error.msg}; {advice}", "--inputs") from error
    except (Exception, SystemExit) as error:
        raise _problem(f"{expression!r} raises {type(error).__name__}: {error}", "--inputs") from error


def _split(value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(value, Mapping):
        return (), dict(value)
    return (value if type(value) is tuple else (value,)), {}


def _problem(text: str, where: str = "PROGRAM") -> typer.BadParameter:
    return typer.BadParameter(text, param_hint=where)
