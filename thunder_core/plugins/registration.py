"""A plugin's object, registered with pluggy and asked what it offers."""

from __future__ import annotations

import inspect
from typing import Any, Final

import pluggy

from thunder_core.plugins.importing import FAILURES
from thunder_core.plugins.nearest import suggestion
from thunder_core.plugins.validation import KINDS, InvalidPlugin, checked

_PREFIX: Final = "thunder_"
_MARK: Final = "thunder_impl"
"""The attribute that `thunder_core.plugins.hookimpl` sets."""


def register(manager: pluggy.PluginManager, name: str, plugin: Any, *, of_core: bool) -> tuple[Any, ...]:
    """Register the object as ``name`` and return its specifications. It is not registered when this raises.

    Raises:
        InvalidPlugin: its hooks, or what they return, are not those of the manual.
        BaseException: whatever a hook raises.
    """
    _check_object(manager, plugin)
    try:
        manager.register(plugin, name)
        _check_hooks(manager, plugin)
        return tuple(spec for hook in KINDS for spec in _ask(manager, plugin, hook, of_core))
    except FAILURES as error:
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


def _ask(manager: pluggy.PluginManager, plugin: Any, hook: str, of_core: bool) -> tuple[Any, ...]:
    """The specifications that this plugin, and no other, returns from one hook."""
    caller = getattr(manager.hook, hook)
    if not any(impl.plugin is plugin for impl in caller.get_hookimpls()):
        return ()
    others = [other for other in manager.get_plugins() if other is not plugin]
    results = manager.subset_hook_caller(hook, others)()
    return checked(hook, results[0] if results else None, of_core=of_core)


def _described(plugin: Any) -> str:
    return f"the module {plugin.__name__}" if inspect.ismodule(plugin) else f"the object {type(plugin).__qualname__}"
