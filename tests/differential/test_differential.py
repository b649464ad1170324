"""Random programs do compiled what they do in eager. ``python -m tests.differential`` runs other seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import thunder
from tests.differential import process_group
from tests.differential.__main__ import describe
from tests.differential.programs import write
from tests.differential.runs import judge

PROGRAMS = 7
"""In each test."""


@pytest.fixture(autouse=True, scope="module")
def group() -> Iterator[None]:
    with process_group.running():
        yield


@pytest.mark.parametrize("chunk", range(60))
@pytest.mark.battery
def test_random_programs_do_what_they_do_in_eager(chunk: int) -> None:
    verdicts = {}
    for seed in range(chunk * PROGRAMS, (chunk + 1) * PROGRAMS):
        program = write(seed)
        verdict = judge(program, lambda subject: thunder.jit(subject, executors=[]))
        verdicts[seed] = verdict.kind
        assert verdict.kind in ("equal", "refused"), f"seed {seed}: {verdict.reason}\n{describe(program)}"
    assert list(verdicts.values()).count("equal") > PROGRAMS // 2, verdicts  # refusing all would not do


@pytest.mark.parametrize("chunk", range(21))
@pytest.mark.battery
def test_eager_does_what_it_does_in_eager(chunk: int) -> None:
    for seed in range(chunk * PROGRAMS, (chunk + 1) * PROGRAMS):
        verdict = judge(write(seed), lambda subject: subject)
        assert verdict.kind == "equal", f"seed {seed}: {verdict.reason}\n{describe(write(seed))}"


def _first_result(subject: Callable[..., Any]) -> Callable[..., Any]:
    results: list[Any] = []

    def call(*args: Any) -> Any:
        results.append(subject(*args))
        return results[0]

    return call


def _without_printing(subject: Callable[..., Any]) -> Callable[..., Any]:
    def call(world: Any, *args: Any) -> Any:
        subject.__globals__["print"] = lambda *_: None
        try:
            return subject(world, *args)
        finally:
            del subject.__globals__["print"]

    return call


@pytest.mark.parametrize(("broken", "kind"), [(_first_result, "pointwise"), (_without_printing, "text")])
@pytest.mark.slow
def test_a_broken_compiler_is_noticed(broken: Callable[..., Any], kind: str) -> None:
    programs = [write(seed, (kind,)) for seed in range(30)]
    verdicts = [judge(program, broken).kind for program in programs if not program.module]
    assert "wrong" in verdicts
