"""The package as a plugin. ``UPDATE_DOCUMENTS=1`` writes the table of options in the README anew."""

from __future__ import annotations

from thunder_plugin_triton.executor import from_options
from thunder_plugin_triton.options import TritonOptions
from thunder_testing import package_suite

test_package = package_suite(__file__)


def test_equal_options_are_one_executor() -> None:
    assert from_options(TritonOptions()) is from_options(TritonOptions())
    assert from_options(TritonOptions()) is not from_options(TritonOptions(autotune=False))
