"""The checks of ``thunder doctor`` for the core; those of plugins follow."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from thunder.command_line.environment import driver
from thunder_core.plugins.specs import CheckResult, private_names_result

Checks = Sequence[tuple[str, Callable[[], CheckResult]]]


def core_checks(torch: Any) -> Checks:
    """Names of the checks and what runs them.

    Args:
        torch: the module, or the exception that its import raised.
    """
    checks: list[tuple[str, Callable[[], CheckResult]]] = [
        ("one thunder", _is_alone),
        ("PyTorch", partial(_has_torch, torch)),
    ]
    if not isinstance(torch, BaseException):
        devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        checks += [("private names of PyTorch", _has_private_names), ("GPU", partial(_sees_gpu, torch))]
        checks += [(f"compile on {device}", partial(_compiles, torch, device)) for device in devices]
    return checks


def _is_alone() -> CheckResult:
    try:
        other = importlib.metadata.version("lightning-thunder")
    except importlib.metadata.PackageNotFoundError:
        return CheckResult(True, "no other distribution installs a package of this name")
    return CheckResult(
        False,
        f"lightning-thunder {other} installs a package named thunder as well",
        "pip uninstall lightning-thunder, then pip install --force-reinstall --no-deps thunder-core",
    )


def _has_torch(torch: Any) -> CheckResult:
    if isinstance(torch, BaseException):
        return CheckResult(
            False, f"importing it raises {type(torch).__name__}: {torch}", "pip install --force-reinstall torch"
        )
    from thunder.command_line.pytorch_versions import how_tested

    return CheckResult(True, f"version {torch.__version__}, {how_tested(torch.__version__)}")


def _has_private_names() -> CheckResult:
    from thunder_core.pytorch_internals import NAMES

    return private_names_result(NAMES, except_below="torch.testing")  # only the suites for executors import it


def _sees_gpu(torch: Any) -> CheckResult:
    count, installed = torch.cuda.device_count(), driver()
    if count:
        return CheckResult(True, f"PyTorch sees {count}")
    if installed is None:
        return CheckResult(True, "none on this machine")
    built = torch.version.cuda
    advice = (
        "install a PyTorch built for CUDA, see https://pytorch.org/get-started/locally"
        if built is None
        else f"update the driver to one for CUDA {built}, and see whether CUDA_VISIBLE_DEVICES hides the GPU"
    )
    return CheckResult(False, f"NVIDIA driver {installed} is installed, but PyTorch sees no GPU", advice)


def _compiles(torch: Any, device: str) -> CheckResult:
    import thunder

    def program(x: Any) -> Any:
        return torch.nn.functional.gelu(x).sum()

    x = torch.linspace(-3, 3, 64, device=device, requires_grad=True)
    (expected,) = torch.autograd.grad(program(x), x)
    (found,) = torch.autograd.grad(thunder.jit(program, executors=[])(x), x)
    difference = (found - expected).abs().max().item()
    if difference > 1e-5:
        return CheckResult(False, f"a gradient differs by {difference:.1e} from PyTorch's", "report this as a bug")
    return CheckResult(True, "a small program gives the same gradient as PyTorch")
