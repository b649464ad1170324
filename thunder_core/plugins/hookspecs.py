"""The hooks: what a plugin may offer. This file is the manual for authors.

A plugin is a distribution with an entry point in the group ``thunder.plugins``::

    [project.entry-points."thunder.plugins"]
    my_kernels = "my_kernels:plugin"

    [project.entry-points."thunder.plugin_api"]
    my_kernels = "1"

The first line names the plugin and an object (a module will do) that has some of the functions below, each marked with
`hookimpl`. The second is the number of the interface that the plugin was written for, `API`; it is read before anything
is imported. Without it, 1 is assumed.

Importing that object must be cheap: it happens whenever somebody names the plugin in a configuration or lists plugins.
The functions return specifications, which say where things are without importing them. What is behind them, with the
vendor's library, is imported when a program is compiled that uses it. A library that the plugin needs is declared in
the extra ``lib`` alone, and checked, with its version, from metadata before anything is imported::

    [project.optional-dependencies]
    lib = ["vendor-library>=2.1"]

Plugins never decide the order of executors: the configuration does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pluggy

from thunder_core.plugins.specs import (
    Check,
    ExecutorSpec,
    FrontEndSpec,
    InterceptionsSpec,
    Preset,
    SymbolsSpec,
    TransformSpec,
)

API: Final = 1
"""The number of this interface. It grows when plugins have to be changed."""

PROJECT: Final = "thunder"
hookspec: Final = pluggy.HookspecMarker(PROJECT)
hookimpl: Final = pluggy.HookimplMarker(PROJECT)
"""Marks the functions of a plugin: ``@hookimpl``."""


@hookspec
def thunder_executors() -> Iterable[ExecutorSpec]:
    """Executors: who runs operations, alone or fused."""
    return ()


@hookspec
def thunder_transforms() -> Iterable[TransformSpec]:
    """Transforms: passes over programs, each at its place in the pipeline."""
    return ()


@hookspec
def thunder_symbols() -> Iterable[SymbolsSpec]:
    """Operations that the plugin defines, with what there is to know about them."""
    return ()


@hookspec
def thunder_interceptions() -> Iterable[InterceptionsSpec]:
    """Functions of a library that do something else while a program is recorded."""
    return ()


@hookspec
def thunder_front_ends() -> Iterable[FrontEndSpec]:
    """Other ways to record a program as a trace."""
    return ()


@hookspec
def thunder_presets() -> Iterable[Preset]:
    """Configurations that are shipped with the plugin, to be used by name."""
    return ()


@hookspec
def thunder_doctor() -> Iterable[Check]:
    """What ``thunder doctor`` should check: devices, drivers, versions of the vendor's library."""
    return ()
