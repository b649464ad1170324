"""A cache of compiled regions on disk."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from thunder_core.executors.artifacts import (
    ArtifactCache,
    DamagedArtifact,
    artifact_cache,
    hardware,
    software,
    source_hash,
)
from thunder_core.ir.keys import key_text
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace

if TYPE_CHECKING:
    from thunder_fusion.executor import FusionExecutor

_FORMAT: Final = 1
"""To be increased if the meaning of keys or the interface between regions and executors changes."""


@dataclass(slots=True)
class RegionArtifacts:
    """The artifacts of one executor.

    Attributes:
        executor: the executor.
        cache: the store; None if nothing is stored.
        settings: the common part of all keys, as text.
        notes: a list to which problems are added.
    """

    executor: FusionExecutor
    cache: ArtifactCache | None
    settings: str
    notes: list[str] = field(default_factory=list)

    @staticmethod
    def of(executor: FusionExecutor, flags: Hashable, notes: list[str]) -> RegionArtifacts:
        """The artifacts of ``executor`` under PyTorch's settings ``flags``."""
        executor_key = executor.artifact_key()
        cache = None if executor_key is None else artifact_cache()
        reason = None if cache is None else cache.unsuitable()
        if reason is not None:
            _note(notes, f"compiled regions are not read from disk, because {reason}")
            cache = None
        settings = key_text((flags,))
        if cache is None or settings is None:
            return RegionArtifacts(executor, None, "", notes)
        code = f"{software()}; thunder-fusion {source_hash('thunder_fusion')}"
        return RegionArtifacts(executor, cache, f"{_FORMAT}\n{code}\n{executor.name} {executor_key}\n{settings}", notes)

    def read(self, region: Trace, key: Hashable | None) -> Callable[..., Sequence[Any]] | None:
        """The compiled region; None if there is no valid artifact."""
        full = self._key(region, key)
        if full is None or self.cache is None:
            return None
        try:
            artifact = self.cache.get(full)
            return None if artifact is None else self.executor.load(artifact, region)
        except DamagedArtifact as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the region is compiled again
            reason = f"{self.executor.name} cannot load it: {type(error).__name__}: {error}"
        _note(self.notes, f"an artifact on disk was recompiled: {reason}")
        self.cache.discard(full)
        return None

    def write(self, compiled: Callable[..., Sequence[Any]], region: Trace, key: Hashable | None) -> None:
        """Store a compiled region, if the executor can save it."""
        full = self._key(region, key)
        if full is None or self.cache is None:
            return
        try:
            artifact = self.executor.save(compiled)
        except Exception as error:  # noqa: BLE001 - the region runs, and that is all that is needed
            _note(self.notes, f"{self.executor.name} cannot save a region: {type(error).__name__}: {error}")
            return
        reason = None if artifact is None else self.cache.put(full, artifact)
        if reason is not None:
            _note(self.notes, f"compiled regions are not cached on disk, because {reason}")
            self.cache = None

    def prune(self) -> None:
        """Enforce the size limit of the folder."""
        if self.cache is not None:
            self.cache.prune()

    def _key(self, region: Trace, key: Hashable | None) -> str | None:
        text = None if self.cache is None or key is None else key_text(key)
        if text is None:
            return None
        values = [value for op in region.symbols for value in op.proxies()]
        devices = sorted({value.device for value in values if isinstance(value, TensorProxy)}, key=str)
        return "\n".join([self.settings, *map(hardware, devices), text])


def _note(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)
