"""Takes long to import."""

import time

from thunder_core.plugins import ExecutorSpec, hookimpl

time.sleep(0.5)


@hookimpl
def thunder_executors():
    return [ExecutorSpec("slow", "thunder_fixture_slow.executor:make")]
