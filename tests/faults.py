"""Put small faults into the code, one at a time, and see whether the tests find them.

python -m tests.faults                        # 30 faults of the default seed, one after another
python -m tests.faults --number 60 --seed 3   # others
python -m tests.faults --jobs 8               # several at a time, each with the tests in two processes
python -m tests.faults --list                 # the faults alone

A fault is a comparison that is flipped (``<`` becomes ``>=``), a guard that is dropped (an ``if`` around ``return``,
``raise`` or ``continue`` that is never entered), or two arguments of a call that are exchanged. It counts if some test
runs its line; others are replaced by the next ones. Each fault is tried in a copy of the checkout, first with the tests
of its folder, then with all tests, as ``scripts/test`` without arguments runs them, until one fails.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FLIPPED: Final = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: ">=",
    ast.GtE: "<",
    ast.Gt: "<=",
    ast.LtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
MARKER: Final = "thunder_fault_marker"
"""A module that the faulty code imports to tell that it runs."""


@dataclass(frozen=True)
class Fault:
    """A change of one expression.

    Attributes:
        path: of the file, relative to the checkout.
        line: of the expression.
        kind: what is changed.
        start, end: byte offsets of the expression in the file.
        text: what replaces it.
    """

    path: str
    line: int
    kind: str
    start: int
    end: int
    text: str

    def describe(self) -> str:
        """One line: where it is, and the expression before and after."""
        before = (ROOT / self.path).read_bytes()[self.start : self.end].decode()
        texts = [re.sub(r"\s+", " ", text)[:80] for text in (before, self.text)]
        return f"{self.path}:{self.line}: {self.kind}: {texts[0]} -> {texts[1]}"

    def write(self, root: Path) -> None:
        """Put it into the file of another checkout, with a note in the marker's file when it is evaluated."""
        path = root / self.path
        source = path.read_bytes()
        changed = f'(__import__("{MARKER}").run() or ({self.text}))'.encode()
        path.write_bytes(source[: self.start] + changed + source[self.end :])


