"""The hash of Triton's files is computed before the first launch needs it."""

from __future__ import annotations

import os

import pytest

from thunder_plugin_triton import compiler_hash
from thunder_plugin_triton.environment import INTERPRETED
from thunder_testing.forked import run_forked

PROGRAM = """
from thunder_plugin_triton import compiler_hash
from thunder_plugin_triton.executor import from_options
from thunder_plugin_triton.options import TritonOptions

from_options(TritonOptions())
from_options(TritonOptions(autotune=False))
thread = compiler_hash.begin()
thread.join()
print(compiler_hash.triton_key.cache_info().misses, thread is compiler_hash.begin())
"""


@pytest.mark.slow
def test_it_is_computed_once_where_an_executor_is_made() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = run_forked(PROGRAM, environment=environment, preloaded=["torch"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "True"]


def test_the_interpreter_needs_none() -> None:
    assert (compiler_hash.begin() is None) == INTERPRETED
