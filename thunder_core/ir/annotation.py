"""Type annotations of proxies: ``f32[2, 16] cuda:0 strides[1, 2] offset 3 shares x grad``.

Defaults are left out: the CPU, contiguous strides, offset zero, a storage shared with no other value, no gradient.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from thunder_core.ir.proxy import NumberProxy, Proxy, TensorProxy
from thunder_core.ir.size import Size

SHORT_DTYPES = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8",
    torch.uint64: "u64", torch.uint32: "u32", torch.uint16: "u16", torch.uint8: "u8",
    torch.complex128: "c128", torch.complex64: "c64", torch.complex32: "c32", torch.bool: "bool",
}  # fmt: skip
_CPU = torch.device("cpu")


class Annotator:
    """Writes the annotations of one function; remembers the memories that it has seen, to name what shares them."""

    def __init__(self) -> None:
        self._owners: dict[int, str] = {}

    def storages(self) -> str:
        """The numbers of the memories in the order of their first tensors, ``0-3 7``; empty when they just count up."""
        numbers = list(self._owners)
        if numbers == list(range(len(numbers))):
            return ""
        runs: list[list[int]] = []
        for number in numbers:
            if runs and runs[-1][1] == number - 1:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)

    def annotate(self, proxy: Proxy) -> str:
        """The annotation of ``proxy``, whose definition comes after those annotated so far."""
        if isinstance(proxy, TensorProxy):
            return self._tensor(proxy)
        return proxy.python_type.__name__ if isinstance(proxy, NumberProxy) else f"object {proxy.type_name}"

    def _tensor(self, proxy: TensorProxy) -> str:
        if proxy.layout is torch.strided:
            text = geometry(proxy.shape, proxy.stride, proxy.dtype)
        else:
            text = f"{dtype_name(proxy.dtype)}[{_join(proxy.shape)}] {str(proxy.layout).removeprefix('torch.')}"
        if proxy.device != _CPU:
            text = text.replace("]", f"] {proxy.device}", 1)
        if type(proxy.offset) is not int or proxy.offset:
            text += f" offset {proxy.offset}"
        owner = self._owners.get(proxy.storage)
        if owner is not None:
            text += f" shares {owner}"
        else:
            self._owners[proxy.storage] = proxy.name
        return text + " grad" if proxy.requires_grad else text


def geometry(shape: tuple[Size, ...], stride: tuple[Size, ...], dtype: torch.dtype) -> str:
    """``f32[2, 3]``, and the strides unless they are plain numbers and contiguous."""
    text = f"{dtype_name(dtype)}[{_join(shape)}]"
    return text if stride == contiguous_stride(shape) else f"{text} strides[{_join(stride)}]"


def contiguous_stride(shape: tuple[Size, ...]) -> tuple[Size, ...]:
    """The strides that PyTorch gives a new tensor of this shape."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.append(step)
        if size != 0:
            step = step * size
    return tuple(reversed(strides))


def dtype_name(dtype: torch.dtype) -> str:
    """``f32``; the full name for rare types."""
    return SHORT_DTYPES.get(dtype) or str(dtype).removeprefix("torch.")


def _join(items: Iterable[Size]) -> str:
    return ", ".join([str(item) for item in items])
