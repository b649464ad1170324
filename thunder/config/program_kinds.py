"""The front end of a program that is neither a function nor a module: that of the plugin that records its class."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any, Final

import torch

from thunder.config.declared_sizes import DeclaredSizes
from thunder.config.settings import ConfiguredSettings
from thunder_core.errors import OptionError, PluginError
from thunder_core.plugins.first_party import plugin_that_compiles
from thunder_core.plugins.host import host
from thunder_core.plugins.lookup import find
from thunder_core.plugins.specs import FrontEndSpec
from thunder_core.plugins.states import Offered
from thunder_core.pytorch_internals import OpOverload, OpOverloadPacket

_CONFIGURED: Final = (
    *(FunctionType, BuiltinFunctionType, MethodType, MethodDescriptorType, WrapperDescriptorType, MethodWrapperType),
    *(functools.partial, torch.nn.Module, OpOverload, OpOverloadPacket, type),
)
"""The classes of programs that the configured front end records. For other classes, plugins name a front end."""
_DEFAULT: Final = "run"


def for_program(program: Any, settings: ConfiguredSettings) -> tuple[Any, ConfiguredSettings]:
    """The function or module to compile for a program, and the settings with the front end that records it.

    Both are returned unchanged if no front end has the class of the program among its `FrontEndSpec.programs`.

    Raises:
        PluginError: the front end for the class belongs to a plugin that is not installed or cannot be used; or several
            plugins have one.
        OptionError: the configuration names another front end, or declares sizes.
    """
    if isinstance(program, _CONFIGURED):
        return program, settings
    offered, convert = _front_end_of(type(program))
    if offered is None:
        return program, settings
    name = f"{offered.plugin.name}.{offered.spec.name}"
    kind = type(program).__qualname__
    configured = settings.config.front_end
    if configured not in (_DEFAULT, name, offered.spec.name, offered.plugin.name):
        raise OptionError(
            f"front_end: a program of the class {kind} is recorded by the front end {name!r}, not by {configured!r}",
            advice=("omit front_end",),
        )
    if isinstance(settings.config.dynamic, DeclaredSizes):
        raise OptionError(
            f"dynamic: the front end {name!r} takes no declarations of sizes",
            advice=(f"declare the sizes where the {kind} is created",),
        )
    front_end = host().import_object(offered)
    function = host().import_object(offered, convert)(program)
    config = settings.config.model_copy(update={"front_end": name})
    return function, replace(settings, config=config, front_end=front_end)


def _front_end_of(kind: type) -> tuple[Offered[FrontEndSpec] | None, str]:
    """The front end for the programs of a class, and the path of the function that converts them; None if none is."""
    host().load_all()
    for base in kind.__mro__:
        path = f"{base.__module__}.{base.__qualname__}"
        found = [
            (offered, convert)
            for offered in host().offered(FrontEndSpec)
            for name, convert in offered.spec.programs
            if name == path
        ]
        if len(found) > 1:
            sources = " and ".join([offered.plugin.source for offered, _ in found])
            raise PluginError(
                f"the class {path} of programs has front ends of {sources}",
                advice=("uninstall one of them, or block it by THUNDER_PLUGINS",),
            )
        if found:
            return found[0]
        plugin = plugin_that_compiles(path)
        if plugin:
            offered = find(FrontEndSpec, plugin)  # raises if it is not installed, or cannot be used
            raise PluginError(
                f"the installed version of {offered.plugin.source} does not compile programs of the class {path}",
                advice=(f"pip install --upgrade {offered.plugin.source.partition(' ')[0]}",),
            )
    return None, ""
