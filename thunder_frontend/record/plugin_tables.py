"""Add the interceptions and tensor classes of a plugin to the front end, when the plugin is first used."""

from __future__ import annotations

import os
import sys

from thunder_core.plugins.importing import imported
from thunder_core.plugins.specs import InterceptionsSpec, TensorClassesSpec
from thunder_core.plugins.states import PluginRecord
from thunder_core.plugins.tables import items_of
from thunder_core.tracing.frames import add_internal_package, add_package
from thunder_frontend.record import interceptions
from thunder_frontend.record.communication import Communication
from thunder_frontend.record.interception import Interception


def add_interceptions(plugin: PluginRecord) -> None:
    """Add the interceptions of the plugin. Has no effect on those that were added before.

    Frames of ``InterceptionsSpec.unobserved`` are not observed from now on.

    Raises:
        InvalidPlugin: a table has something else than interceptions.
        ValueError: a function has an interception already, or does not exist.
        BaseException: whatever importing the tables raises.
    """
    for spec in plugin.of(InterceptionsSpec):
        interceptions.add_interceptions(items_of(spec.load, Interception, Communication))
        add_internal_package(_package_folder(spec.load))
        if spec.unobserved:
            add_package(os.path.dirname(imported(spec.unobserved).__file__))


def add_tensor_classes(plugin: PluginRecord) -> None:
    """Exclude the packages of the plugin's tensor classes from observed frames: they add guards themselves.

    Raises:
        BaseException: whatever importing the packages raises.
    """
    for spec in plugin.of(TensorClassesSpec):
        imported(spec.load)
        add_package(_package_folder(spec.load))


def _package_folder(load: str) -> str:
    """The folder of the top-level package of an imported path."""
    package = sys.modules[load.partition(":")[0].partition(".")[0]]
    return os.path.dirname(os.path.abspath(str(package.__file__)))
