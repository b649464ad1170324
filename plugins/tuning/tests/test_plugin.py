"""The package as a plugin."""

from __future__ import annotations

from thunder_testing import package_suite

test_package = package_suite(__file__)
