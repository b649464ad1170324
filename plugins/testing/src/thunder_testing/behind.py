"""Compilations behind calls (``compile="behind"``) that a test finishes: no process is started, no time decides."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.ir.program import compile_trace
from thunder_core.ir.trace import Trace
from thunder_fusion.behind import Candidate
from thunder_testing.pointwise import Pointwise


class HeldJob:
    """Replaces `thunder_fusion.worker_process.Job`; a test sets ``ended``. Assign a list to ``jobs`` first.

    Attributes:
        jobs: all of them, oldest first.
        ended: whether the process would have ended. Then the next poll compiles the regions, in this process.
    """

    jobs: list[HeldJob]

    def __init__(self, request: bytes, candidates: Sequence[Candidate], warn: Callable[..., None]) -> None:
        self.warn = warn
        self.request = request
        self.candidates = candidates
        self.ended = self._delivered = False
        for candidate in candidates:
            candidate.job = self  # type: ignore[assignment]
        self.jobs.append(self)

    def poll(self) -> bool:
        """As `Job.poll`."""
        if self.ended and not self._delivered:
            self._delivered = True
            for candidate, answer in zip(self.candidates, pickle.loads(self.request).answers(), strict=True):
                candidate.receive(answer)
            self.warn(self.candidates)
        return self._delivered


@dataclass(frozen=True, eq=False)
class Coded(Pointwise):
    """Fuses elementwise operations; the code of its regions comes from other processes, and notes its calls.

    Attributes:
        change: what the code does with the results of a region.
        ran: for each run of code the number of operations in the region.
    """

    name: str = "coded"
    change: Callable[[list[torch.Tensor]], Any] = list
    ran: list[int] = field(default_factory=list)

    def artifact_key(self) -> str:
        """As for an executor without settings."""
        return "coded"

    def save(self, compiled: Callable[..., Sequence[Any]]) -> bytes:
        """Nothing: the region itself has all that `load` needs."""
        return b"code"

    def load(self, artifact: bytes, region: Trace) -> Callable[..., Any]:
        """A function that computes the region, changed and noted."""
        function, change = compile_trace(region), self.change

        def run(*inputs: Any) -> Any:
            self.ran.append(len(region.symbols))
            return change([*function(*inputs)])

        return run
