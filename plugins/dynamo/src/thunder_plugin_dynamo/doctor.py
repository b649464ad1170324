"""What ``thunder doctor`` checks."""

from __future__ import annotations

from importlib.metadata import entry_points

from thunder_core.plugins import CheckResult

GROUP = "torch_dynamo_backends"
NAME = "thunder"


def backend_is_registered() -> CheckResult:
    """Whether exactly one distribution gives `torch.compile` a backend of this name, and it is this one."""
    found = [one.value for one in entry_points(group=GROUP, name=NAME)]
    if found == [f"{__package__}.backend:{NAME}"]:
        return CheckResult(True, f'torch.compile(..., backend="{NAME}") finds it')
    what = f"the backend {NAME!r} of torch.compile is {', '.join(found)}" if found else f"no backend {NAME!r} is there"
    return CheckResult(False, what, "install thunder-plugin-dynamo again, and uninstall what takes its name")
