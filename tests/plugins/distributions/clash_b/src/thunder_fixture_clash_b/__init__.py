"""One of two plugins of one name."""

from thunder_core.plugins import ExecutorSpec, hookimpl


@hookimpl
def thunder_executors():
    return [ExecutorSpec("clash", "thunder_fixture_clash_b.executor:make")]
