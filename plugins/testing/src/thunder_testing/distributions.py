"""Metadata of installed distributions for tests, as written by pip."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from thunder_core.plugins import API
from thunder_core.plugins.distributions import API_GROUP, GROUP


def write_metadata(
    site: Path,
    name: str,
    *,
    version: str = "1.0",
    requires: Sequence[str] = (),
    extras: Sequence[str] = (),
    plugins: Mapping[str, str] | None = None,
    interfaces: Mapping[str, str | int] | None = None,
    urls: Mapping[str, str] | None = None,
) -> Path:
    """Write the metadata of a distribution, so that it is installed for Python if ``site`` is on the path.

    Args:
        site: a folder of packages.
        name, version: of the distribution.
        requires: requirements, such as ``'vendor-library>=2; extra == "lib"'``.
        extras: names of extras.
        plugins: entry points in the group ``thunder.plugins``: ``module:attribute`` by plugin name.
        interfaces: entry points in the group ``thunder.plugin_api``; by default the current one for each plugin.
        urls: addresses by label.

    Returns:
        The folder of the metadata.
    """
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    fields = [("Metadata-Version", "2.4"), ("Name", name), ("Version", version)]
    fields += [("Requires-Dist", line) for line in requires] + [("Provides-Extra", extra) for extra in extras]
    fields += [("Project-URL", f"{label}, {address}") for label, address in (urls or {}).items()]
    # The description, after the empty line, is not a field.
    (info / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in fields) + "\nName: not-this\n")
    interfaces = dict.fromkeys(plugins or (), API) if interfaces is None else interfaces
    groups = {GROUP: plugins, API_GROUP: interfaces}
    text = "".join(
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items()) + "\n"
        for group, entries in groups.items()
        if entries
    )
    if text:
        (info / "entry_points.txt").write_text(text)
    importlib.invalidate_caches()
    return info
