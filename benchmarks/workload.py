"""What is measured, as plain data that travels to another process."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

PRECISIONS = ("bf16-true", "bf16-autocast", "float32")
OPTIMIZERS = ("adamw", "sgd", "none")
LOSSES = ("inside", "outside")


@dataclass(frozen=True)
class Workload:
    """A model and what it does.

    Attributes:
        model: its name, see ``models.catalogue``.
        task: ``training``: forward, backward, optimizer. ``prefill``: a forward call on a whole sequence, which
            fills the KV cache of a model that has one. ``decode``: one more token after such a sequence.
        precision: ``bf16-true`` (weights in bfloat16), ``bf16-autocast`` (weights in float32) or ``float32``.
        device: ``cuda`` or ``cpu``.
        batch: sequences, or images.
        sequence: tokens of each; 0 for models of images.
        steps: calls that are made and, in training, compared with eager's.
        optimizer: ``none`` for forward and backward alone.
        overrides: settings of the model, in the words of its family or in the common ones.
        loss: of training: ``inside`` the program that is compiled, or ``outside``, computed by PyTorch from its logits.
    """

    model: str
    task: str
    precision: str
    device: str
    batch: int
    sequence: int
    steps: int
    optimizer: str = "none"
    overrides: dict[str, Any] = field(default_factory=dict)
    loss: str = "inside"

    @property
    def timed(self) -> int:
        """Number of the last steps, whose times count; the others warm up."""
        return max(1, min(20, self.steps // 2))

    @property
    def label(self) -> str:
        """The workload in one line."""
        sizes = "".join(f", {name} {value}" for name, value in self.overrides.items())
        training = {"adamw": ", AdamW", "sgd": ", SGD"}.get(self.optimizer, "")
        training += ", loss outside" if self.loss == "outside" else ""
        shape = f"{self.batch}x{self.sequence}" if self.sequence else f"batch {self.batch}"
        return f"{self.model}{sizes}, {shape}, {self.precision}{training if self.task == 'training' else ''}"

    def as_json(self) -> dict[str, Any]:
        """The workload as plain data."""
        return asdict(self)
