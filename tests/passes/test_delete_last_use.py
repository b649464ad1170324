from __future__ import annotations

import weakref

import torch

from tests.passes.programs import acquire_program
from thunder_core.ir.program import compile_trace
from thunder_core.ir.verifier import verify
from thunder_core.passes.delete_last_use import with_deletions


def test_values_go_after_their_last_line():
    def program(x, y):
        a = x * 2
        b = a + y
        c = b.sin()
        return c + b

    trace = with_deletions(acquire_program(program, torch.ones(3), torch.ones(3)).trace)
    verify(trace)
    assert {line: set(names) for line, names in trace.deletions.items()} == {0: {"a0"}, 1: {"t0", "a1"}}
    assert "del t0, a1" in trace.python() or "del a1, t0" in trace.python()


def test_unused_results_go_at_once():
    def program(x):
        first, _unused = x.split(2)
        return first.exp() * 2

    trace = with_deletions(acquire_program(program, torch.ones(4)).trace)
    assert "t1" in trace.deletions[0]


def test_returned_values_stay():
    trace = with_deletions(acquire_program(lambda x: ((y := x.exp()), y + 1), torch.ones(4)).trace)
    assert "t0" not in {name for names in trace.deletions.values() for name in names}


def test_memory_is_freed_while_running():
    def program(x):
        y = x.exp()
        return y.sin().cos()

    seen: list[weakref.ref[torch.Tensor]] = []
    freed: list[bool] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            freed.append(bool(seen) and seen[0]() is None)
            result = func(*args, **(kwargs or {}))
            seen.append(weakref.ref(result))
            return result

    value = torch.ones(4)
    run = compile_trace(with_deletions(acquire_program(program, torch.ones(4)).trace))
    with Watch():
        run(value)
    assert freed == [False, False, True]


def test_running_twice_is_the_same():
    once = with_deletions(acquire_program(lambda x: x.exp().sin(), torch.ones(4)).trace)
    assert with_deletions(once).deletions == once.deletions
