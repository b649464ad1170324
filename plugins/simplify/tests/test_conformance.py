"""What holds for every transform: programs do what they do in eager, to the bit."""

from __future__ import annotations

import pytest

from thunder_testing import transform_suite

test_constant_folding = pytest.mark.battery(
    transform_suite("constant_folding", tolerance=(0, 0), gradient_tolerance=(0, 0))
)
test_common_subexpression = pytest.mark.battery(
    transform_suite("common_subexpression", tolerance=(0, 0), gradient_tolerance=(0, 0))
)
