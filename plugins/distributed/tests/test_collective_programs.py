"""Each collective of PyTorch in a compiled program, between two processes, compared with eager."""

from __future__ import annotations

import pytest
from collective_cases import CASES, OF_GLOO

from thunder_testing.processes import process_suite

test_two_processes = pytest.mark.battery(process_suite("collective_cases", CASES, of_gloo=OF_GLOO))
