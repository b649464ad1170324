"""Checks of the items that a plugin offers: they can be loaded, and their options are documented."""

from __future__ import annotations

import importlib.resources
from typing import TYPE_CHECKING, cast

from thunder.config import settings_of
from thunder.config.entry import LISTS
from thunder.config.problems import sentences
from thunder_core.errors import ConfigError, PluginError, ThunderError
from thunder_core.plugins.host import host
from thunder_core.plugins.specs import TABLES, FrontEndSpec, Preset
from thunder_core.private_names import PrivateNames
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.package.project import Item
from thunder_testing.package.readme_options import specific_options

if TYPE_CHECKING:
    from pydantic import ValidationError


def check_load(item: Item) -> None:
    """Check that the object named by the specification exists, if the plugin can be used."""
    item.plugin.require()
    if isinstance(item.spec, Preset):
        _check_preset(item.spec)
        return
    try:
        offered = host().load(item.plugin.name).of(type(item.spec))
        spec = next(spec for spec in offered if Item(item.plugin, spec).name == item.name)
        loaded = host().import_object(spec)
    except PluginError as error:
        raise Breach("load", error.problem) from error
    if isinstance(item.spec, TABLES) or isinstance(loaded, PrivateNames):
        return
    called = getattr(loaded, "record", None) if isinstance(item.spec, FrontEndSpec) else loaded
    if not callable(called):
        wanted = "has no method record" if isinstance(item.spec, FrontEndSpec) else "cannot be called"
        kind = type(loaded).__name__
        raise Breach("load", f"{item.spec.load}, for the {item.title}, is {kind}, and {wanted}")


def list_of(item: Item) -> str | None:
    """The option of a configuration that lists items of this kind; None for items without an object, such as tables."""
    return next((option for option, row in LISTS.items() if row.kind and row.spec is type(item.spec)), None)


def check_created(item: Item) -> None:
    """Check that a configuration creates it under the name of its specification.

    Its options are the defaults. An option without a default has the first example of its field.
    """
    item.plugin.require()
    fields = {name: field for name, field in item.spec.options.model_fields.items() if field.is_required()}
    silent = [name for name, field in fields.items() if not field.examples]
    if silent:
        raise NotApplicable(
            f"the {item.title} needs {', '.join(silent)}, for which there is no example to test it with"
        )
    options = {name: field.examples[0] for name, field in fields.items()}
    option = list_of(item)
    assert option is not None
    try:
        settings_of(**{option: [{f"{item.plugin.name}.{item.name}": options}]})
    except PluginError as error:
        if isinstance(error.__cause__, ThunderError):  # the plugin's own reason, such as a device that is missing
            raise NotApplicable(error.problem) from error
        raise Breach("create", error.problem) from error
    except ConfigError as error:
        raise Breach("create", error.problem) from error


def check_described(item: Item) -> None:
    """Check that each option has a description."""
    options = specific_options(item.spec.options)
    silent = [name for name, field in options.items() if not (field.description or "").strip()]
    if silent:
        raise Breach(
            "descriptions",
            f"of the options of the {item.title}, {', '.join(silent)} have no description: write a docstring below "
            f"each in {item.spec.options.__qualname__}",
        )


def check_misspelt(item: Item) -> None:
    """Check that an unknown option is an error that suggests the nearest name."""
    names = specific_options(item.spec.options)
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
        exists = (importlib.resources.files(preset.package) / preset.file).is_file()
    except ImportError as error:
        raise Breach("load", f"the preset {preset.name} is in {preset.package}, which cannot be imported") from error
    if not exists:
        raise Breach("load", f"the preset {preset.name} is {preset.file} in {preset.package}, and that is not there")
