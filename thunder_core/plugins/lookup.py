"""Which plugin's executor, transform, front end or preset a name means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thunder_core.errors import PluginError
from thunder_core.plugins.first_party import first_party_items, how_to_get
from thunder_core.plugins.nearest import suggestion
from thunder_core.plugins.selection import CORE_PLUGIN
from thunder_core.plugins.states import PluginState
from thunder_core.plugins.table import WORDS, Loaded, Offered, Spec, plural

_PYTORCH = frozenset({"torch", "pytorch", "eager", "aten", "aot_eager"})

if TYPE_CHECKING:
    from thunder_core.plugins.host import Host


def find(host: Host, kind: type[Spec], name: str) -> Offered[Spec]:
    """What ``name`` means: ``plugin.item``; else one of the core's; else the plugin of this name; else any plugin's.

    A plugin stands for its item of the same name, or for its only one.

    Raises:
        PluginError: there is none, or more than one, or its plugin cannot be used.
    """
    plugin, dot, item = name.partition(".")
    if dot:
        return _item_of(host.load(plugin), kind, item)
    core = host.load(CORE_PLUGIN)
    for spec in core.of(kind):
        if _name(spec) == name:
            return Offered(core.plugin, spec)
    if any(record.name == name for record in host.records):
        loaded = host.load(name)
        if loaded.of(kind):
            return _own_item(loaded, kind)
    return _anywhere(host, kind, name)


def _item_of(loaded: Loaded, kind: type[Spec], item: str) -> Offered[Spec]:
    """The item of a plugin that was named."""
    specs = loaded.of(kind)
    for spec in specs:
        if _name(spec) == item:
            return Offered(loaded.plugin, spec)
    raise PluginError(
        f"the {loaded.plugin.title} offers no {WORDS[kind]} {item!r}{suggestion(item, map(_name, specs))}",
        advice=(f"it offers {loaded.summary()}",),
    )


def _own_item(loaded: Loaded, kind: type[Spec]) -> Offered[Spec]:
    """The item that the name of a plugin refers to."""
    specs, name = loaded.of(kind), loaded.plugin.name
    for spec in specs:
        if len(specs) == 1 or _name(spec) == name:
            return Offered(loaded.plugin, spec)
    raise PluginError(
        f"the {loaded.plugin.title} offers {len(specs)} {plural(kind)}, none of which is called {name!r}",
        advice=("name one of them: " + ", ".join(f"{name}.{_name(spec)}" for spec in specs),),
    )


def _anywhere(host: Host, kind: type[Spec], name: str) -> Offered[Spec]:
    """The item of this name of any plugin that can be loaded."""
    host.load_all()
    offered = host.offered(kind)
    matching = [item for item in offered if _name(item.spec) == name]
    if len(matching) == 1:
        return matching[0]
    if matching:
        sources = " and ".join(item.plugin.source for item in matching)
        raise PluginError(
            f"the {WORDS[kind]} {name!r} is offered by {sources}",
            advice=("say which: " + " or ".join(f"{item.plugin.name}.{name}" for item in matching),),
        )
    raise _unknown(host, kind, name, [_name(item.spec) for item in offered])


def _unknown(host: Host, kind: type[Any], name: str, known: list[str]) -> PluginError:
    """The error for a name that nobody offers, with the plugins that could not be loaded."""
    plugins = [record.name for record in host.records if record.name != CORE_PLUGIN]
    advice = _other_meanings(host, kind, name, plugins)
    if WORDS[kind] == "executor" and name in _PYTORCH:
        advice.append(
            "PyTorch runs what no executor takes, last and without being named: executors=[] for PyTorch alone"
        )
    if not advice and name in first_party_items():
        advice.append(how_to_get(name))
    near = "" if advice else suggestion(name, dict.fromkeys([*known, *plugins, *first_party_items()]))
    advice.append(f"{plural(kind)} of installed plugins: {', '.join(sorted(set(known))) or 'none'}")
    silent = {record.name: record.state.value for record in host.records if record.state is not PluginState.LOADED}
    if silent:
        states = ", ".join(f"{plugin} ({state})" for plugin, state in silent.items())
        advice.append(f"plugins that could not be asked: {states}; `thunder plugins` says why")
    return PluginError(f"there is no {WORDS[kind]} {name!r}{near}", advice=tuple(advice))


def _other_meanings(host: Host, kind: type[Any], name: str, plugins: list[str]) -> list[str]:
    """What the name is where it is no name of this kind."""
    if name in plugins:
        loaded = host.load(name)
        return [f"the {loaded.plugin.title} offers {loaded.summary()}"]
    words = [word for other, word in WORDS.items() if any(_name(item.spec) == name for item in host.offered(other))]
    return [f"{name!r} is the name of another kind of thing: {', '.join(words)}"] if words else []


def _name(spec: Any) -> str:
    name: str = spec.name
    return name
