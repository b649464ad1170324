"""Plugins as ``thunder plugins`` and ``thunder doctor`` show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from thunder.command_line.output import Column

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


def plugin_table(plugins: Host) -> tuple[list[Column], list[list[str]]]:
    """Columns and rows, a row for each installed plugin."""
    titles = ("PLUGIN", "DISTRIBUTION", "VERSION")
    columns = [
        *map(Column, titles),
        Column("STATE", styles=_STYLES),
        Column("PROVIDES", wraps=True),
        Column("WHY NOT", wraps=True),
    ]
    rows = [
        [
            plugin["name"],
            plugin["distribution"],
            plugin["version"],
            plugin["state"],
            "; ".join(f"{kind}: {', '.join(map(_named, items))}" for kind, items in plugin["provides"].items()),
            "; ".join(filter(None, (plugin["why"], plugin["advice"]))),
        ]
        for plugin in described(plugins)
    ]
    return columns, rows


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


def _named(item: dict[str, str]) -> str:
    return item["name"]
