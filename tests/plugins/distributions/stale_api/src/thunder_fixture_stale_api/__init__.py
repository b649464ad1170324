"""Written for an older interface, or for a newer one."""

from thunder_core.plugins import ExecutorSpec, hookimpl


@hookimpl
def thunder_executors():
    return [ExecutorSpec("stale_api", "thunder_fixture_stale_api.executor:make")]
