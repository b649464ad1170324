"""A stand-in for the library's Python module ``cudnn``, on a CPU: what this plugin calls of it, and no more.

A graph records its operations. ``execute`` reads and writes memory at the addresses, sizes and strides that it was
given, so that a wrong number, layout or lifetime shows in results. Where the real library raises, this one does:
strides of attention whose last is not 1, strides of other strides than 16 bytes, bool biases, unset sizes.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F

from thunder_plugin_cudnn import handles, library, plans
from thunder_plugin_cudnn.library import Hardware

__version__ = "1.32.0"
data_type = Enum("data_type", ["HALF", "BFLOAT16", "FLOAT", "INT64", "BOOLEAN", "NOT_SET"])
norm_forward_phase = Enum("norm_forward_phase", ["INFERENCE", "TRAINING"])
heur_mode = Enum("heur_mode", ["A", "FALLBACK"])
DTYPES = {
    data_type.HALF: torch.float16,
    data_type.BFLOAT16: torch.bfloat16,
    data_type.FLOAT: torch.float32,
    data_type.INT64: torch.int64,
    data_type.BOOLEAN: torch.bool,
}
H200 = Hardware((9, 0), 91900)


class cudnnGraphNotSupportedError(RuntimeError):
    """As the library's."""


@contextlib.contextmanager
def installed(hardware: Hardware | None = H200) -> Iterator[None]:
    """Put this module in the library's place, on a machine with this hardware."""
    with (
        mock.patch.object(library, "frontend", return_value=sys.modules[__name__]),
        mock.patch.object(library, "hardware", return_value=hardware),
        mock.patch.dict(plans._PLANS, clear=True),
        mock.patch.dict(handles.IDLE, clear=True),
    ):
        yield


def backend_version() -> int:
    return H200.version


def create_handle() -> object:
    return object()


def set_stream(handle: object, stream: int) -> None:
    raise AssertionError("a CPU has no streams")


@dataclass(eq=False)
class tensor:
    """A tensor of a graph, with the setters of the library's."""

    dim: list[int] | None = None
    stride: list[int] | None = None
    data_type: Any = None
    is_virtual: bool = True
    is_pass_by_value: bool = False
    uid: int | None = None

    def set_uid(self, uid: int) -> tensor:
        self.uid = uid
        return self

    def set_output(self, value: bool) -> tensor:
        self.is_virtual = not value
        return self

    def set_dim(self, dim: list[int]) -> tensor:
        assert type(dim) is list
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> tensor:
        assert type(stride) is list
        self.stride = stride
        return self

    def set_data_type(self, value: Any) -> tensor:
        self.data_type = value
        return self


