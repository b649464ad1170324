"""The text of ``thunder show``: what is in a file of programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from thunder_core.errors import SavedProgramError
from thunder_saving.archive import Archive, check_environment, read_archive

__all__ = ["lines_of", "read_archive"]


def lines_of(archive: Archive, *, source: bool = False) -> list[str]:
    """What a file has: versions, state, and for each program the calls that it covers and its assumptions.

    Args:
        source: whether to include the source of the programs.

    Raises:
        SavedProgramError: the manifest does not have the structure of such files.
    """
    try:
        return list(_lines(archive, source))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise SavedProgramError(f"{archive.name} was changed, or was written by another version: {error!r}") from error


def _lines(archive: Archive, source: bool) -> Iterator[str]:
    manifest = archive.manifest
    programs = manifest["programs"]
    yield f"{archive.name}: {_counted(len(programs), 'program')} of {manifest['name']}"
    needs = ", ".join([f"{name} {version}" for name, version in manifest["environment"].items()])
    yield f"needs {needs}"
    try:
        check_environment(archive)
    except SavedProgramError as error:
        yield f"NOT USABLE HERE: {error.problem}"
    yield from _state(manifest["state"])
    for index, program in enumerate(programs):
        yield ""
        yield f"program {index}: {program['kind']}, {program['operations']} operations"
        yield from _guards(program["guards"], program["inputs"])
        if "differentiation" in program:
            covered = [
                "(" + ", ".join([str(place) for place, one in enumerate(each["present"]) if one]) + ")"
                for each in program["differentiation"]["backwards"]
            ]
            yield f"  backward from the gradients of the results: {', '.join(dict.fromkeys(covered))}"
        if program["assumptions"]:
            yield "  assumptions, which calls do not check:"
            yield from [f"    {text}" for text in program["assumptions"]]
        if source:
            for member, text in archive.texts.items():
                if member.startswith(f"programs/{index}/"):
                    yield f"  {member}:"
                    yield from [f"    {line}" for line in text.splitlines()]


def _state(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    kinds: dict[str, list[int]] = {}
    for row in rows:
        count, elements = kinds.setdefault(row["kind"], [0, 0])
        kinds[row["kind"]] = [count + 1, elements + prod(row.get("shape", [0]))]
    parts = [f"{_counted(count, kind)}, {elements} elements" for kind, (count, elements) in kinds.items()]
    devices = sorted({row["device"] for row in rows if "device" in row})
    yield f"state: {'; '.join(parts) or 'none'}{f'; on {chr(44).join(devices)}' if devices else ''}"


def _guards(guards: Mapping[str, Any], inputs: list[Mapping[str, Any]]) -> Iterator[str]:
    calls = _counted(guards["positional"], "positional argument")
    yield f"  call: {calls}{', keywords ' + ', '.join(guards['keywords']) if guards['keywords'] else ''}"
    paths = {each["name"]: each["path"] for each in inputs}
    for name, rows in guards["tensors"].items():
        if paths[name][0][0] != "state":
            yield f"  {_path(paths[name])}: {', '.join([f'{row} {value}' for row, value in rows])}"
    for check in guards["checks"]:
        expected = _path(check["other"]) if "other" in check else check["expected"]
        yield f"  {_path(check['path'])}: {check['condition']} {expected}"
    sizes = guards["sizes"]
    if sizes is not None:
        yield f"  sizes that vary: {', '.join([*sizes['symbols'], *sizes['floats']])}; {', '.join(sizes['facts'])}"
    flags = sorted({bool(flag) for flag in guards["training"].values()})
    if flags:
        yield f"  modules in {' and '.join(['training mode' if flag else 'evaluation mode' for flag in flags])}"
    yield f"  modes: {', '.join([f'{name} {value}' for name, value in guards['modes'].items()])}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _path(path: list[Any]) -> str:
    root, *steps = path
    text = str(root[2] or f"args[{root[1]}]") if root[0] == "args" else str(root[1])
    for step in steps:
        text += f"[{step[1]}]" if "item" in step[0] else f".{step[1]}" if step[0] != "namespace" else ""
    return text
