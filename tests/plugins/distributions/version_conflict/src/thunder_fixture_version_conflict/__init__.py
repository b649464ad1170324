"""Needs a PyTorch of the future."""

from thunder_core.plugins import ExecutorSpec, hookimpl


@hookimpl
def thunder_executors():
    return [ExecutorSpec("version_conflict", "thunder_fixture_version_conflict.executor:make")]
