"""``thunder cache``: what is kept on disk."""

from __future__ import annotations

from typing import Annotated

import typer

from thunder.command_line.output import print_json, print_lines


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete all that is kept.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what is kept on disk, or delete it.

    Programs that run at the same time lose nothing but the time to compile again.
    """
    from thunder_core.executors.artifacts import artifact_cache

    kept = artifact_cache()
    deleted = kept.prune(0) if kept is not None and clear else 0
    files = [] if kept is None else kept.files()
    size = sum([state.st_size for _, state in files])
    problem = "nothing is kept" if kept is None else kept.unsuitable()
    folder = None if kept is None else str(kept.folder)
    if json:
        print_json({"folder": folder, "files": len(files), "bytes": size, "deleted": deleted, "problem": problem})
        return
    found = {"folder": folder or "none", "files": str(len(files)), "size": f"{size / 2**20:.1f} MiB"}
    found |= {"deleted": str(deleted)} if clear else {}
    found |= {"problem": problem} if problem else {}
    width = max(map(len, found))
    print_lines([f"{name:<{width}}  {text}" for name, text in found.items()])
