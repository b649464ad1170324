"""Run PyTorch's tests of ``torch.compile`` with ``thunder.jit``: ``python -m tests.pytorch_programs FOLDER``."""

from __future__ import annotations

import argparse
import pathlib
import sys

from tests.pytorch_programs.outcome import KINDS
from tests.pytorch_programs.results import Results
from tests.pytorch_programs.runs import Runner

_KINDS = "; ".join(f"{kind}: {meaning}" for kind, meaning in KINDS.items())


def main() -> int:
    """Run, print outcomes that are not expected, and count all. 1 if there were such outcomes."""
    parser = argparse.ArgumentParser(prog="python -m tests.pytorch_programs", description=__doc__)
    parser.add_argument(
        "folder", type=pathlib.Path, help="with test files, such as the folder test of PyTorch's source"
    )
    parser.add_argument("--files", nargs="*", default=[], help="relative to the folder; dynamo/test_*.py by default")
    parser.add_argument("--match", default="", help="a part of the names of the tests to run")
    parser.add_argument("--json", type=pathlib.Path, help="where outcomes are kept; those that are there do not run")
    parser.add_argument("--again", default="", help="kinds of outcomes to run again, such as 'wrong,error', or 'all'")
    parser.add_argument("--show", default="wrong,error,leak,crash,time", help=f"kinds of outcomes to print: {_KINDS}")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a test may take")
    chosen = parser.parse_args()
    files = chosen.files or sorted(
        path.relative_to(chosen.folder).as_posix() for path in chosen.folder.glob("dynamo/test_*.py")
    )
    results, runner = Results.read(chosen.json), Runner(str(chosen.folder.resolve()), chosen.limit)
    for file in files:
        for name, outcome in results.run(runner, file, chosen.match, chosen.again.split(",")):
            if outcome.kind in chosen.show.split(","):
                print(f"{file}: {name}: {outcome.kind}: {outcome.reason}\n", flush=True)
        if file in results.not_imported:
            print(f"{file}: not imported: {results.not_imported[file]}\n", flush=True)
    counts = results.counts(files)
    print(f"{counts.total()} programs: " + ", ".join(f"{number} {kind}" for kind, number in counts.most_common()))
    return 1 if any(kind in chosen.show.split(",") for kind in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
