"""The claims: one for each kernel of the configuration."""

import pkgutil
from pathlib import Path
from typing import Any

import kernels
import torch

from thunder_core.errors import ExecutorError
from thunder_core.executors import Claim, OperatorExecutor
from thunder_core.ir.proxy import TensorProxy
from thunder_hub_kernels import Kernel, Options


def executor(options: Options) -> OperatorExecutor:
    """The executor. Kernels that are in the cache of the Hub are loaded, which runs their code.

    Raises:
        ExecutorError: an operation, a function or the lock file does not exist, or a kernel is not in the lock file, or
            of a publisher that the Hub does not list as trusted.
    """
    return OperatorExecutor("hub_kernels", tuple(claim(options, kernel) for kernel in options.kernels))


def claim(options: Options, kernel: Kernel) -> Claim:
    """The claim of a kernel. One that is not in the cache declines all calls."""
    try:
        operation = pkgutil.resolve_name(kernel.operation)
    except (ImportError, AttributeError, ValueError) as error:
        raise ExecutorError(f"hub_kernels: there is no operation {kernel.operation}: {error}") from error
    function, absent = load(options, kernel)

    def check(*args: Any, **kwargs: Any) -> bool | str:
        tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, TensorProxy)]
        return absent or unfit(kernel, tensors) or True

    def run(*args: Any, **kwargs: Any) -> Any:
        if not kernel.out:
            return function(*args, **kwargs)
        result = torch.empty_like(args[0])
        function(result, *args, **kwargs)
        return result

    return Claim(operation, run, check, variant=f"{kernel.repository}:{kernel.function}")


def load(options: Options, kernel: Kernel) -> tuple[Any, str]:
    """The function of a kernel, or the reason why it is not there."""
    get = kernels.get_locked_kernel if options.download else kernels.load_kernel
    if not Path(options.lock).is_file():
        raise ExecutorError(
            f"hub_kernels: there is no lock file {options.lock}",
            advice=("write one: kernels lock FOLDER, with [tool.kernels.dependencies] in FOLDER/pyproject.toml",),
        )
    try:
        module = get(kernel.repository, lockfile=Path(options.lock))
    except FileNotFoundError:
        fetch = "set `download: true`, or run: kernels download FOLDER"
        return None, f"{kernel.repository} has no build for this system in the cache of the Hub; {fetch}"
    except (ValueError, RuntimeError, ImportError) as error:
        raise ExecutorError(f"hub_kernels: {kernel.repository} cannot be loaded: {error}") from error
    if not callable(getattr(module, kernel.function, None)):
        names = ", ".join(name for name in dir(module) if not name.startswith("_"))
        raise ExecutorError(f"hub_kernels: {kernel.repository} has no function {kernel.function}; it has {names}")
    return getattr(module, kernel.function), ""


def unfit(kernel: Kernel, tensors: list[TensorProxy]) -> str | None:
    """Why the kernel does not run on these tensors; None if it does."""
    for tensor in tensors:
        if tensor.device.type != kernel.device:
            return f"the kernel runs on {kernel.device}, and a tensor is on {tensor.device}"
        if str(tensor.dtype).removeprefix("torch.") not in kernel.dtypes:
            return f"{tensor.dtype} is not implemented"
        if tensor.layout is not torch.strided or not tensor.contiguous or 0 in tensor.shape:
            return "a tensor is not contiguous, or empty"
    if not tensors:
        return "no argument is a tensor"
    if kernel.device == "cuda":
        if not torch.cuda.is_available():
            return "there is no GPU"
        capability = torch.cuda.get_device_capability(tensors[0].device)
        if capability < kernel.capability:
            return f"compute capability {capability}, and {kernel.capability} is needed"
    return None
