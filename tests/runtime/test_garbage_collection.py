"""The garbage collector while programs are compiled."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch

import thunder
from thunder_core.ir.trace import Trace
from thunder_core.passes.base import PassContext
from thunder_core.passes.transform import Place, Transform
from thunder_core.runtime.garbage_collection import postponed_collections
from thunder_testing.forked import run_forked


class Circle:
    def __init__(self) -> None:
        self.own = self


@dataclass(frozen=True, eq=False)
class Watching(Transform):
    """Notes the thresholds of the collector while a program is compiled."""

    name: ClassVar[str] = "watching"
    place: ClassVar[Place] = Place.LAST
    found: list[tuple[int, int, int]] = field(default_factory=list)

    def run(self, trace: Trace, context: PassContext) -> Trace:
        self.found.append(gc.get_threshold())
        return trace


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    """The thresholds of the collector, which are the same afterwards."""
    before = gc.get_threshold()
    yield before
    assert gc.get_threshold() == before


def test_what_is_there_is_left_alone_while_a_program_is_compiled(thresholds: tuple[int, int, int]) -> None:
    watching = Watching()
    thunder.jit(torch.relu, transforms=[watching])(torch.ones(2))
    ((young, middle, old),) = watching.found
    assert young > thresholds[0]
    assert middle == thresholds[1]
    assert old > 10**9


FORKED = """
import gc, os, threading
from thunder_core.ir.trace import Trace
from thunder_core.passes.base import PassContext
from thunder_core.passes.transform import Place, Transform
from thunder_core.runtime.garbage_collection import postponed_collections

thresholds = gc.get_threshold()
inside, forked = threading.Event(), threading.Event()

def compiles():
    with postponed_collections():
        inside.set()
        forked.wait()

thread = threading.Thread(target=compiles)
thread.start()
inside.wait()
child = os.fork()
if not child:
    before = gc.get_threshold()
    with postponed_collections():
        os._exit(before == thresholds != gc.get_threshold())
forked.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_thread_that_a_child_lacks_changes_nothing_in_it() -> None:
    done = run_forked(FORKED)
    assert (done.stdout.split(), done.returncode) == (["1"], 0), done.stderr


def test_what_is_made_meanwhile_is_collected() -> None:
    with postponed_collections():
        circle = weakref.ref(Circle())
        gc.collect()
        assert circle() is None


@pytest.mark.usefixtures("thresholds")
@pytest.mark.slow
def test_objects_of_imports_are_old_afterwards() -> None:
    gc.unfreeze()
    with postponed_collections(imports=True):
        assert gc.get_threshold()[0] == 0
        held = Circle()
    assert gc.get_freeze_count() == 0
    assert any(each is held for each in gc.get_objects(generation=2))
    gc.freeze()  # as all tests have it


@pytest.mark.usefixtures("thresholds")
def test_after_an_error() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("the program's own")

    with pytest.raises(RuntimeError, match="the program's own"):
        thunder.jit(program)(torch.ones(2))


@pytest.mark.parametrize("own", [(0, 10, 10), (10**6, 10, 10), (700, 10, 0)])
def test_thresholds_of_the_user(own: tuple[int, int, int]) -> None:
    """Zero means never, and a young threshold of the user's own is left as it is."""
    before = gc.get_threshold()
    gc.set_threshold(*own)
    try:
        with postponed_collections():
            young, _, old = gc.get_threshold()
            assert young == own[0] or 0 < own[0] < young
            assert old == own[2] or own[2] > 0
        assert gc.get_threshold() == own
    finally:
        gc.set_threshold(*before)


@pytest.mark.slow
def test_what_the_user_has_frozen_stays_so() -> None:
    gc.freeze()
    with postponed_collections(imports=True):
        pass
    thunder.jit(lambda x: x + 1)(torch.ones(2))
    assert gc.get_freeze_count() > 10_000
