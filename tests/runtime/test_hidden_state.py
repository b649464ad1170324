"""State that objects of the standard library keep outside of Python attributes, and contexts of `decimal`."""

from __future__ import annotations

import codecs
import decimal
import hashlib
import threading
import zlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
import torch

import thunder

pytestmark = pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")


def digest(held: Any) -> int:
    held.update(b"a")
    return held.digest()[0]


def toggle(held: threading.Event) -> bool:
    held.clear() if held.is_set() else held.set()
    return held.is_set()


def keep(held: Any) -> bool:
    held.release() if held.locked() else held.acquire()
    return held.locked()


def acquire(held: threading.Semaphore) -> bool:
    return held.acquire(blocking=False)


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "hash": (hashlib.sha256, digest),
    "event": (threading.Event, toggle),
    "lock": (threading.Lock, keep),
    "semaphore": (lambda: threading.Semaphore(2), acquire),
    "compressor": (zlib.compressobj, lambda held: len(held.compress(b"abc" * 50000))),
    "decoder": (lambda: codecs.getincrementaldecoder("utf8")(), lambda held: len(held.decode(b"\xc3"))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_by_the_program(name: str) -> None:
    make, change = CHANGES[name]
    held, same = make(), make()
    compiled, x = thunder.jit(lambda x: x * change(held)), torch.ones(2)
    for _ in range(4):
        try:
            expected = x * change(same)
        except UnicodeDecodeError:
            with pytest.raises(UnicodeDecodeError):
                compiled(x)
            continue
        assert torch.equal(compiled(x), expected)


def test_changes_by_the_caller() -> None:
    held, event = hashlib.sha256(), threading.Event()

    def program(x):
        return x * held.digest()[0] * (2 if event.is_set() else 3)

    compiled, x = thunder.jit(program), torch.ones(2)
    for _ in range(3):
        assert torch.equal(compiled(x), program(x))
        held.update(b"a")
        toggle(event)


def test_an_event_is_guarded() -> None:
    event = threading.Event()
    compiled, x = thunder.jit(lambda x: x * (2 if event.is_set() else 3)), torch.ones(2)
    for expected in (3, 2, 3, 2):
        assert compiled(x).tolist() == [expected] * 2
        toggle(event)
    assert thunder.cache_misses(compiled) == 2


def test_a_lock_around_operations_does_not_prevent_reuse() -> None:
    lock = threading.Lock()

    def program(x):
        with lock:
            return x * 2

    compiled = thunder.jit(program)
    for _ in range(3):
        assert compiled(torch.ones(2)).tolist() == [2, 2]
    assert thunder.cache_misses(compiled) == 1


@pytest.fixture
def context() -> Iterator[decimal.Context]:
    with decimal.localcontext() as context:
        yield context


@pytest.mark.parametrize("held", [None, Decimal(1)])
def test_the_precision_of_decimals(held: Any, context: decimal.Context) -> None:
    def program(x):
        return x * float((held or Decimal(1)) / 3)

    compiled, x = thunder.jit(program), torch.ones(2, dtype=torch.float64)
    for precision in (28, 3, 28, 3):
        context.prec = precision
        assert torch.equal(compiled(x), program(x))
    assert thunder.cache_misses(compiled) == 2


def test_a_program_changes_the_precision_of_decimals(context: decimal.Context) -> None:
    def program(x):
        decimal.getcontext().prec += 1
        return x * float(Decimal(1) / Decimal(3))

    compiled, x = thunder.jit(program), torch.ones(2, dtype=torch.float64)
    for _ in range(3):
        context.prec = 3
        expected = program(x)
        context.prec = 3
        assert torch.equal(compiled(x), expected)
        assert context.prec == 4
