"""The conformance suite of executors (docs/conformance.md)."""

from __future__ import annotations

import pytest

from thunder_core.testing import executor_suite
from thunder_plugin_inductor import compilers

pytestmark = pytest.mark.skipif(
    compilers.missing_compiler("cpu") is not None, reason=str(compilers.missing_compiler("cpu"))
)

test_conformance = executor_suite("inductor", options={"smallest": 1})
