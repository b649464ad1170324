"""Tables on disk, which processes share: many small results in one artifact.

What a line is in core ATen, and whether an executor takes an operator, is computed by PyTorch on fake tensors,
or with libraries that take long to import. Such results are the same in every process. A table of them is read when it
is first used, and written when a program was compiled, together with what other processes wrote meanwhile.
"""

from __future__ import annotations

import hashlib
import pickle
import threading
from dataclasses import dataclass, field
from typing import Final

from thunder_core.executors.artifacts import ArtifactCache, DamagedArtifact, artifact_cache

_MOST: Final = 4096
"""Entries of a table; those that were not read are dropped first."""


@dataclass(slots=True, eq=False)
class KeptTable:
    """Entries by keys; the caller chooses the form of both.

    Attributes:
        cache: the folder.
        key: what all entries depend on besides their keys; another one is another table.
    """

    cache: ArtifactCache
    key: str
    _known: dict[bytes, bytes] = field(default_factory=dict)
    _asked: dict[bytes, bytes] = field(default_factory=dict)
    _new: bool = False
    _notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._known = self._read()

    def get(self, question: str) -> bytes | None:
        """The entry; None if there is none."""
        short = _short(question)
        answer = self._known.get(short)
        if answer is not None:
            self._asked[short] = answer
        return answer

    def put(self, question: str, answer: bytes) -> None:
        """Add an entry, from the next `save_tables` on for other processes."""
        short = _short(question)
        self._known[short] = self._asked[short] = answer
        self._new = True

    def save(self) -> list[str]:
        """Write it, if there is something new in it. Returns what went wrong."""
        if self._new:
            together = {key: answer for key, answer in self._read().items() if key not in self._asked}
            together.update(self._asked)
            reason = self.cache.put(self.key, pickle.dumps(dict([*together.items()][-_MOST:])))
            self._new = reason is not None
            if reason is not None:
                self._notes.append(f"answers about lines are not kept on disk, because {reason}")
        notes, self._notes = self._notes, []
        return notes

    def _read(self) -> dict[bytes, bytes]:
        if self.cache.unsuitable() is not None:  # reported where regions are read, and where this is written
            return {}
        try:
            data = self.cache.get(self.key)
            found = {} if data is None else pickle.loads(data)
            if not isinstance(found, dict):
                raise DamagedArtifact(f"it holds {type(found).__name__}")
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it can be made again
            self._notes.append(f"answers about lines on disk were made again: {error}")
            self.cache.discard(self.key)
            return {}
        return found


_tables: dict[tuple[ArtifactCache, str], KeptTable] = {}
_lock = threading.Lock()


def kept_table(key: str) -> KeptTable | None:
    """The table of that key; None where nothing is stored on disk."""
    cache = artifact_cache()
    if cache is None:
        return None
    with _lock:
        table = _tables.get((cache, key))
        if table is None:
            table = _tables[cache, key] = KeptTable(cache, key)
    return table


def save_tables() -> list[str]:
    """Write all that have something new. Returns what went wrong."""
    with _lock:
        return [note for table in _tables.values() for note in table.save()]


def _short(question: str) -> bytes:
    return hashlib.sha256(question.encode()).digest()[:16]
