"""The package: its metadata, the modules that it imports, and the README's examples."""

from thunder_testing import package_suite

test_package = package_suite(__file__)
