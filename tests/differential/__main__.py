"""Look for differences from eager: ``python -m tests.differential --programs 10000``."""

from __future__ import annotations

import argparse
import collections
import sys
import time
from collections.abc import Callable, Iterator

import thunder
from tests.differential import process_group
from tests.differential.programs import RandomProgram, write
from tests.differential.runs import Verdict, judge
from tests.differential.statements import ROWS
from thunder.config import settings_of
from thunder_core.executors.executor import fusing

Judge = Callable[[RandomProgram], Verdict]


def shrink(program: RandomProgram, verdict: Verdict, judge: Judge) -> RandomProgram:
    """The program with as few statements as still go the same way."""
    index = len(program.statements) - 1
    while index >= 0:
        shorter = program.without(index)
        if shorter is not None and judge(shorter).kind == verdict.kind:
            program = shorter
        index -= 1
    return program


def findings(seeds: range, kinds: tuple[str, ...], judge: Judge, wanted: str) -> Iterator[str]:
    """The programs of ``seeds`` whose verdict is in ``wanted``, each shrunk; at the end the counts."""
    counts: collections.Counter[str] = collections.Counter()
    for seed in seeds:
        program = write(seed, kinds)
        verdict = judge(program)
        counts[verdict.kind] += 1
        if verdict.kind in wanted.split(","):
            short = shrink(program, verdict, judge)
            verdict = judge(short)
            yield f"seed {seed}: {verdict.kind}: {verdict.reason}\n{describe(short)}\n"
    yield ", ".join(f"{number} {kind}" for kind, number in counts.most_common())


def describe(program: RandomProgram) -> str:
    """The statements of a program, as they are run."""
    lines = [*program.statements, f"return {', '.join(program.results)}"]
    lines += [f"# before call {call}: {text}" for call, text in enumerate(program.changes) if text != "pass"]
    return "\n".join("    " + line for text in lines for line in text.split("\n"))


def main() -> int:
    """Run programs and print those that differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--kinds", nargs="*", choices=sorted(ROWS), default=[], help="of statements; all by default")
    parser.add_argument("--executors", nargs="*", default=[], help="the reference executor alone by default")
    parser.add_argument("--show", default="wrong,error", help="which verdicts to print; 'refused' is one, too")
    parser.add_argument("--dynamic", action="store_true", help="all sizes vary from the first call on")
    chosen = parser.parse_args()
    dynamic = True if chosen.dynamic else "automatic"
    start = time.monotonic()
    fuses = bool(fusing(settings_of(executors=chosen.executors).executors))
    lines = findings(
        range(chosen.seed, chosen.seed + chosen.programs),
        tuple(chosen.kinds),
        lambda program: judge(
            program, lambda it: thunder.jit(it, executors=chosen.executors, dynamic=dynamic), fuses=fuses
        ),
        chosen.show,
    )
    found = 0
    with process_group.running():
        for line in lines:
            found += line.startswith("seed")
            print(line, flush=True)
    print(f"{time.monotonic() - start:.0f} s")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
