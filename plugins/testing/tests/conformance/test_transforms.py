"""Each defect of a transform is found by the check that is meant for it, which names the rule; right ones pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import defective_transforms as d
import pytest
import torch
from messages import failures_of

from thunder_core.passes.transform import Place, Transform
from thunder_testing import Arguments, ConformanceError, transform_suite
from thunder_testing.conformance.transform_programs import TransformProgram
from thunder_testing.conformance.transform_suite import transform_cases


def failures(transform: str | Transform, pattern: str, **options: Any) -> Iterator[str]:
    """The messages of the tests with such ids."""
    return failures_of(transform_cases(transform, **options), pattern)


BEFORE = Place.BEFORE_DIFFERENTIATION

DEFECTS: dict[str, tuple[Transform, str, str, str]] = {
    # name: transform, ids of the tests, rule, words
    "value": (d.at(BEFORE, d.sums_for_products), "pointwise-inference", "same behaviour", "values differ"),
    "gradient": (d.at(Place.CLAIMED, d.only_backward), "pointwise-training", "same behaviour", ".grad"),
    "write": (d.at(Place.ACQUIRED, d.without_the_last_write), "in_place-inference", "same behaviour", "values differ"),
    "order of draws": (d.at(BEFORE, d.other_order_of_draws), "dropping-training", "same behaviour", "values differ"),
    "lost result": (d.LosesResult(), "views-inference", "runs", ""),
    "no valid trace": (
        d.at(BEFORE, d.without_the_first_line),
        "linear_layers-training",
        "valid traces",
        "Verification",
    ),
    "failure": (d.at(Place.LAST, d.failing), "pointwise-inference", "runs", "the transform 'defective' failed"),
    "training": (d.at(BEFORE, d.sums_for_products), "counting-optimizer", "same behaviour", "after step 1"),
    "changing compilations": (d.Alternates(), "pointwise-repeatable", "repeatable", "compiled twice"),
    "lossy state": (d.OnState(d.doubled, d.same), "normalized-state_dict", "same behaviour", "load_state_dict"),
    "changed module": (
        d.OnState(d.doubled_in_place, d.halved),
        "tied-state_dict",
        "same behaviour",
        "after state_dict",
    ),
    "state of its own": (d.AddsBuffer(d.without_the_buffer, d.same), "tied-state_dict", "state dict", "after loading"),
    "lost prefix": (d.OnState(d.prefixed, d.same), "tied-state_dict", "runs", "Missing key"),
}


@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.slow
def test_defect_is_found(defect: str) -> None:
    transform, pattern, rule, words = DEFECTS[defect]
    (message,) = failures(transform, pattern)
    assert f"defective, {pattern.rpartition('-')[0]}" in message
    assert f"the rule of {rule} is broken" in message
    assert words in message


def test_message_shows_what_the_transform_changes() -> None:
    (message,) = failures(d.at(BEFORE, d.sums_for_products), "pointwise-inference")
    assert "    -    t1 = torch.mul(t0, y)" in message
    assert "    +    t1 = torch.add(t0, y)" in message


@pytest.mark.slow
def test_transform_that_changes_nothing() -> None:
    (message,) = failures(d.at(BEFORE, d.itself), "all-changes")
    assert "changes none of the" in message


@pytest.mark.slow
def test_transforms_that_observe() -> None:
    (message,) = failures(d.at(BEFORE, d.sums_for_products), "all-unchanged", observes=True)
    assert "the rule of changes nothing is broken it changes pointwise" in " ".join(message.split())
    assert "    +    t1 = torch.add(t0, y)" in message
    for pattern in ("all-unchanged", "dropping-training"):
        assert not list(failures(d.at(Place.LAST, d.itself), pattern, observes=True))
    (message,) = failures(d.Never(), "all-unchanged", observes=True)
    assert "runs for none of the" in message
    with pytest.raises(ConformanceError, match="contradict each other"):
        transform_suite(d.LosesResult(), observes=True, changes_results=True)


@pytest.mark.slow
def test_transforms_that_change_results() -> None:
    sums = d.at(BEFORE, d.sums_for_products)
    for pattern in ("all-changes", "pointwise-training", "counting-optimizer", "tied-*"):
        assert not list(failures(sums, pattern, changes_results=True))
    for defect in ("lost result", "no valid trace", "lossy state"):
        transform, pattern, rule, words = DEFECTS[defect]
        (message,) = failures(transform, pattern, changes_results=True)
        assert f"the rule of {rule} is broken" in message
        assert words in message


@pytest.mark.slow
def test_right_transforms_pass() -> None:
    right = d.OnState(d.prefixed, d.without_prefix)
    assert list(failures(right, "*")) == []
    assert list(failures("common_subexpression", "attention-*", tolerance=(0, 0))) == []


def test_programs_of_the_author() -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    program = TransformProgram("doubled", lambda: doubled, lambda: Arguments(torch.randn(3)))
    transform = d.at(BEFORE, d.sums_for_products)
    assert len(list(failures(transform, "doubled-*", programs=[program]))) == 2
    ids = [case.id for case in transform_cases(transform, programs=[program])]
    assert len(set(ids)) == len(ids)
    assert {"doubled-inference", "attention-optimizer", "tied-state_dict"} <= set(ids)


def test_options_are_for_names() -> None:
    with pytest.raises(ConformanceError, match="given by name"):
        transform_suite(d.LosesResult(), options={"limit": 3})
    with pytest.raises(ConformanceError, match=r"matches none of the \d+ tests"):
        transform_suite("constant_folding", skip={"atention-*": "slow"})
    assert not list(failures("constant_folding", "all-changes", options={"limit": 1 << 10}))
