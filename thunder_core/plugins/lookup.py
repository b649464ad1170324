"""Resolve a name to a plugin's executor, transform, front end or preset."""

from __future__ import annotations

from thunder_core.errors import PluginError, suggestion
from thunder_core.plugins.distributions import CORE_PLUGIN
from thunder_core.plugins.first_party import first_party_items, first_party_names, how_to_get, plugin_that_replaces
from thunder_core.plugins.host import Host, host, new_manager
from thunder_core.plugins.importing import FAILURES, imported
from thunder_core.plugins.registration import register
from thunder_core.plugins.specs import KINDS, ExecutorSpec, Specification, plural
from thunder_core.plugins.states import Offered, PluginRecord, PluginState, Spec

_PYTORCH = frozenset({"torch", "pytorch", "eager", "aten", "aot_eager"})


def find(kind: type[Spec], name: str) -> Offered[Spec]:
    """The specification of ``name``: ``plugin.item``; else the core's; else that of the plugin ``name``; else any.

    The name of a plugin refers to its item of the same name, or to its only one. A name of the core is resolved without
    discovering plugins.

    Args:
        kind: the class of the specification.

    Raises:
        PluginError: there is none, or more than one, or its plugin cannot be used.
    """
    plugins = host()
    plugin, dot, item = name.partition(".")
    if dot:
        return _item_of(plugins.load(plugin), kind, item)
    core = plugins.load(CORE_PLUGIN)
    for spec in core.of(kind):
        if spec.name == name:
            return Offered(core, spec)
    if any(record.name == name for record in plugins.records):
        loaded = plugins.load(name)
        if loaded.of(kind):
            return _own_item(loaded, kind)
    return _anywhere(plugins, kind, name)


def find_without_library(kind: type[Spec], name: str) -> Offered[Spec] | None:
    """The specification ``name`` or ``plugin.name`` of a plugin whose library is missing; it is not registered.

    ``plugin`` alone names the specification of that name, or else the only one of this kind. None if the plugin has
    its library, has no such specification, or cannot be imported without the library.
    """
    plugin, _, item = name.partition(".")
    missing = (r for r in host().records if r.name == plugin and r.state is PluginState.LIBRARY_MISSING)
    record = next(missing, None)
    if record is None:
        return None
    try:
        specs = register(new_manager(), plugin, imported(record.target))
    except FAILURES:  # the record has the reason why the plugin cannot be used
        return None
    of_kind = [spec for spec in specs if isinstance(spec, kind)]
    named = [spec for spec in of_kind if getattr(spec, "name", None) == (item or plugin)]
    candidates = named or ([] if item else of_kind)
    return Offered(record, candidates[0]) if len(candidates) == 1 else None


def _item_of(loaded: PluginRecord, kind: type[Spec], item: str) -> Offered[Spec]:
    """The item ``plugin.item``."""
    specs = loaded.of(kind)
    for spec in specs:
        if spec.name == item:
            return Offered(loaded, spec)
    raise PluginError(
        f"the {loaded.title} offers no {kind.word} {item!r}{suggestion(item, [spec.name for spec in specs])}",
        advice=(f"it offers {loaded.summary()}",),
    )


def _own_item(loaded: PluginRecord, kind: type[Spec]) -> Offered[Spec]:
    """The item that the name of a plugin refers to."""
    specs, name = loaded.of(kind), loaded.name
    for spec in specs:
        if len(specs) == 1 or spec.name == name:
            return Offered(loaded, spec)
    raise PluginError(
        f"the {loaded.title} offers {len(specs)} {plural(kind)}, none of which is called {name!r}",
        advice=("name one of them: " + ", ".join(f"{name}.{spec.name}" for spec in specs),),
    )


def _anywhere(plugins: Host, kind: type[Spec], name: str) -> Offered[Spec]:
    """The item of this name of any plugin that can be loaded."""
    plugins.load_all()
    offered = plugins.offered(kind)
    matching = [item for item in offered if item.spec.name == name]
    if len(matching) == 1:
        return matching[0]
    if matching:
        sources = " and ".join(item.plugin.source for item in matching)
        raise PluginError(
            f"the {kind.word} {name!r} is offered by {sources}",
            advice=("name one of them: " + " or ".join(f"{item.plugin.name}.{name}" for item in matching),),
        )
    raise _unknown(plugins, kind, name, [item.spec.name for item in offered])


def _unknown(plugins: Host, kind: type[Specification], name: str, known: list[str]) -> PluginError:
    """The error for a name that no plugin has, with the plugins that could not be loaded."""
    names = [record.name for record in plugins.records if record.name != CORE_PLUGIN]
    advice = _other_meanings(plugins, name, names)
    if kind is ExecutorSpec and name in _PYTORCH:
        advice.append(
            "the reference executor, PyTorch, is always last and is not named: executors=[] for PyTorch alone"
        )
    replacement = plugin_that_replaces(name) if kind is ExecutorSpec else ""
    if replacement:
        advice.append(f"write {replacement!r}, which replaces the executor {name!r} of lightning-thunder")
    missing = name in first_party_names() and name not in names
    if (missing or not advice) and name in first_party_items():
        advice.insert(0, how_to_get(name))
    problem = f"there is no {kind.word} {name!r}"
    if missing:
        problem += f": the plugin {name!r} is not installed"
    others = {record.name for record in plugins.records if record.state is PluginState.LOADED and not record.of(kind)}
    candidates = [one for one in dict.fromkeys([*known, *names, *first_party_items()]) if one not in others]
    near = "" if advice else suggestion(name, candidates)
    advice.append(f"{plural(kind)} of installed plugins: {', '.join(sorted(set(known))) or 'none'}")
    silent = {record.name: record.state.value for record in plugins.records if record.state is not PluginState.LOADED}
    if silent:
        states = ", ".join(f"{plugin} ({state})" for plugin, state in silent.items())
        advice.append(f"plugins that are not loaded: {states}; `thunder plugins` shows the reasons")
    return PluginError(problem + near, advice=tuple(advice))


def _other_meanings(plugins: Host, name: str, names: list[str]) -> list[str]:
    """Advice for a name of another kind."""
    if name in names:
        loaded = plugins.load(name)
        return [f"the {loaded.title} offers {loaded.summary()}"]
    words = [other.word for other in KINDS.values() if any(item.spec.name == name for item in plugins.offered(other))]
    return [f"{name!r} is the name of something else: {', '.join(words)}"] if words else []
