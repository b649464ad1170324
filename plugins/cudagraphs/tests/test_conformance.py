"""The transform by the conformance suite: programs on the CPU stay as they are, or are captured by the tests' backend.

There, graphs overwrite whatever memory they may, so that a value that is read too late is garbage.
"""

from __future__ import annotations

import pytest

from thunder_plugin_cudagraphs import CUDAGraphs
from thunder_testing import transform_suite

EXACT = (0.0, 0.0)

test_on_the_cpu = pytest.mark.battery(
    transform_suite("cudagraphs", tolerance=EXACT, skip={"all-changes": "programs on the CPU are not captured"})
)
test_captured = pytest.mark.battery(
    pytest.mark.usefixtures("backend")(transform_suite(CUDAGraphs(warmup=0), tolerance=EXACT))
)
test_in_shared_memory = pytest.mark.battery(
    pytest.mark.usefixtures("backend")(transform_suite(CUDAGraphs(warmup=0, copy_below=0), tolerance=EXACT))
)
