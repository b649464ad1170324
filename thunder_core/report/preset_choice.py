"""Which preset gave a program its executors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PresetChoice:
    """The executors of a program for which none were named.

    Attributes:
        preset: the name of the preset.
        device: the type of device that it was chosen for.
        executors: names of those of its executors that can be used here, in order.
        left_out: the others, with the reason.
    """

    preset: str
    device: str
    executors: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    def lines(self) -> list[str]:
        """For people."""
        names = ", ".join(self.executors) or "PyTorch alone"
        chosen = f"executors of the preset {self.preset!r}, chosen for the device {self.device}: {names}"
        return [chosen, *(f"  without {name}, because {reason}" for name, reason in self.left_out)]
