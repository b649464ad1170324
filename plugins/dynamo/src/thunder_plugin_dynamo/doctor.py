"""Checks for ``thunder doctor``."""

from __future__ import annotations

from importlib.metadata import entry_points

from thunder_core.plugins import CheckResult

GROUP = "torch_dynamo_backends"
NAME = "thunder"


def backend_is_registered() -> CheckResult:
    """Checks that this distribution, and no other, registers the backend for `torch.compile`."""
    targets = [one.value for one in entry_points(group=GROUP, name=NAME)]
    if targets == [f"{__package__}.backend:{NAME}"]:
        return CheckResult(True, f'torch.compile(..., backend="{NAME}") finds it')
    what = (
        f"the backend {NAME!r} of torch.compile is {', '.join(targets)}" if targets else f"there is no backend {NAME!r}"
    )
    return CheckResult(
        False, what, "reinstall thunder-plugin-dynamo, and uninstall other packages with a backend of this name"
    )
