"""The pytest plugin: ``pytest --thunder-executor NAME`` tests an installed executor without a test file.

pytest imports this module in every run of an environment with Thunder, so it imports nothing else before one of its
options is used. Test ids are ``executor NAME::torch.nn.functional.silu-forward-float32-0``; ``-k``, ``-x`` and ``-n``
work as usual. Files are collected only if they are given as arguments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from thunder_testing.conformance.case import Case


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("thunder", "conformance of Thunder's plugins")
    for kind in ("executor", "transform"):
        group.addoption(
            f"--thunder-{kind}",
            action="append",
            default=[],
            metavar="NAME",
            help=f"run the conformance suite of this {kind}; may be given several times",
        )
    group.addoption(
        "--thunder-device",
        action="append",
        default=[],
        metavar="DEVICE",
        help="test executors on this device instead of cpu; may be given several times",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Run only the selected suites, unless files are given as arguments.

    Raises:
        pytest.UsageError: an executor, a transform or a device cannot be used.
    """
    selected = config.getoption("thunder_executor") or config.getoption("thunder_transform")
    if config.getoption("thunder_device") and not config.getoption("thunder_executor"):
        raise pytest.UsageError(
            "--thunder-device says where executors are tested, and none is named; add --thunder-executor NAME"
        )
    if selected and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = []
    if selected and not hasattr(config, "workerinput"):  # pytest-xdist drops exceptions of its workers
        _check(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the suites, before the options that select tests are applied."""
    items[:0] = _suites(session, config)


def _check(config: pytest.Config) -> None:
    """Raise pytest.UsageError for a selection that cannot be tested."""
    for name in config.getoption("thunder_executor"):
        from thunder_testing.conformance.suite import check_executor

        with _usage_errors(f"executor {name}"):
            check_executor(name, _devices(config))
    for name in config.getoption("thunder_transform"):
        from thunder_testing.conformance.transform_suite import check_transform

        with _usage_errors(f"transform {name}"):
            check_transform(name)


def _suites(session: pytest.Session, config: pytest.Config) -> Iterator[pytest.Item]:
    for name in config.getoption("thunder_executor"):
        from thunder_testing.conformance.suite import executor_cases

        yield from _items(session, f"executor {name}", partial(executor_cases, name, devices=_devices(config)))
    for name in config.getoption("thunder_transform"):
        from thunder_testing.conformance.transform_suite import transform_cases

        yield from _items(session, f"transform {name}", partial(transform_cases, name))


def _devices(config: pytest.Config) -> tuple[str, ...]:
    return tuple(config.getoption("thunder_device")) or ("cpu",)


def _items(session: pytest.Session, title: str, make: Callable[[], Sequence[Case]]) -> Sequence[pytest.Item]:
    with _usage_errors(title):
        cases = make()
    suite: Suite = Suite.from_parent(session, name=title, nodeid=title, cases=cases)
    tests = suite.collect()
    report = pytest.CollectReport(title, "passed", None, tests)  # type: ignore[arg-type]
    session.ihook.pytest_collectreport(report=report)  # the terminal reports the number of collected tests
    return tests


@contextlib.contextmanager
def _usage_errors(title: str) -> Iterator[None]:
    """Convert errors of Thunder in the body to usage errors of pytest."""
    from thunder_core.errors import ThunderError

    try:
        yield
    except ThunderError as error:
        raise pytest.UsageError(f"{title} cannot be tested: {error}") from error


class Suite(pytest.Collector):
    """The tests of one executor or transform."""

    def __init__(self, *, cases: Sequence[Case], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.cases = cases

    def collect(self) -> list[SuiteTest]:
        """All tests of the suite."""
        return [SuiteTest.from_parent(self, name=case.id, case=case) for case in self.cases]


class SuiteTest(pytest.Item):
    """One test of a suite."""

    def __init__(self, *, case: Case, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.case = case

    def runtest(self) -> None:
        """Run the test."""
        self.case.run()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The message of a failure and its cause; other exceptions in full."""
        from thunder_testing.conformance.failure import ConformanceFailure

        if not isinstance(excinfo.value, ConformanceFailure):
            return super().repr_failure(excinfo, style)
        if excinfo.value.__cause__ is None:
            return str(excinfo.value)
        cause = pytest.ExceptionInfo.from_exception(excinfo.value.__cause__)
        return f"{excinfo.value}\n\n{cause.getrepr(style='short')}"

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """The location of the test, which is not in a file."""
        return self.path, None, self.nodeid
