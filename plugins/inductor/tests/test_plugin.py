"""The package as a plugin. ``UPDATE_DOCUMENTS=1`` writes the table of options in the README anew."""

from __future__ import annotations

from thunder_testing import package_suite

test_package = package_suite(__file__)
