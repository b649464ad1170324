"""Put small faults into the code, one at a time, and see whether the tests find them.

python -m tests.faults                        # 30 faults of the default seed, one after another
python -m tests.faults --number 60 --seed 3   # others
python -m tests.faults --jobs 8               # several at a time, each with the tests in two processes
python -m tests.faults --list                 # the faults alone

A fault is a comparison that is flipped (``<`` becomes ``>=``), a guard that is dropped (an ``if`` around ``return``,
``raise`` or ``continue`` that is never entered), or two arguments of a call that are exchanged. It counts if some test
runs its line; others are replaced by the next ones. Each fault is tried in a copy of the checkout until a test fails:
first with the files of tests that run its line, as one run of all tests without faults has noted, then with all tests,
as ``scripts/test`` without arguments runs them. A fault with which the tests do not end is found, too.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
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
MARKER: Final = "thunder_core.fault_marker"
"""A module of the copy's core that the faulty code imports to tell that it runs: one of Thunder's files to the front
end, which observes no frames of these, and to tests of what a package imports."""
_LIMIT: Final = 2400
"""Seconds after which a run of the tests is stopped: three times what all of them take."""
_MOST_FAILED: Final = 3
"""Tests that may fail without faults, as on a machine that is busy."""
FUTURE: Final = b"from __future__ import annotations\n"
"""The line of a file at which the marker is imported: once, since code that runs within an import can be faulty."""


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

    def write(self, root: Path, number: int = 0, *, harmless: bool = False) -> None:
        """Put it into the file of another checkout, with a note in the marker's file when it is evaluated.

        Args:
            number: what is noted.
            harmless: leave the expression as it is.
        """
        path = root / self.path
        marked = FUTURE[:-1] + f"; from {MARKER} import run as _fault_runs\n".encode()
        source = path.read_bytes().replace(marked, FUTURE, 1)
        text = source[self.start : self.end] if harmless else self.text.encode()
        changed = source[: self.start] + f"(_fault_runs({number}) or (".encode() + text + b"))" + source[self.end :]
        path.write_bytes(changed.replace(FUTURE, marked, 1))


def faults(number: int, seed: int) -> Iterator[Fault]:
    """Faults of the three kinds in turn; more than ``number``, to replace some.

    They are ordered by a hash of the seed, the file, and the text, so that changes elsewhere leave the choice as it is.
    """
    by_kind: dict[str, list[tuple[bytes, Fault]]] = {}
    folders = ("thunder_core/**/*.py", "thunder_frontend/**/*.py", "plugins/*/src/**/*.py")
    for path in sorted(path for folder in folders for path in ROOT.glob(folder)):
        source = path.read_bytes()
        if FUTURE not in source:
            continue
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
    encoded, starts = source.encode(), [0]
    for line in encoded.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(node: ast.expr) -> slice:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return slice(starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset)

    def fault(node: ast.expr, kind: str, text: str) -> Fault:
        where = place(node)
        return Fault(str(path.relative_to(ROOT)), node.lineno, kind, where.start, where.stop, text)

    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    inside = {id(node): node for function in functions for part in function.body for node in ast.walk(part)}
    for node in [node for node in inside.values() if isinstance(node, ast.Compare | ast.If | ast.Call)]:
        changed = node.test if isinstance(node, ast.If) else node
        if not _is_text_of(encoded[place(changed)], changed):
            continue
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


def _is_text_of(text: bytes, node: ast.expr) -> bool:
    """Whether a text is that of an expression: in f-strings, the positions in Python 3.11 are others."""
    try:
        found = ast.parse(b"(" + text + b")", mode="eval").body
    except SyntaxError:
        return False
    return ast.dump(found) == ast.dump(node)


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


# Notes each number once for each file of tests that evaluates it. Processes that tests start may serve several files.
# `run` may be called while a program is recorded: it calls functions in C only.
_NOTES: Final = """
import os

done, state = set(), dict(worker=0, test="another process")
file = os.open({hits!r}, os.O_WRONLY | os.O_APPEND)


def pytest_configure(config):
    state["worker"] = os.getpid()


def pytest_runtest_logstart(nodeid, location):
    state["test"] = nodeid.partition("::")[0]


def run(number):
    key = (number, state["test"] if os.getpid() == state["worker"] else "another process")
    if key not in done:
        done.add(key)
        os.write(file, ("%d %s" % key).encode() + bytes([10]))
