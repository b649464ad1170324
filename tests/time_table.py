"""The time that tests take, by folder: a table at the end of a run, and a file for ``scripts/check``.

Times are those of tests with their fixtures, in seconds of wall time, added up over all processes: with two processes
a run takes half of their sum, and the time to import all files.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.batteries import MARKS

FILE: Final = "THUNDER_TEST_TIMES"
"""The environment variable with the path of the file to write: a JSON object with the seconds of each test."""


@dataclass(eq=False)
class TimeTable:
    """Collects the times of the tests of a run.

    Attributes:
        seconds: by test.
        running: the tests that have started and not ended, in order.
        always: the tests that each run takes: without the marks of `tests.batteries`.
    """

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    running: dict[str, None] = field(default_factory=dict)
    always: set[str] = field(default_factory=set)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.running[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.running.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if not {*MARKS, "in_every_part"}.intersection(report.keywords):
            self.always.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if path := os.environ.get(FILE):
            Path(path).write_text(json.dumps(self.seconds))
        rows = by_folder(self.seconds)
        if len(rows) > 1:
            terminalreporter.section("time by folder")
            terminalreporter.write_line(f"{'seconds':>8} {'tests':>6}  {'folder':32} longest test")
            for name, tests in rows.items():
                longest = max(tests, key=tests.__getitem__)
                test = f"{tests[longest]:.1f} s {longest.rpartition('/')[2]}"
                terminalreporter.write_line(f"{sum(tests.values()):8.1f} {len(tests):6}  {name:32} {test}")
            terminalreporter.section("the slowest tests that each run takes")
            for test in sorted(self.always, key=self.seconds.__getitem__, reverse=True)[:10]:
                terminalreporter.write_line(f"{self.seconds[test]:8.1f} {test}")
        if self.running:
            terminalreporter.section("not ended")
            for nodeid in self.running:
                terminalreporter.write_line(nodeid)


def by_folder(seconds: dict[str, float]) -> dict[str, dict[str, float]]:
    """The times of the tests in each folder of ``tests/`` and in each package of ``plugins/``, the slowest first."""
    folders: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for nodeid, duration in seconds.items():
        folders["/".join(Path(nodeid.partition("::")[0]).parent.parts[:2]) or "."][nodeid] = duration
    return dict(sorted(folders.items(), key=lambda item: -sum(item[1].values())))


def pytest_configure(config: pytest.Config) -> None:
    """Collect times in the process that reports results."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(TimeTable(), "thunder-time-table")