def faults(number: int, seed: int) -> Iterator[Fault]:
    """Faults of the three kinds in turn; more than ``number``, to replace some.

    They are ordered by a hash of the seed, the file, and the text, so that changes elsewhere leave the choice as it is.
    """
    by_kind: dict[str, list[tuple[bytes, Fault]]] = {}
    for path in sorted([*ROOT.glob("thunder_core/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]):
        source = path.read_bytes()
        for fault in faults_in(path):
            text = source[fault.start : fault.end].decode()
            key = sha256(f"{seed} {fault.path} {fault.kind} {text} {fault.text}".encode()).digest()
            by_kind.setdefault(fault.kind, []).append((key, fault))
    for kind in by_kind.values():
        kind.sort(key=lambda item: item[0], reverse=True)
    for _ in range(2 * number):
        for kind in by_kind.values():
            if kind:
                yield kind.pop()[1]


def faults_in(path: Path) -> Iterator[Fault]:
    """All faults that a file can have."""
    source = path.read_text()
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def fault(node: ast.expr, kind: str, text: str) -> Fault:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        return Fault(str(path.relative_to(ROOT)), node.lineno, kind, start, end, text)

    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    for node in {
        id(node): node for function in functions for part in function.body for node in ast.walk(part)
    }.values():
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and not _is_constant(node):
            left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
            yield fault(node, "flipped comparison", f"({left}) {FLIPPED[type(node.ops[0])]} ({right})")
        elif (
            isinstance(node, ast.If)
            and not node.orelse
            and isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue)
        ):
            yield fault(node.test, "dropped guard", "False")
        elif isinstance(node, ast.Call) and len(node.args) >= 2 and all(map(_is_value, node.args[:2])):
            exchanged = [node.args[1], node.args[0], *node.args[2:]]
            call = ast.Call(node.func, exchanged, node.keywords)
            if ast.dump(exchanged[0]) != ast.dump(exchanged[1]):
                yield fault(node, "exchanged arguments", ast.unparse(call))


def _is_value(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call)


def _is_constant(node: ast.Compare) -> bool:
    """Whether the code cannot be run by a test of one version: it compares versions or platforms."""
    return any(word in ast.unparse(node) for word in ("version", "sys.", "__name__"))


@dataclass(frozen=True)
class Verdict:
    """What the tests made of a fault.

    Attributes:
        fault: the fault.
        ran: whether a test ran its line.
        test: the tests that failed, one unless the options of pytest ask for more; empty if none did.
        seconds: how long that took.
    """

    fault: Fault
    ran: bool
    test: str
    seconds: float

    def describe(self) -> str:
        """One line."""
        result = f"found by {self.test}" if self.test else "NOT FOUND" if self.ran else "no test runs it"
        return f"{self.seconds:5.0f} s  {self.fault.describe()}\n         {result}"


def judge(fault: Fault, options: list[str]) -> Verdict:
    """Run the tests on a copy of the checkout with the fault."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "checkout")
        copy_checkout(root)
        fault.write(root)
        hits = Path(folder, "hits")
        (root / f"{MARKER}.py").write_text(
            f"done = []\n\n\ndef run():\n    done or done.append(open({str(hits)!r}, 'a').close())\n"
        )
        sources = [str(path) for path in sorted(root.glob("plugins/*/src"))]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(root), *sources, os.environ.get("PYTHONPATH", "")]),
            "THUNDER_TEST_SEED": os.environ.get("THUNDER_TEST_SEED") or _seed(),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        for paths in (nearest_tests(fault), []):
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider"]
            parallel = ["--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
            run = subprocess.run(
                [*command, *parallel, *options, *paths], cwd=root, env=environment, capture_output=True, text=True
            )
            if run.returncode not in (0, 5):
                failed = re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", run.stdout, re.M)
                test = (
                    ", ".join(failed[:9])
                    if failed
                    else f"exit code {run.returncode}: {run.stdout[-200:]} {run.stderr[-200:]}"
                )
                return Verdict(fault, hits.exists(), test, time.monotonic() - start)
        return Verdict(fault, hits.exists(), "", time.monotonic() - start)


def nearest_tests(fault: Fault) -> list[str]:
    """The folder with the tests of the fault's folder."""
    parts = Path(fault.path).parts
    near = f"plugins/{parts[1]}/tests" if parts[0] == "plugins" else f"tests/{parts[1]}"
    return [near] if (ROOT / near).is_dir() else []


def copy_checkout(root: Path) -> None:
    """Copy the checkout with its changes, without hidden folders and caches."""
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    shutil.copytree(ROOT / ".ci", root / ".ci")


def _seed() -> str:
    command = ["scripts/test", "--seed"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """The exit code: whether fewer than 28 of 30 faults that some test runs were found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=30, help="how many faults that some test runs")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of faults")
    parser.add_argument("--jobs", type=int, default=1, help="how many faults are tried at a time")
    parser.add_argument("--list", action="store_true", help="list the faults and run nothing")
    parser.add_argument("--only", type=int, nargs="+", help="the numbers of the faults to try, as --list shows them")
    parser.add_argument("options", nargs="*", help="further options of pytest, after --")
    arguments = parser.parse_args()
    candidates = enumerate(faults(arguments.number, arguments.seed))
    if arguments.list:
        for number, fault in itertools.islice(candidates, arguments.number):
            print(f"{number:3}  {fault.describe()}")
        return 0
    if arguments.only:
        arguments.number = len(arguments.only)
        candidates = ((number, fault) for number, fault in candidates if number in arguments.only)
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        while (missing := arguments.number - sum(verdict.ran for verdict in verdicts)) > 0:
            batch = {
                pool.submit(judge, fault, arguments.options): number
                for number, fault in itertools.islice(candidates, missing)
            }
            if not batch:
                break
            for future in as_completed(batch):
                print(f"{batch[future]:3}  {future.result().describe()}", flush=True)
                verdicts.append(future.result())
    ran = [verdict for verdict in verdicts if verdict.ran]
    found = sum(bool(verdict.test) for verdict in ran)
    print(f"{found} of {len(ran)} faults found; {len(verdicts) - len(ran)} in code that no test runs")
    return 0 if 30 * found >= 28 * len(ran) else 1


if __name__ == "__main__":
    sys.exit(main())
