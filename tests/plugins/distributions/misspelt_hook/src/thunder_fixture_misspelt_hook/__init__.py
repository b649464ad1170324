"""Misspells a hook."""

from thunder_core.plugins import ExecutorSpec, hookimpl


@hookimpl
def thunder_executers():
    return [ExecutorSpec("misspelt_hook", "thunder_fixture_misspelt_hook.executor:make")]
