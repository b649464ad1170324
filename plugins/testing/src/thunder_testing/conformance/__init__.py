"""Suites of tests for executors and transforms: `thunder_core.testing.executor_suite` and `transform_suite`."""
