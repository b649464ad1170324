"""Register a plugin with pluggy, and validate the specifications that its hooks return."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Final

import pluggy

from thunder_core.errors import suggestion
from thunder_core.plugins.importing import code_of_plugin, is_target
from thunder_core.plugins.specs import KINDS, TABLES, CheckSpec, FrontEndSpec, Preset

_PREFIX: Final = "thunder_"
_MARK: Final = "thunder_impl"
"""The attribute that `thunder_core.plugins.hookimpl` sets."""


def register(manager: pluggy.PluginManager, name: str, plugin: Any) -> tuple[Any, ...]:
    """Register the object ``plugin`` as ``name`` and return its specifications. Not registered if this raises.

    Raises:
        InvalidPlugin: its hooks, or their specifications, are not valid by `thunder_core.plugins.hookspecs`.
        Exception: whatever a hook raises, or SystemExit.
        KeyboardInterrupt: the user interrupted the process.
    """
    _check_object(manager, plugin)
    try:
        with code_of_plugin():
            manager.register(plugin, name)
            _check_hooks(manager, plugin)
            return tuple(spec for hook in KINDS for spec in _specs_of(manager, plugin, hook))
    except BaseException as error:
        if manager.has_plugin(name):
            manager.unregister(name=name)
        if isinstance(error, pluggy.PluginValidationError):
            raise InvalidPlugin(" ".join(str(error).split())) from error
        raise


def _check_object(manager: pluggy.PluginManager, plugin: Any) -> None:
    other = None if plugin is None else manager.get_name(plugin)
    if other is not None:
        raise InvalidPlugin(f"its entry point names the same object as that of the plugin {other!r}")
    for attribute in dir(plugin):
        value = inspect.getattr_static(plugin, attribute) if attribute.startswith(_PREFIX) else None
        if not inspect.isroutine(value) or hasattr(getattr(value, "__func__", value), _MARK):
            continue
        if attribute in KINDS:
            raise InvalidPlugin(f"its function {attribute} is not marked with @hookimpl")
        near = suggestion(attribute, KINDS)
        if near:
            raise InvalidPlugin(f"there is no hook {attribute}{near}")


def _check_hooks(manager: pluggy.PluginManager, plugin: Any) -> None:
    callers = manager.get_hookcallers(plugin)
    if not callers:
        raise InvalidPlugin(
            f"{_described(plugin)}, which its entry point names, has none of the hooks: {', '.join(KINDS)}"
        )
    for caller in callers:
        if caller.name not in KINDS:
            raise InvalidPlugin(f"there is no hook {caller.name}{suggestion(caller.name, KINDS)}")
        if any(impl.plugin is plugin and (impl.wrapper or impl.hookwrapper) for impl in caller.get_hookimpls()):
            raise InvalidPlugin(f"{caller.name} is a wrapper, and hooks return specifications")


def _specs_of(manager: pluggy.PluginManager, plugin: Any, hook: str) -> tuple[Any, ...]:
    """The specifications that this plugin, and no other, returns from one hook."""
    caller = getattr(manager.hook, hook)
    if not any(impl.plugin is plugin for impl in caller.get_hookimpls()):
        return ()
    others = [other for other in manager.get_plugins() if other is not plugin]
    results = manager.subset_hook_caller(hook, others)()
    return _validated(hook, results[0] if results else None)


def _described(plugin: Any) -> str:
    return f"the module {plugin.__name__}" if inspect.ismodule(plugin) else f"the object {type(plugin).__qualname__}"


_NAME: Final = re.compile(r"[^\W\d][\w-]*")
_CLASS: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


class InvalidPlugin(Exception):
    """A hook of a plugin, or a specification, is not valid. The message names the hook and the problem."""


def _validated(hook: str, returned: Any) -> tuple[Any, ...]:
    """The specifications that a hook returned, as a tuple.

    Raises:
        InvalidPlugin: the hook returned something else, or a specification is not valid.
        Exception: whatever a generator raises.
    """
    kind = KINDS[hook]
    if not isinstance(returned, Iterable) or isinstance(returned, str | bytes | dict):
        raise InvalidPlugin(f"{hook} returned {_short(returned)}, and not a list of {kind.__name__}")
    specs = tuple(returned)
    for spec in specs:
        if not isinstance(spec, kind):
            raise InvalidPlugin(f"{hook} returned a list with {_short(spec)}, and not of {kind.__name__}")
        _check(hook, spec)
    names = [spec.name for spec in specs if not isinstance(spec, TABLES)]
    for name in names:
        if names.count(name) > 1:
            raise InvalidPlugin(f"{hook} returned two with the name {name!r}")
    return specs


def _check(hook: str, spec: Any) -> None:
    name = spec.name
    what = f"{hook} returned a {type(spec).__name__} {name!r}"
    if isinstance(spec, CheckSpec):
        if not (isinstance(name, str) and name.strip()):
            raise InvalidPlugin(f"{what}, which is not a valid name")
    elif not isinstance(spec, TABLES) and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise InvalidPlugin(f"{what}, which is not a valid name: use letters, digits, underscores and hyphens")
    if isinstance(spec, Preset):
        if not all(isinstance(part, str) and part for part in (spec.package, spec.file)):
            raise InvalidPlugin(f"{what} without the name of a package and of a file in it")
    elif not is_target(spec.load):
        raise InvalidPlugin(f"{what} whose load is {_short(spec.load)}, and not of the form 'package.module:attribute'")
    if isinstance(spec, FrontEndSpec) and not all(map(_is_kind_of_program, spec.programs)):
        raise InvalidPlugin(
            f"{what} whose programs are {_short(spec.programs)}, and not pairs of the dotted path of a class and a "
            "path of the form 'package.module:attribute'"
        )
    base = next((field.default for field in fields(spec) if field.name == "options"), None)
    if isinstance(base, type) and not (isinstance(spec.options, type) and issubclass(spec.options, base)):
        raise InvalidPlugin(f"{what} whose options are {_short(spec.options)}, and not a subclass of {base.__name__}")


def _is_kind_of_program(pair: Any) -> bool:
    if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
        return False
    return _CLASS.fullmatch(pair[0]) is not None and is_target(pair[1])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
