"""Test suites for executors and transforms: `thunder_testing.executor_suite` and `transform_suite`."""
