"""Every operator of PyTorch's OpInfo database, compiled, against eager.

To run some of it: ``python -m tests.support --only 'operators/nn.functional.*'``.
"""

from __future__ import annotations

import functools

import pytest

from tests.batteries import in_every_part, sample
from tests.opinfo.bar import require_equal
from tests.subjects import SUBJECT
from thunder_testing.opinfo import operator_names, run_operator
from thunder_testing.workers import run_in_workers


@in_every_part
@pytest.mark.timeout(1500)
def test_operators_equal_eager() -> None:
    names = sample(operator_names() + operator_names(None))
    require_equal(run_in_workers(functools.partial(run_operator, compile=SUBJECT), names, workers=2))
