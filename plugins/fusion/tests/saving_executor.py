"""A fusion executor for tests whose regions can be kept on disk, and a program that prints what it compiled."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from thunder_core.ir.program import compile_trace
from thunder_core.ir.trace import Trace
from thunder_testing.pointwise import Pointwise


@dataclass(frozen=True, eq=False)
class Saving(Pointwise):
    """Keeps the names of a region's symbols.

    Attributes:
        version: part of the key.
        unsavable: what `save` raises; nothing if empty.
    """

    name: str = "saving"
    version: str = "1"
    unsavable: str = ""

    def artifact_key(self) -> str:
        return self.version

    def save(self, compiled: Callable[..., Sequence[Any]]) -> bytes:
        if self.unsavable:
            raise ValueError(self.unsavable)
        return b"saved"

    def load(self, artifact: bytes, region: Trace) -> Callable[..., Any]:
        if artifact != b"saved":
            raise ValueError(f"unknown content {artifact!r}")
        return compile_trace(region)


def main(layers: int) -> None:
    import torch

    import thunder

    executor = Saving()
    model = torch.nn.Sequential(*[layer for _ in range(layers) for layer in (torch.nn.Linear(3, 3), torch.nn.GELU())])
    program = thunder.jit(model, executors=[executor])
    program(torch.ones(2, 3)).sum().backward()
    report = thunder.explain(program).entries[0].regions
    print(
        json.dumps(
            {"compiled": report.compiled, "read": report.read, "fused": len(executor.regions), "notes": report.notes}
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
