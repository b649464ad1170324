"""Checks of what a plugin offers: that it is where it says, and that its options explain themselves."""

from __future__ import annotations

import importlib.resources
from typing import TYPE_CHECKING, cast

from thunder_core.config.sentences import sentences
from thunder_core.errors import PluginError
from thunder_core.plugins.host import host
from thunder_core.plugins.specs import TABLES, Preset
from thunder_core.private_names import PrivateNames
from thunder_testing.conformance.failure import Breach
from thunder_testing.package.project import Item
from thunder_testing.package.readme_options import own_options

if TYPE_CHECKING:
    from pydantic import ValidationError


def check_load(item: Item) -> None:
    """What the specification names is there. Where the plugin cannot be used, it is not looked for."""
    item.plugin.require()
    if isinstance(item.spec, Preset):
        _check_preset(item.spec)
        return
    try:
        offered = host().load(item.plugin.name).of(type(item.spec))
        spec = next(spec for spec in offered if Item(item.plugin, spec).name == item.name)
        found = host().import_object(spec)
    except PluginError as error:
        raise Breach("load", error.problem) from error
    if not isinstance(item.spec, TABLES) and not callable(found) and not isinstance(found, PrivateNames):
        raise Breach("load", f"{item.spec.load}, for the {item.title}, is {type(found).__name__}, and cannot be called")


def check_described(item: Item) -> None:
    """Each option says what it means."""
    silent = [name for name, field in own_options(item.spec.options).items() if not (field.description or "").strip()]
    if silent:
        raise Breach(
            "descriptions",
            f"of the options of the {item.title}, {', '.join(silent)} have no description: write a docstring below "
            f"each in {item.spec.options.__qualname__}",
        )


def check_misspelt(item: Item) -> None:
    """An option that there is not is refused, and the nearest one is named."""
    names = own_options(item.spec.options)
    name = next(iter(names))
    wrong = name[0] + name
    while wrong in names:
        wrong = name[0] + wrong
    data = {wrong: None}
    try:
        item.spec.options.model_validate(data)
    except ValueError as error:
        said = dict(sentences(cast("ValidationError", error), item.spec.options, data)).get((wrong,), "nothing")
        if "did you mean" in said:
            return
        raise Breach("misspelt options", f"of an option {wrong!r} the {item.title} says: {said}") from error
    raise Breach(
        "misspelt options",
        f"the {item.title} takes an option {wrong!r}, which there is not, so that nobody notices a wrong {name!r}: "
        f'{item.spec.options.__qualname__} must keep extra="forbid"',
    )


def _check_preset(preset: Preset) -> None:
    try:
        found = (importlib.resources.files(preset.package) / preset.file).is_file()
    except ImportError as error:
        raise Breach("load", f"the preset {preset.name} is in {preset.package}, which cannot be imported") from error
    if not found:
        raise Breach("load", f"the preset {preset.name} is {preset.file} in {preset.package}, and that is not there")
