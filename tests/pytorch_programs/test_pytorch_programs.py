"""`tests.pytorch_programs` on a small file of tests: what it takes for programs, and how it sorts outcomes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pytorch_programs.__main__ import main
from tests.pytorch_programs.results import Results
from tests.pytorch_programs.runs import Runner

TESTS = """
import os, unittest
import torch
import torch._dynamo.testing
from torch._dynamo.testing import CompileCounter
from torch._dynamo.test_case import TestCase

def is_function(value):
    return type(value) is type(is_function)

def keeps():
    while True:
        kept = yield

class Tests(TestCase):
    def test_passes(self):
        counter = CompileCounter()
        x = torch.ones(2)
        compiled = torch.compile(lambda x: x * 2, backend=counter, fullgraph=True)
        self.assertEqual(compiled(x), x * 2)
        self.assertEqual(counter.frame_count, 1)
        self.assertGreater(counter.op_count + 1, 17)
        self.assertEqual(sum(torch._dynamo.utils.counters["graph_break"].values()), 0)
        torch._dynamo.testing.standard_test(self, fn=torch.sin, nargs=1, expected_ops=1)

    @torch.compile
    def decorated(self, x):
        return x + 1

    def test_of_a_method(self):
        self.assertEqual(torch._dynamo.optimize("eager")(self.decorated)(torch.ones(2)), torch.ones(2) + 1)

    def test_refused(self):
        self.assertTrue(torch.compile(lambda x: x.repeat(5000).tolist())(torch.ones(())))

    def test_leaks(self):
        kept = keeps()
        next(kept)
        torch.compile(lambda x: kept.send(x * 2))(torch.ones(2))

    def test_wrong(self):
        self.assertIs(type(torch.compile(is_function)), type(is_function))

    def test_of_dynamo_itself(self):
        is_dynamo = type(torch.compile(is_function)) is type(is_function)
        self.assertTrue(is_dynamo)

    def test_that_takes_apart(self):
        torch.compile(is_function).__code__

    def test_ends_the_process(self):
        if not is_function(torch.compile(is_function)):
            os._exit(3)

    def test_of_no_program(self):
        self.assertTrue(True)

    def test_that_eager_fails(self):
        self.fail(torch.compile(lambda x: x + 1))

    def test_that_comes_last(self):
        self.assertEqual(torch.compile(torch.nn.Linear(2, 2))(torch.ones(2)).shape, (2,))
"""

# They take no time but for the one that hangs: the limit for it is short, and long for all others.
HANGING = """
import time, unittest
import torch

def is_function(value):
    return type(value) is type(is_function)

class Tests(unittest.TestCase):
    def test_hangs(self):
        if not is_function(torch.compile(is_function)):
            time.sleep(1000)

    def test_that_comes_last(self):
        self.assertTrue(callable(torch.compile(is_function)))
"""

LIMIT = 100.0


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("folder")
    (folder / "dynamo").mkdir()
    (folder / "dynamo" / "__init__.py").touch()
    (folder / "dynamo" / "test_small.py").write_text(TESTS)
    results = Results(folder / "results.json")
    ran = dict(results.run(Runner(str(folder), LIMIT), "dynamo/test_small.py", "", ()))
    assert not results.not_imported
    read = Results.read(folder / "results.json")
    assert read == results
    assert dict(read.run(Runner(str(folder), LIMIT), "dynamo/test_small.py", "", ())) == {}  # all are kept
    again = dict(read.run(Runner(str(folder), LIMIT), "dynamo/test_small.py", "", ("refused",)))
    assert set(again) == {"Tests.test_refused"}
    return ran


@pytest.mark.slow
def test_a_program_is_a_test_that_compiles_and_that_eager_passes(outcomes: dict[str, Any]) -> None:
    assert {name.removeprefix("Tests.test_"): outcome.kind for name, outcome in outcomes.items()} == {
        "passes": "passed",
        "of_a_method": "passed",
        "that_comes_last": "passed",
        "refused": "refused",
        "leaks": "leak",
        "wrong": "wrong",
        "of_dynamo_itself": "harness",
        "that_takes_apart": "harness",
        "ends_the_process": "crash",
    }


@pytest.mark.slow
def test_outcomes_say_why(outcomes: dict[str, Any]) -> None:
    assert outcomes["Tests.test_refused"].reason.startswith("DataDependentError: ")
    assert "test_small.py" in outcomes["Tests.test_wrong"].reason
    assert outcomes["Tests.test_passes"].compiled == 2


@pytest.mark.slow
def test_a_process_that_hangs_is_followed_by_another_one(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(HANGING)
    outcomes = dict(Results().run(Runner(str(tmp_path), 5.0), "hanging.py", "", ()))
    assert [outcome.kind for outcome in outcomes.values()] == ["time", "passed"]


@pytest.mark.slow
def test_a_folder_may_have_the_name_of_an_installed_package(tmp_path: Path) -> None:
    (tmp_path / "functorch").mkdir()
    (tmp_path / "functorch" / "test_other.py").write_text(TESTS)
    results = Results()
    ran = dict(results.run(Runner(str(tmp_path), LIMIT), "functorch/test_other.py", "test_passes", ()))
    assert not results.not_imported
    assert ran["Tests.test_passes"].kind == "passed"


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.py").write_text(TESTS)
    command = ["--files", "small.py", "missing.py", "--match", "leaks", "--show", "leak"]
    monkeypatch.setattr(sys, "argv", ["pytorch_programs", str(tmp_path), *command])
    assert main() == 1
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "1 programs: 1 leak"
    assert "Tests.test_leaks: leak: LeakedTensorError" in printed
    assert "missing.py: not imported" in printed
