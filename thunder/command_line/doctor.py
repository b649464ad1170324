"""``thunder doctor``: a description of the installation for bug reports, and its defects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from thunder import progress_bar
from thunder.command_line.output import Column, on_terminal, print_facts, print_json, print_lines, print_table

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
    from thunder.command_line.plugin_rows import described, load_all, print_plugins
    from thunder_core.plugins.host import host

    torch = _torch()
    found, plugins = facts(torch), host()
    load_all(plugins)  # its error is among the findings
    findings = _findings(torch, plugins)
    if json:
        print_json({"facts": found, "plugins": described(plugins), "checks": [asdict(item) for item in findings]})
    else:
        print_facts(found)
        print_lines([""])
        print_plugins(plugins)
        print_lines([""])
        _print_findings(findings)
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

    found = _progressing([(name, "core", check) for name, check in core_checks(torch)])
    found += [
        Finding("usable", record.name, False, record.why, record.advice)
        for record in plugins.records
        if record.state in defects()
    ]
    found += _progressing(
        [(item.spec.name, item.plugin.name, partial(_call, plugins, item)) for item in plugins.offered(CheckSpec)]
    )
    return found


def _progressing(checks: Sequence[tuple[str, str, Callable[[], CheckResult]]]) -> list[Finding]:
    """The findings of checks, whose progress is shown."""
    found: list[Finding] = []
    display = progress_bar.display("the installation", "checking")
    try:
        for number, (name, plugin, check) in enumerate(checks):
            if display is not None:
                display.update(f"{name} ({plugin})", number, len(checks))
            found.append(_finding(name, plugin, check))
    finally:
        if display is not None:
            display.close()
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


def _print_findings(findings: Sequence[Finding]) -> None:
    """A line for each check; on a terminal what to do about failed ones follows, in lines that are not wrapped."""
    columns = [Column("CHECK"), Column("BY"), Column("RESULT", styles=RESULTS)]
    rows = [[item.check, item.plugin, "ok" if item.ok else "failed", item.text] for item in findings]
    if not on_terminal():
        advice = ["" if item.ok else item.advice for item in findings]
        columns += [Column("FOUND"), Column("WHAT TO DO")]
        print_table(columns, [[*row, text] for row, text in zip(rows, advice, strict=True)])
        return
    print_table([*columns, Column("FOUND", cut=True)], rows)
    for item in findings:
        if not item.ok:
            print_lines(
                [
                    "",
                    f"{item.check} ({item.plugin}): {item.text}",
                    *([f"what to do: {item.advice}"] if item.advice else []),
                ]
            )
