"""A part of the conformance suite of executors (docs/conformance.md).

Tests compile kernels: all of them take half an hour. ``pytest --thunder-executor inductor`` runs them.
"""

from __future__ import annotations

import pytest

from thunder_plugin_inductor import compilers
from thunder_testing.conformance.case import as_test
from thunder_testing.conformance.suite import executor_cases

pytestmark = [
    pytest.mark.skipif(compilers.missing_compiler("cpu") is not None, reason=str(compilers.missing_compiler("cpu"))),
]

CASES = [
    case
    for case in executor_cases("inductor", options={"smallest": 1})
    if "-forward-float32" in case.id or ("-gradient-float32" in case.id and not case.id.startswith("torch."))
]

test_conformance = pytest.mark.battery(as_test(CASES, "What programs get, in the dtype that is used most."))