"""


@dataclass(frozen=True)
class Copy:
    """A copy of the checkout in a folder.

    Attributes:
        root: of the copy.
        hits: the file in which it is noted what was evaluated.
    """

    root: Path
    hits: Path

    @classmethod
    def into(cls, folder: str) -> Copy:
        copy = cls(Path(folder, "checkout"), Path(folder, "hits"))
        copy_checkout(copy.root)
        copy.hits.touch()
        (copy.root / f"{MARKER.replace('.', '/')}.py").write_text(_NOTES.format(hits=str(copy.hits)))
        return copy

    def ran(self) -> bool:
        """Whether anything was noted."""
        return self.hits.stat().st_size > 0

    def test(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run pytest in two processes."""
        sources = [str(path) for path in sorted(self.root.glob("plugins/*/src"))]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.root), *sources, os.environ.get("PYTHONPATH", "")]),
            "THUNDER_TEST_SEED": os.environ.get("THUNDER_TEST_SEED") or _seed(),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", "-p", MARKER]
        parallel = ["--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
        line = [*command, *parallel, *options]
        with subprocess.Popen(
            line, cwd=self.root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        ) as run:  # fmt: skip
            try:
                output, errors = run.communicate(timeout=_LIMIT)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                output, errors = run.communicate()
                errors += f"\nthe tests did not end within {_LIMIT} s"
        return subprocess.CompletedProcess(line, run.returncode, output, errors)


def tests_that_run(faults: Mapping[int, Fault], options: list[str]) -> tuple[dict[int, list[str]], list[str]]:
    """One run of all tests without faults.

    Returns:
        The files of tests that run the line of each fault, by its number; and the tests that fail, which count nothing.

    Raises:
        SystemExit: more than three tests fail.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy.into(folder)
        outer = {number: _outermost(number, faults) for number in faults}
        for number, fault in sorted(faults.items(), key=lambda item: item[1].start, reverse=True):
            if outer[number] == number:
                fault.write(copy.root, number, harmless=True)
        run = copy.test(*options)
        failed = _failed(run.stdout)
        if run.returncode not in (0, 1) or len(failed) > _MOST_FAILED:
            raise SystemExit(f"the tests fail without faults:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
        found: dict[int, set[str]] = {number: set() for number in faults}
        starting_processes = set(_starting_processes())
        for line in copy.hits.read_text().splitlines():
            noted, _, test = line.partition(" ")
            found[int(noted)] |= {test} if test.endswith(".py") else starting_processes
    return {number: sorted(found[outer[number]]) for number in faults}, failed


def _failed(output: str) -> list[str]:
    """The tests that failed in a run of pytest, from its summary."""
    return re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", output, re.M)


def _outermost(number: int, faults: Mapping[int, Fault]) -> int:
    """The number of the outermost of the expressions that contain one; of equal ones, the first."""
    own = faults[number]
    around = [
        (fault.start, -fault.end, other)
        for other, fault in faults.items()
        if fault.path == own.path and fault.start <= own.start and own.end <= fault.end
    ]
    return min(around)[2]


def _starting_processes() -> list[str]:
    """The files of tests that start processes."""
    starts = re.compile(r"process_suite|run_forked|start_forked|run_torchrun|subprocess|multiprocessing|ForkServer")
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("plugins/*/tests/**/test_*.py")]
    return [str(path.relative_to(ROOT)) for path in files if starts.search(path.read_text())]


def judge(fault: Fault, files: list[str], options: list[str]) -> Verdict:
    """Run tests on a copy of the checkout with the fault: ``files``, then all."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy.into(folder)
        fault.write(copy.root)
        for paths in (files, []) if files else ([],):
            run = copy.test("-x", *options, *paths)
            if run.returncode not in (0, 5):
                failed = _failed(run.stdout)
                test = (
                    ", ".join(failed[:9])
                    if failed
                    else f"exit code {run.returncode}: {run.stdout[-200:]} {run.stderr[-200:]}"
                )
                return Verdict(fault, copy.ran(), test, time.monotonic() - start)
        return Verdict(fault, copy.ran(), "", time.monotonic() - start)


def copy_checkout(root: Path) -> None:
    """Copy the checkout with its changes and its bytecode, without hidden folders, to a repository without commits."""
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(".*"))
    shutil.copytree(ROOT / ".ci", root / ".ci")
    shutil.copy(ROOT / ".gitignore", root)
    subprocess.run(["git", "init", "--quiet", root], check=True)


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
    chosen = dict(enumerate(faults(arguments.number, arguments.seed)))
    if arguments.list:
        for number in range(arguments.number):
            print(f"{number:3}  {chosen[number].describe()}")
        return 0
    if arguments.only:
        arguments.number = len(arguments.only)
        chosen = {number: chosen[number] for number in arguments.only}
    files, failed = tests_that_run(chosen, arguments.options)
    for test in failed:
        print(f"     fails without faults, and is left out: {test}", flush=True)
        arguments.options += ["--deselect", test]
    for number in [number for number in chosen if not files[number]]:
        print(f"{number:3}  {chosen.pop(number).describe()}\n         no test runs it", flush=True)
    candidates = iter(chosen.items())
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        while (missing := arguments.number - sum(verdict.ran for verdict in verdicts)) > 0:
            batch = {
                pool.submit(judge, fault, files[number], arguments.options): number
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
