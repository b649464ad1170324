"""The transforms by the conformance suite: programs do the same with them and without.

`Bisect` has nothing to do there, as no executor is; `test_results_stay.py` tests it.
"""

from __future__ import annotations

import pytest

from thunder_plugin_debug import LineCallbacks, NanFinder
from thunder_testing import transform_suite

EXACT = (0.0, 0.0)

test_line_callbacks = pytest.mark.battery(transform_suite(LineCallbacks(after_line=lambda *_: None), tolerance=EXACT))
test_line_timing = pytest.mark.battery(transform_suite("line_timing", options={"report": "none"}, tolerance=EXACT))
test_nan_finder = pytest.mark.battery(transform_suite(NanFinder(inf=True, inputs=True), tolerance=EXACT))
