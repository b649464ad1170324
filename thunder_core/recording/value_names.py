"""The names of the values of a trace that is being recorded."""

from __future__ import annotations

import keyword
import re
from typing import Final

from thunder_core.ir.literals import RESERVED_NAMES
from thunder_core.ir.size import SIZE_NAMES

_RESERVED: Final = RESERVED_NAMES | {"args", "kwargs", "len", *SIZE_NAMES}
"""Names that a printed program and its prologue define."""


class ValueNames:
    """Hands out Python identifiers, each once."""

    def __init__(self) -> None:
        self._count = 0
        self._taken: set[str] = set()
        self._suffixes: dict[str, int] = {}  # the last one of each stem

    def intermediate(self) -> str:
        """The next ``t0``, ``t1``, ... for a computed value."""
        while True:
            name = f"t{self._count}"
            self._count += 1
            if name not in self._taken:
                return name

    def for_input(self, description: str) -> str:
        """An identifier that resembles an access path such as ``model.layers[0].weight``."""
        stem = re.sub(r"\W+", "_", description).strip("_").lower() or "value"
        if stem[0].isdigit() or keyword.iskeyword(stem) or stem in _RESERVED or re.fullmatch(r"[ts]\d+", stem):
            stem = f"input_{stem}"
        name = stem
        while name in self._taken:
            suffix = self._suffixes[stem] = self._suffixes.get(stem, 0) + 1
            name = f"{stem}_{suffix}"
        self._taken.add(name)
        return name
