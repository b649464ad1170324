"""What the models see: bytes of this repository's documents as tokens, random numbers as images. Always the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.process import ROOT

if TYPE_CHECKING:
    import torch

    from benchmarks.models.subject import Subject
    from benchmarks.workload import Workload

    Batch = tuple[torch.Tensor, torch.Tensor]


def batches(count: int, subject: Subject, workload: Workload) -> list[Batch]:
    """Pairs of inputs and targets on the workload's device.

    For a language model both are ``(batch, sequence)``: bytes from random places, and the byte after each. Else the
    inputs are ``(batch, *shape)``, normally distributed, in the type of the weights; the targets are random classes.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    if subject.shape is None:
        text = documents(workload.sequence + 1) % subject.classes
        starts = torch.randint(len(text) - workload.sequence, (count, workload.batch, 1), generator=generator)
        places = starts + torch.arange(workload.sequence)
        return [(text[place].to(workload.device), text[place + 1].to(workload.device)) for place in places]
    dtype = torch.bfloat16 if workload.precision == "bf16-true" else torch.float32
    images = torch.randn(count, workload.batch, *subject.shape, generator=generator)
    targets = torch.randint(subject.classes, (count, workload.batch), generator=generator)
    return [(image.to(workload.device, dtype), target.to(workload.device)) for image, target in zip(images, targets)]


def documents(least: int) -> torch.Tensor:
    """The documents' bytes as integers, repeated until there are more than ``least``."""
    import torch

    paths = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = torch.tensor(list(b"".join(path.read_bytes() for path in paths)))
    return text.repeat(least // len(text) + 1)
