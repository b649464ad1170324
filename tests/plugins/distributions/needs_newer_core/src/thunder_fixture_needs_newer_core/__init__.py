"""Needs a Thunder of the future."""

from thunder_core.plugins import ExecutorSpec, hookimpl


@hookimpl
def thunder_executors():
    return [ExecutorSpec("needs_newer_core", "thunder_fixture_needs_newer_core.executor:make")]