class pygraph:
    """A graph of one operation."""

    def __init__(
        self,
        name: str = "graph",
        io_data_type: Any = None,
        intermediate_data_type: Any = None,
        compute_data_type: Any = None,
        handle: Any = None,
    ) -> None:
        assert handle is not None
        assert intermediate_data_type is compute_data_type is data_type.FLOAT
        self.tensors: list[tensor] = []
        self.compute: Callable[[Mapping[int, torch.Tensor]], None] | None = None
        self.steps: list[str] = []

    def tensor(
        self, dim: list[int], stride: list[int], data_type: Any, is_pass_by_value: bool = False, name: str = ""
    ) -> tensor:
        assert len(dim) == len(stride) == 4
        made = tensor(list(dim), list(stride), data_type, is_virtual=False, is_pass_by_value=is_pass_by_value)
        self.tensors.append(made)
        return made

    def validate(self) -> None:
        for each in self.tensors:
            assert each.uid is not None or each.is_virtual
            if not each.is_virtual and (each.dim is None or each.stride is None or each.data_type is None):
                raise cudnnGraphNotSupportedError("a size is not set")
        numbers = [each.uid for each in self.tensors if each.uid is not None]
        assert len(set(numbers)) == len(numbers)
        self.steps.append("validate")

    def build_operation_graph(self) -> None:
        self.steps.append("build_operation_graph")

    def create_execution_plans(self, modes: list[Any]) -> None:
        assert modes == [heur_mode.A, heur_mode.FALLBACK]
        self.steps.append("create_execution_plans")

    def check_support(self) -> None:
        self.steps.append("check_support")

    def build_plans(self) -> None:
        assert self.steps == ["validate", "build_operation_graph", "create_execution_plans", "check_support"]

    def get_workspace_size(self) -> int:
        """As of real graphs: some need one."""
        return 64 * len(self.tensors) if len(self.tensors) % 2 else 0

    def execute(self, tensor_dict: Any, workspace: Any = None, handle: Any = None, tensor_uids: Any = None) -> None:
        """With ``tensor_uids``, tensors in their order; else addresses by number, as older libraries want them."""
        if tensor_uids is not None:
            assert type(tensor_dict) is type(tensor_uids) is tuple
            assert len(tensor_dict) == len(tensor_uids)
            tensor_dict = {number: each.data_ptr() for number, each in zip(tensor_uids, tensor_dict)}
            workspace = 0 if workspace is None else workspace.data_ptr()
        self._execute(tensor_dict, workspace, handle)

    def _execute(self, pack: Mapping[int, int], workspace: int, handle: Any) -> None:
        assert handle is not None
        assert bool(workspace) == bool(self.get_workspace_size())
        found = {each.uid: each for each in self.tensors if not each.is_virtual}
        assert {type(number) for number in pack} == {int}
        assert set(pack) == set(found), (set(pack), set(found))
        assert self.compute is not None
        self.compute({number: _memory(each, pack[number]) for number, each in found.items()})

    def _outputs(self, count: int) -> list[tensor]:
        made = [tensor() for _ in range(count)]
        self.tensors += made
        return made

    def sdpa(
        self,
        q: tensor,
        k: tensor,
        v: tensor,
        attn_scale: float,
        generate_stats: bool,
        bias: tensor | None = None,
        diagonal_band_right_bound: int | None = None,
        dropout: tuple[float, tensor, tensor] | None = None,
        name: str = "",
    ) -> list[tensor | None]:
        _check_attention(q, k, v, bias)
        o, stats = self._outputs(2)

        def compute(memory: Mapping[int, torch.Tensor]) -> None:
            call = [memory[each.uid].float() for each in (q, k, v)]
            added = None if bias is None else memory[bias.uid].float()
            keep = _kept(dropout, memory, call[0], call[1])
            output, rows = _attention(*call, added, attn_scale, diagonal_band_right_bound, keep)
            memory[o.uid].copy_(output)
            if generate_stats:
                memory[stats.uid].copy_(rows)

        self.compute = compute
        return [o, stats if generate_stats else None]

    def sdpa_backward(
        self,
        q: tensor,
        k: tensor,
        v: tensor,
        o: tensor,
        dO: tensor,
        stats: tensor,
        attn_scale: float,
        bias: tensor | None = None,
        dBias: tensor | None = None,
        diagonal_band_right_bound: int | None = None,
        dropout: tuple[float, tensor, tensor] | None = None,
        use_deterministic_algorithm: bool = False,
        name: str = "",
    ) -> list[tensor]:
        _check_attention(q, k, v, bias)
        _check_strides(o, dO)
        outputs = self._outputs(3)

        def compute(memory: Mapping[int, torch.Tensor]) -> None:
            given = [memory[each.uid].float() for each in (q, k, v)]
            added = None if bias is None else memory[bias.uid].float()
            leaves = [each.detach().requires_grad_() for each in (*given, *([] if dBias is None else [added]))]
            with torch.enable_grad():
                keep = _kept(dropout, memory, given[0], given[1])
                bias_leaf = added if dBias is None else leaves[3]
                output, rows = _attention(*leaves[:3], bias_leaf, attn_scale, diagonal_band_right_bound, keep)
            torch.testing.assert_close(rows, memory[stats.uid])
            torch.testing.assert_close(output, memory[o.uid].float(), rtol=2e-2, atol=2e-2)
            found = torch.autograd.grad(output, leaves, memory[dO.uid].float())
            for target, gradient in zip([*outputs, *([] if dBias is None else [dBias])], found, strict=True):
                memory[target.uid].copy_(gradient)

        self.compute = compute
        return outputs

    def layernorm(
        self, norm_forward_phase: Any, input: tensor, scale: tensor, bias: tensor, epsilon: tensor, name: str = ""
    ) -> list[tensor | None]:
        return self._norm(norm_forward_phase, input, scale, bias, epsilon, True)

    def rmsnorm(
        self,
        norm_forward_phase: Any,
        input: tensor,
        scale: tensor,
        bias: tensor | None,
        epsilon: tensor,
        name: str = "",
    ) -> list[tensor | None]:
        assert bias is None
        return self._norm(norm_forward_phase, input, scale, bias, epsilon, False)

    def _norm(
        self, phase: Any, x: tensor, scale: tensor, bias: tensor | None, epsilon: tensor, centred: bool
    ) -> list[Any]:
        assert epsilon.is_pass_by_value
        training = phase is norm_forward_phase.TRAINING
        y, *rest = self._outputs(1 + (1 + centred) * training)

        def compute(memory: Mapping[int, torch.Tensor]) -> None:
            value, eps = memory[x.uid].float(), memory[epsilon.uid].item()
            mean = value.mean(1, keepdim=True) if centred else torch.zeros(())
            inverse = ((value - mean).square().mean(1, keepdim=True) + eps).rsqrt()
            found = (value - mean) * inverse * memory[scale.uid].float()
            memory[y.uid].copy_(found if bias is None else found + memory[bias.uid].float())
            for target, row in zip(rest, (mean, inverse) if centred else (inverse,)):
                memory[target.uid].copy_(row)

        self.compute = compute
        return [y, *(rest or [None] * (1 + centred))]

    def layernorm_backward(
        self, grad: tensor, input: tensor, scale: tensor, mean: tensor, inv_variance: tensor, name: str = ""
    ) -> list[tensor]:
        return self._norm_backward(grad, input, scale, mean, inv_variance)

    def rmsnorm_backward(
        self, grad: tensor, input: tensor, scale: tensor, inv_variance: tensor, has_dbias: bool, name: str = ""
    ) -> list[tensor | None]:
        assert not has_dbias
        return [*self._norm_backward(grad, input, scale, None, inv_variance), None]

    def _norm_backward(
        self, grad: tensor, input: tensor, scale: tensor, mean: tensor | None, inv_variance: tensor
    ) -> list[tensor]:
        outputs = self._outputs(2 if mean is None else 3)

        def compute(memory: Mapping[int, torch.Tensor]) -> None:
            dy, inverse = memory[grad.uid].float(), memory[inv_variance.uid]
            n = (memory[input.uid].float() - (0 if mean is None else memory[mean.uid])) * inverse
            dn = dy * memory[scale.uid].float()
            dx = dn - n * (dn * n).mean(1, keepdim=True) - (0 if mean is None else dn.mean(1, keepdim=True))
            for target, value in zip(outputs, (dx * inverse, (dy * n).sum(0, keepdim=True), dy.sum(0, keepdim=True))):
                memory[target.uid].copy_(value)

        self.compute = compute
        return outputs


