"""The requests that one process sends to another one to compile regions."""

from __future__ import annotations

import io
import pickle
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from thunder_core.executors.artifacts import software
from thunder_core.ir.trace import Trace
from thunder_core.pytorch_internals import OpOverload, OpOverloadPacket, overload_name, qualified_op_name
from thunder_core.runtime.own_state import kernel_settings

if TYPE_CHECKING:
    from thunder_fusion.executor import FusionExecutor


def flags() -> tuple[Hashable, ...]:
    """PyTorch's settings on which compiled code may depend."""
    return (torch.get_default_dtype(), *kernel_settings())


@dataclass(frozen=True)
class Request:
    """Regions to compile.

    Attributes:
        executor: compiles them.
        regions: distinct ones, without varying sizes.
        key: `key_of` the executor where the request was made. The code is that of a process with an equal key.
        flags: PyTorch's settings there.
        threads: the number of threads for which CPU kernels are compiled.
    """

    executor: FusionExecutor
    regions: tuple[Trace, ...]
    key: str
    flags: tuple[Any, ...]
    threads: int

    @staticmethod
    def of(executor: FusionExecutor, regions: Sequence[Trace]) -> Request:
        """The request of this process."""
        return Request(executor, tuple(regions), key_of(executor), flags(), torch.get_num_threads())

    def encoded(self) -> bytes | None:
        """The request as bytes; None if another process cannot read it."""
        buffer = io.BytesIO()
        try:
            _Pickler(buffer).dump(self)
        except (pickle.PicklingError, AttributeError, TypeError, RuntimeError):  # a local function, an extension's type
            return None
        return buffer.getvalue()

    def answers(self) -> list[bytes | str]:
        """For each region its artifact, or the reason why there is none. Sets PyTorch's settings in this process."""
        default_dtype, precision, deterministic, warn_only = self.flags
        torch.set_num_threads(self.threads)
        torch.set_default_dtype(default_dtype)
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        if key_of(self.executor) != self.key:
            return ["settings of the program are not those of another process"] * len(self.regions)
        calls = self.executor.compile_regions(self.regions).calls
        return [call if isinstance(call, str) else self._saved(call) for call in calls]

    def _saved(self, call: Any) -> bytes | str:
        artifact = self.executor.save(call)
        return "its code cannot be sent from one process to another" if artifact is None else artifact


def key_of(executor: FusionExecutor) -> str:
    """The versions, options and settings on which the code of an executor depends."""
    return f"{software()}; {executor.name} {executor.artifact_key()}"


class _Pickler(pickle.Pickler):
    """Writes operators as their names, and refuses what only the main program defines, which workers do not run."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, OpOverload):
            return getattr, (value.overloadpacket, overload_name(value))
        if isinstance(value, OpOverloadPacket):
            return _operator, tuple(qualified_op_name(value).split("::"))
        if getattr(value, "__module__", None) == "__main__" and isinstance(value, type | type(_operator)):
            raise pickle.PicklingError(f"{value} is defined by the main program")
        return NotImplemented


def _operator(namespace: str, name: str) -> Any:
    return getattr(getattr(torch.ops, namespace), name)
