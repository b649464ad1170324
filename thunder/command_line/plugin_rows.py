"""Plugins as ``thunder plugins`` and ``thunder doctor`` show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from thunder.command_line.output import Column, on_terminal, print_lines, print_table

if TYPE_CHECKING:
    from thunder_core.errors import PluginError
    from thunder_core.plugins.host import Host
    from thunder_core.plugins.states import PluginState

_STYLES: Final = {
    "loaded": "green",
    "available": "green",
    "failed": "red",
    "name clash": "red",
    "API mismatch": "red",
    "version conflict": "red",
    "library missing": "yellow",
    "blocked": "yellow",
}


def load_all(plugins: Host) -> PluginError | None:
    """Load what can be loaded. Returns the error that ``THUNDER_STRICT=1`` makes of defects, to be raised last."""
    from thunder_core.errors import PluginError

    try:
        plugins.load_all()
    except PluginError as error:
        return error
    return None


def print_plugins(plugins: Host) -> None:
    """Print a line for each installed plugin: on a terminal what fits it, elsewhere everything."""
    name, version, state = Column("PLUGIN"), Column("VERSION"), Column("STATE", styles=_STYLES)
    found = described(plugins)
    if on_terminal():
        rows = [[each["name"], each["version"], each["state"], each["why"] or _provided(each)] for each in found]
        print_table([name, version, state, Column("PROVIDES, OR WHY NOT", cut=True)], rows)
        print_lines(["", "thunder plugins NAME shows all about one of them."])
        return
    rows = [
        [
            *(each[key] for key in ("name", "distribution", "version", "state")),
            _provided(each),
            "; ".join(filter(None, (each["why"], each["advice"]))),
        ]
        for each in found
    ]
    print_table([name, Column("DISTRIBUTION"), version, state, Column("PROVIDES"), Column("WHY NOT")], rows)


def plugin_lines(plugin: dict[str, Any]) -> list[str]:
    """Everything about one plugin of `described`, as lines that are not wrapped."""
    lines = [f"{plugin['name']} {plugin['version']}, from {plugin['distribution']}: {plugin['state']}"]
    lines += [f"why: {plugin['why']}"] if plugin["why"] else []
    lines += [f"what to do: {plugin['advice']}"] if plugin["advice"] else []
    for kind, items in plugin["provides"].items():
        lines += ["", f"{kind}:"]
        lines += [f"  {item['name']}" + (f": {item['summary']}" if item["summary"] else "") for item in items]
    return lines


def _provided(plugin: dict[str, Any]) -> str:
    provides = plugin["provides"].items()
    return "; ".join(f"{kind}: {', '.join(item['name'] for item in items)}" for kind, items in provides)


def described(plugins: Host) -> list[dict[str, Any]]:
    """The plugins and what they provide, as data."""
    from thunder_core.plugins.specs import KINDS, plural

    kinds = {plural(kind): plugins.offered(kind) for kind in KINDS.values()}
    found = []
    for record in plugins.records:
        provided = {
            kind: [
                {"name": item.spec.name, "summary": getattr(item.spec, "summary", "")}
                for item in offered
                if item.plugin.name == record.name
            ]
            for kind, offered in kinds.items()
        }
        found.append(
            {
                "name": record.name,
                "distribution": record.distribution,
                "version": record.version,
                "state": record.state.value,
                "provides": {kind: items for kind, items in provided.items() if items},
                "why": record.why,
                "advice": record.advice,
            }
        )
    return found


def defects() -> frozenset[PluginState]:
    """The states of defective plugins. An absent library or a blocked plugin is not a defect."""
    from thunder_core.plugins.states import PluginState

    return frozenset(
        {PluginState.FAILED, PluginState.NAME_CLASH, PluginState.API_MISMATCH, PluginState.VERSION_CONFLICT}
    )
