"""The hooks of plugins. This file is the manual for authors.

A plugin is a distribution with an entry point in the group ``thunder.plugins``::

    [project.entry-points."thunder.plugins"]
    my_kernels = "my_kernels:plugin"

    [project.entry-points."thunder.plugin_api"]
    my_kernels = "1"

The first line names the plugin and an object (a module will do) that has some of the functions below, each marked with
`hookimpl`. The second is the number of the interface that the plugin was written for, `API`; it is read before anything
is imported. Without it, 1 is assumed, and loading the plugin warns.

Importing that object must be fast: it is imported when a configuration names the plugin, and when plugins are listed.
The functions return specifications, which contain import paths. The objects at these paths, and the vendor's library,
are imported when a compiled program uses them. Declare the library in the extra ``lib`` only. Its version is checked
from metadata before anything is imported::

    [project.optional-dependencies]
    lib = ["vendor-library>=2.1"]

Plugins never decide the order of executors: the configuration does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pluggy

from thunder_core.plugins.specs import (
    CheckSpec,
    CommandSpec,
    ExecutorSpec,
    FrontEndSpec,
    InterceptionsSpec,
    Preset,
    SymbolsSpec,
    TensorClassesSpec,
    TransformSpec,
)

API: Final = 1
"""The version of the plugin interface. It increases when plugins have to be changed."""

PROJECT: Final = "thunder"
hookspec: Final = pluggy.HookspecMarker(PROJECT)
hookimpl: Final = pluggy.HookimplMarker(PROJECT)
"""Marks the functions of a plugin: ``@hookimpl``."""


@hookspec
def thunder_executors() -> Iterable[ExecutorSpec]:
    """Executors, which run operations, alone or fused."""
    return ()


@hookspec
def thunder_transforms() -> Iterable[TransformSpec]:
    """Transforms: passes over programs, each at its place in the pipeline."""
    return ()


@hookspec
def thunder_symbols() -> Iterable[SymbolsSpec]:
    """Operations that the plugin defines, with their properties and derivatives."""
    return ()


@hookspec
def thunder_interceptions() -> Iterable[InterceptionsSpec]:
    """Replacements for functions of a library while a program is recorded."""
    return ()


@hookspec
def thunder_tensor_classes() -> Iterable[TensorClassesSpec]:
    """Support for tensors that hold tensors, which the core refuses."""
    return ()


@hookspec
def thunder_front_ends() -> Iterable[FrontEndSpec]:
    """Other ways to record a program as a trace."""
    return ()


@hookspec
def thunder_presets() -> Iterable[Preset]:
    """Configurations in the plugin's package, which users select by name."""
    return ()


@hookspec
def thunder_commands() -> Iterable[CommandSpec]:
    """Commands of ``thunder``."""
    return ()


@hookspec
def thunder_doctor() -> Iterable[CheckSpec]:
    """Checks of ``thunder doctor``: devices, drivers, versions of the vendor's library."""
    return ()
