"""The garbage collector while programs are compiled."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest
import torch

import thunder
from thunder_core.errors import UncacheableWarning
from thunder_core.runtime.frozen_heap import frozen_heap
from thunder_testing.forked import run_forked


class Circle:
    def __init__(self) -> None:
        self.own = self


def test_what_is_there_is_left_alone_while_a_program_is_compiled() -> None:
    counts: list[int] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        counts.append(gc.get_freeze_count())
        return x + 1

    gc.unfreeze()  # what Python itself froze when it started
    with pytest.warns(UncacheableWarning, match=r"gc\.get_freeze_count"):
        thunder.jit(program)(torch.ones(2))
    assert counts[0] > 10_000
    assert gc.get_freeze_count() == 0


FIRST = """
import gc, torch, thunder

def program(x):
    print(gc.get_freeze_count() > 10_000)
    return x + 1

thunder.jit(program)(torch.ones(2))
print(gc.get_freeze_count())
"""


@pytest.mark.slow
def test_what_python_itself_has_frozen_does_not_count() -> None:
    """Python 3.12 starts with a few hundred objects that are frozen."""
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "0"]


FORKED = """
import gc, os, threading
from thunder_core.runtime.frozen_heap import frozen_heap

gc.unfreeze()
inside, forked = threading.Event(), threading.Event()

def compiles():
    with frozen_heap():
        inside.set()
        forked.wait()

thread = threading.Thread(target=compiles)
thread.start()
inside.wait()
child = os.fork()
if not child:
    before = gc.get_freeze_count()
    with frozen_heap():
        os._exit(before == 0 and gc.get_freeze_count() > 10_000)
forked.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_is_not_frozen_by_a_thread_that_it_lacks() -> None:
    done = run_forked(FORKED)
    assert (done.stdout.split(), done.returncode) == (["1"], 0), done.stderr


def test_what_is_made_meanwhile_is_collected() -> None:
    with frozen_heap():
        circle = weakref.ref(Circle())
        gc.collect()
        assert circle() is None


@pytest.mark.slow
def test_objects_of_imports_are_old_afterwards() -> None:
    thresholds = gc.get_threshold()
    gc.unfreeze()
    with frozen_heap(imports=True):
        assert gc.get_threshold()[0] == 0
        held = Circle()
    assert gc.get_threshold() == thresholds
    assert gc.get_freeze_count() == 0
    assert any(each is held for each in gc.get_objects(generation=2))


def test_after_an_error() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("the program's own")

    gc.unfreeze()
    with pytest.raises(RuntimeError, match="the program's own"):
        thunder.jit(program)(torch.ones(2))
    assert gc.get_freeze_count() == 0


@pytest.mark.slow
def test_what_the_user_has_frozen_stays_so() -> None:
    young = gc.get_threshold()[0]
    gc.freeze()
    try:
        with frozen_heap():
            assert gc.get_threshold()[0] > young
        thunder.jit(lambda x: x + 1)(torch.ones(2))
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