def _memory(each: tensor, address: int) -> torch.Tensor:
    assert each.dim is not None
    assert each.stride is not None
    dtype = DTYPES[each.data_type]
    extent = 1 + sum((size - 1) * step for size, step in zip(each.dim, each.stride))
    buffer = (ctypes.c_char * (extent * dtype.itemsize)).from_address(address)
    return torch.frombuffer(buffer, dtype=dtype, count=extent).as_strided(each.dim, each.stride)


def _check_attention(q: tensor, k: tensor, v: tensor, bias: tensor | None) -> None:
    _check_strides(q, k, v)
    if bias is not None and (bias.data_type is data_type.BOOLEAN or bias.stride[3] != 1):
        raise cudnnGraphNotSupportedError("Bias mask data type cannot be boolean")


def _check_strides(*tensors: tensor) -> None:
    for each in tensors:
        step = 16 // DTYPES[each.data_type].itemsize
        if each.stride[3] != 1 or any(found % step for size, found in zip(each.dim[:3], each.stride) if size > 1):
            raise cudnnGraphNotSupportedError("a stride")


def _kept(dropout: Any, memory: Mapping[int, torch.Tensor], q: torch.Tensor, k: torch.Tensor) -> torch.Tensor | None:
    """Which weights stay, and by what they grow: made of the seeds alone, so that backward sees the same."""
    if dropout is None:
        return None
    probability, seed, offset = dropout
    generator = torch.Generator().manual_seed(memory[seed.uid].item() + memory[offset.uid].item())
    shape = (*q.shape[:3], k.shape[2])
    return (torch.rand(shape, generator=generator) >= probability) / (1 - probability)


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    scale: float,
    right_bound: int | None,
    keep: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result and the logarithms of the sums of exponentials."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    products = q @ k.transpose(2, 3) * scale
    if bias is not None:
        products = products + bias
    if right_bound is not None:
        seen = torch.ones(products.shape[-2:], dtype=torch.bool).tril(right_bound)
        products = products.masked_fill(~seen, -torch.inf)
    weights = F.softmax(products, -1)
    return (weights if keep is None else weights * keep) @ v, products.logsumexp(-1, keepdim=True)
