"""``thunder doctor``: a description of the installation for bug reports, and its defects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from thunder.command_line.output import Column, print_json, print_lines, print_table

if TYPE_CHECKING:
    from thunder_core.plugins.host import Host
    from thunder_core.plugins.specs import CheckResult

RESULTS: Final = {"ok": "green", "failed": "red"}


@dataclass(frozen=True)
class Finding:
    """The result of one check of a plugin; ``plugin`` is "core" for those of Thunder itself."""

    check: str
    plugin: str
    ok: bool
    text: str
    advice: str


def doctor(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Describe the installation and check it.

    Prints versions, devices, plugins and settings for a bug report, then the results of the checks of Thunder and of
    the plugins. The exit code is 1 if a check failed.
    """
    from thunder.command_line.environment import facts
    from thunder.command_line.plugin_rows import described, load_all, plugin_table
    from thunder_core.plugins.host import host

    torch = _torch()
    found, plugins = facts(torch), host()
    load_all(plugins)  # its error is among the findings
    findings = _findings(torch, plugins)
    if json:
        print_json({"facts": found, "plugins": described(plugins), "checks": [asdict(item) for item in findings]})
    else:
        width = max(map(len, found))
        print_lines([*(f"{name:<{width}}  {text}" for name, text in found.items()), ""])
        print_table(*plugin_table(plugins))
        print_lines([""])
        print_table(*_table(findings))
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def _torch() -> Any:
    """PyTorch, or why it cannot be imported: then a description of the installation is needed most."""
    try:
        import torch
    except Exception as error:  # noqa: BLE001 - any exception of a broken installation is shown
        return error
    return torch


def _findings(torch: Any, plugins: Host) -> list[Finding]:
    from thunder.command_line.core_checks import core_checks
    from thunder.command_line.plugin_rows import defects
    from thunder_core.plugins.specs import CheckSpec

    found = [_finding(name, "core", check) for name, check in core_checks(torch)]
    found += [
        Finding("usable", record.name, False, record.why, record.advice)
        for record in plugins.records
        if record.state in defects()
    ]
    for offered in plugins.offered(CheckSpec):
        check = partial(_call, plugins, offered)
        found.append(_finding(offered.spec.name, offered.plugin.name, check))
    return found


def _call(plugins: Host, offered: Any) -> CheckResult:
    from thunder_core.plugins.specs import private_names_result
    from thunder_core.private_names import PrivateNames

    check = plugins.import_object(offered)
    result: CheckResult = private_names_result(check) if isinstance(check, PrivateNames) else check()
    return result


def _finding(name: str, plugin: str, check: Callable[[], CheckResult]) -> Finding:
    from thunder_core.plugins.specs import CheckResult

    try:
        result = check()
    except Exception as error:  # noqa: BLE001 - a check that raises has failed, and the others still run
        return Finding(name, plugin, False, f"it raised {type(error).__name__}: {error}", "")
    if not isinstance(result, CheckResult):
        return Finding(name, plugin, False, f"it returned {result!r}, which is not a CheckResult", "")
    return Finding(name, plugin, result.ok, result.text, result.advice)


def _table(findings: Sequence[Finding]) -> tuple[list[Column], list[list[str]]]:
    columns = [Column("CHECK"), Column("BY"), Column("RESULT", styles=RESULTS)]
    columns += [Column("FOUND", wraps=True), Column("WHAT TO DO", wraps=True)]
    rows = [
        [item.check, item.plugin, "ok" if item.ok else "failed", item.text, "" if item.ok else item.advice]
        for item in findings
    ]
    return columns, rows
