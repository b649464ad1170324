"""Reads and writes of environment variables, seen by the frames of ``os.environ``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import FrameType
from typing import Any

from thunder_core.guards.check import Check
from thunder_core.guards.code_kinds import CodeKind, kind_of
from thunder_core.guards.conditions import VALUE, keys_check
from thunder_core.guards.guard import Guard
from thunder_core.guards.source import ConstantSource, EnvironmentSource

_KIND: Any = type(os.environ)
_READS = {_KIND.__getitem__.__code__}
_WALKS = {_KIND.__iter__.__code__, _KIND.__len__.__code__}
_WRITES = {_KIND.__setitem__.__code__, _KIND.__delitem__.__code__}


class Environment:
    """The environment variables when the observation began, and which of them the program read."""

    def __init__(self) -> None:
        self._before = os.environ.copy()
        self._read: set[str] = set()
        self._walked = False
        self._written = False

    def entered(self, frame: FrameType) -> None:
        """A frame of the standard library is entered, which may be that of a read or a write."""
        code = frame.f_code
        if code in _READS or code in _WALKS or code in _WRITES:
            caller = frame.f_back
            while caller is not None and kind_of(caller.f_code) is CodeKind.LIBRARY:
                caller = caller.f_back
            if caller is None or kind_of(caller.f_code) is not CodeKind.USER:
                return
            self._walked |= code in _WALKS
            self._written |= code in _WRITES
            key = frame.f_locals.get("key")
            if code in _READS and type(key) is str:
                self._read.add(key)

    def guards(self) -> Iterator[Guard]:
        """What must stay as it was."""
        for name in sorted(self._read):
            yield Check(EnvironmentSource(name), VALUE, self._before.get(name))
        if self._walked:
            yield keys_check(ConstantSource(os.environ, "environ"), tuple(self._before))

    def changes(self) -> Iterator[tuple[EnvironmentSource, str | None]]:
        """What the program set, and with None what it deleted."""
        if self._written:
            now = os.environ.copy()
            for name in self._before.keys() | now.keys():
                if now.get(name) != self._before.get(name):
                    yield EnvironmentSource(name), now.get(name)

    def undo(self) -> None:
        """Give every variable its value back."""
        for source, _ in tuple(self.changes()):
            before = self._before.get(source.name)
            if before is None:
                del os.environ[source.name]
            else:
                os.environ[source.name] = before
