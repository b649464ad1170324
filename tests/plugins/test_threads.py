"""One host, several threads."""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.plugins.conftest import OFFERS_AN_EXECUTOR, Site, record
from thunder_core.errors import PluginError
from thunder_core.plugins.host import Host, host, reset_host
from thunder_core.plugins.lookup import find
from thunder_core.plugins.specs import ExecutorSpec
from thunder_core.plugins.states import PluginState

THREADS = 8
COUNTED = "import sys\nsys.thunder_test_imports = getattr(sys, 'thunder_test_imports', 0) + 1\n"


@pytest.fixture(autouse=True)
def _count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "thunder_test_imports", 0, raising=False)


def _at_once(function: Callable[[], Any]) -> list[Any]:
    """What the function returns, or raises, in each of several threads that start together."""
    barrier = threading.Barrier(THREADS, timeout=30)

    def run(index: int) -> Any:
        barrier.wait()
        try:
            return function()
        except PluginError as error:
            return error

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def test_there_is_one_host(site: Site) -> None:
    assert len(set(map(id, _at_once(host)))) == 1


def test_a_plugin_is_loaded_once(site: Site) -> None:
    site.plugin("alpha", COUNTED + "import time; time.sleep(0.1)\n" + OFFERS_AN_EXECUTOR.replace("{name!r}", "'alpha'"))
    loaded = _at_once(lambda: host().load("alpha"))
    assert len(set(map(id, loaded))) == 1
    assert loaded[0].state is PluginState.LOADED
    assert sys.thunder_test_imports == 1


def test_a_failure_is_seen_by_all(site: Site) -> None:
    site.plugin("alpha", "1 / 0")
    errors = _at_once(lambda: host().load("alpha"))
    assert all(isinstance(error, PluginError) and "ZeroDivisionError" in str(error) for error in errors)
    assert record("alpha").state is PluginState.FAILED


def test_names_are_resolved_while_others_load(site: Site) -> None:
    for index in range(5):
        site.plugin(f"alpha_{index}", OFFERS_AN_EXECUTOR.replace("{name!r}", f"'item_{index}'"))
    found = _at_once(lambda: find(ExecutorSpec, "item_3"))
    assert {offered.plugin.name for offered in found} == {"alpha_3"}


def test_a_plugin_may_be_imported_by_a_thread_that_needs_the_host(site: Site) -> None:
    # The thread holds Python's import lock of the module and calls the host; another calls the host for that module.
    module = site.module(
        "import time; time.sleep(0.3)\nfrom thunder_core.plugins.host import host\nhost().load('core')\n"
        + OFFERS_AN_EXECUTOR.replace("{name!r}", "'alpha'")
    )
    site.distribution("plugin-alpha", plugins={"alpha": module})
    first = threading.Thread(target=__import__, args=(module,))
    first.start()
    second = threading.Thread(target=host().load, args=("alpha",))
    second.start()
    for thread in (first, second):
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert record("alpha").state is PluginState.LOADED


def test_the_host_can_be_forgotten(site: Site) -> None:
    site.plugin("alpha", COUNTED + OFFERS_AN_EXECUTOR.replace("{name!r}", "'alpha'"))
    first = host()
    first.load("alpha")
    reset_host()
    assert host() is not first
    assert record("alpha").state is PluginState.AVAILABLE
    host().load("alpha")
    assert sys.thunder_test_imports == 1


def test_a_plugin_that_another_thread_registers_meanwhile(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.plugin("alpha", OFFERS_AN_EXECUTOR.replace("{name!r}", "'alpha'"))
    usable = Host._usable
    before: list[Any] = []

    def interrupted(host: Host, name: str) -> Any:
        result = usable(host, name)
        if not before:
            before.append(result)
            host.load(name)  # as another thread does, after this one has read the record
        return result

    monkeypatch.setattr(Host, "_usable", interrupted)
    loaded = host().load("alpha")
    assert loaded.state is PluginState.LOADED
    assert loaded.specs
