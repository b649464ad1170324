"""Needs a library that does not exist."""

from thunder_core.plugins import ExecutorSpec, hookimpl


@hookimpl
def thunder_executors():
    return [ExecutorSpec("missing_library", "thunder_fixture_missing_library.executor:make")]
