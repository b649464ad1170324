"""``thunder cache``: show or delete the cache on disk."""

from __future__ import annotations

from typing import Annotated

import typer

from thunder.command_line.output import print_facts, print_json


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete all files.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the cache on disk, or delete it.

    Programs that run at the same time lose nothing but the time to compile again.
    """
    from thunder_core.executors.artifacts import artifact_cache

    artifacts = artifact_cache()
    deleted = artifacts.prune(0) if artifacts is not None and clear else 0
    files = [] if artifacts is None else artifacts.files()
    size = sum([state.st_size for _, state in files])
    problem = "caching on disk is disabled" if artifacts is None else artifacts.unsuitable()
    folder = None if artifacts is None else str(artifacts.folder)
    if json:
        print_json({"folder": folder, "files": len(files), "bytes": size, "deleted": deleted, "problem": problem})
        return
    facts = {"folder": folder or "none", "files": str(len(files)), "size": f"{size / 2**20:.1f} MiB"}
    facts |= {"deleted": str(deleted)} if clear else {}
    facts |= {"problem": problem} if problem else {}
    print_facts(facts)
