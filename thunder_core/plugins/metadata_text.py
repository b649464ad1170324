"""The two files of a distribution's metadata that discovery reads, as text."""

from __future__ import annotations

import importlib.metadata


class Headers:
    """The fields of a distribution's metadata.

    `importlib.metadata` parses the description with them, which takes longer than everything else here together.
    """

    def __init__(self, text: str) -> None:
        self._fields: list[list[str]] = []
        for line in text.replace("\r\n", "\n").partition("\n\n")[0].splitlines():  # the description follows
            if line[:1].isspace() and self._fields:
                self._fields[-1][1] += line
            else:
                name, _, value = line.partition(":")
                self._fields.append([name.lower(), value])

    @staticmethod
    def of(distribution: importlib.metadata.Distribution) -> Headers:
        """Those of a distribution; none where its metadata is absent or is not text."""
        try:
            return Headers(distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or "")
        except UnicodeDecodeError:
            return Headers("")

    def all(self, name: str) -> list[str]:
        """The values of a field, which may be there more than once."""
        return [value.strip() for key, value in self._fields if key == name.lower()]

    def first(self, name: str) -> str:
        """The value of a field, empty if it is not there."""
        return next(iter(self.all(name)), "")


def entry_point_groups(text: str) -> dict[str, dict[str, str]]:
    """The content of ``entry_points.txt``: names and values by group."""
    groups: dict[str, dict[str, str]] = {}
    group: dict[str, str] = {}
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = groups.setdefault(line[1:-1].strip(), {})
        elif line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            group[name.strip()] = value.strip()
    return groups
