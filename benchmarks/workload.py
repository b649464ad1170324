"""A workload as plain data, which is sent to other processes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

PRECISIONS = ("bf16-true", "bf16-autocast", "float32")
OPTIMIZERS = ("adamw", "sgd", "none")
LOSSES = ("inside", "outside")
KV_CACHES = ("dynamic", "static")


@dataclass(frozen=True)
class Workload:
    """A model, a task and sizes.

    Attributes:
        model: name of the model, see `benchmarks.models.catalogue`.
        task: ``training``: forward, backward, optimizer. ``forward``: a forward call without gradients. ``prefill``:
            such a call on a whole sequence, which fills the KV cache of a model that has one. ``decode``: one token
            after such a sequence. ``generation``: the method ``generate`` of a model of Transformers.
        precision: ``bf16-true`` (weights in bfloat16), ``bf16-autocast`` (weights in float32) or ``float32``.
        device: ``cuda`` or ``cpu``.
        batch: number of sequences or images.
        sequence: tokens per sequence, or of the prompt of ``generation``; 0 for models without tokens.
        steps: number of steps.
        optimizer: ``none`` for forward and backward only.
        overrides: settings of the model, by their names in its configuration or by the common names.
        loss: for training, ``inside`` of the compiled program, or ``outside``: computed by PyTorch from the logits.
        new_tokens: for ``generation``, the number of tokens that a step appends to each sequence.
        kv_cache: for ``generation``, ``dynamic`` (Transformers' default, which grows) or ``static``.
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
    new_tokens: int = 0
    kv_cache: str = "dynamic"

    @property
    def timed(self) -> int:
        """Number of timed steps. They are the last ones; the steps before are warm-up."""
        return max(1, min(20, self.steps // 2))

    @property
    def repeats(self) -> int:
        """What a step repeats one after the other: the tokens of ``generation``."""
        return self.new_tokens or 1

    @property
    def label(self) -> str:
        """The workload in one line."""
        sizes = "".join(f", {name} {value}" for name, value in self.overrides.items())
        training = {"adamw": ", AdamW", "sgd": ", SGD"}.get(self.optimizer, "")
        training += ", loss outside" if self.loss == "outside" else ""
        shape = f"{self.batch}x{self.sequence}" if self.sequence else f"batch {self.batch}"
        generation = f", {self.new_tokens} new tokens, {self.kv_cache} cache" if self.task == "generation" else ""
        more = training if self.task == "training" else generation
        return f"{self.model}{sizes}, {shape}, {self.precision}{more}"

    def as_json(self) -> dict[str, Any]:
        """The workload as plain data."""
        return asdict(self)
