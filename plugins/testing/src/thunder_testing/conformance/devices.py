"""Whether suites can run on a device."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from thunder_testing.conformance.failure import ConformanceError


def check_devices(devices: Iterable[str]) -> None:
    """Raise ConformanceError for the first device on which PyTorch cannot make a tensor here."""
    for device in devices:
        try:
            torch.empty((), device=device)
        except Exception as error:  # PyTorch raises AssertionError, RuntimeError and others
            reason = str(error).partition("\n")[0]
            raise ConformanceError(
                f"PyTorch cannot use the device {device!r} here: {reason}",
                advice=(
                    f"name a device that it can use here: {', '.join(_usable())}",
                    "`thunder doctor` says which GPUs there are, and what is missing to use them",
                ),
            ) from error


def _usable() -> list[str]:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return ["cpu", *([] if accelerator is None else [accelerator.type])]
