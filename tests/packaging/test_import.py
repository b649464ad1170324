"""What importing Thunder brings in, seen in a fresh interpreter."""

import json
import subprocess
import sys

import pytest

# Libraries that cost time to import or that the core must not know, and parts of PyTorch that take a second each.
UNWANTED = (
    "pydantic",
    "pluggy",
    "yaml",
    "triton",
    "transformers",
    "litgpt",
    "lightning",
    "torch._dynamo",
    "torch._inductor",
)

PROGRAM = """
import json, sys
import torch
before = set(sys.modules)
import thunder
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.fixture(scope="module")
def done() -> subprocess.CompletedProcess[str]:
    """The program's process, in which warnings are errors."""
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    return subprocess.run(command, capture_output=True, text=True, check=True)


@pytest.fixture
def imported(done) -> list[str]:
    return json.loads(done.stdout)


@pytest.mark.slow
def test_import_brings_in_no_unwanted_module(imported):
    assert not [name for name in imported if name.split(".")[0] in UNWANTED or name in UNWANTED]


@pytest.mark.slow
def test_import_brings_in_no_third_party_package(imported):
    third_party = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names
    assert third_party <= {"thunder", "thunder_core", "thunder_frontend", "torch"}


@pytest.mark.slow
def test_import_is_quiet(done):
    assert (done.stdout.count("\n"), done.stderr) == (1, "")
