"""Type annotations of proxies: ``f32[2, 16] cuda:0 strides[1, 2] offset 3 shares x grad``.

Defaults are left out: the CPU, contiguous strides, offset zero, a storage shared with no other value, no gradient.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from thunder_core.ir.proxy import NumberProxy, OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.size import Size

SHORT_DTYPES = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8",
    torch.uint64: "u64", torch.uint32: "u32", torch.uint16: "u16", torch.uint8: "u8",
    torch.complex128: "c128", torch.complex64: "c64", torch.complex32: "c32", torch.bool: "bool",
}  # fmt: skip
_CPU = torch.device("cpu")


class Annotator:
    """Writes the annotations of one function. It records each storage's first tensor, to print ``shares <name>``."""

    def __init__(self) -> None:
        self._owners: dict[int, str] = {}

    def storages(self) -> str:
        """The storage numbers in order of first appearance, ``0-3 7``; empty if they are just 0, 1, 2, ..."""
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
            text = f"{_dtype_name(proxy.dtype)}[{_join(proxy.shape)}] {str(proxy.layout).removeprefix('torch.')}"
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
    """``f32[2, 3]``, followed by the strides unless these are contiguous."""
    text = f"{_dtype_name(dtype)}[{_join(shape)}]"
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


def _dtype_name(dtype: torch.dtype) -> str:
    """``f32``; the full name for rare types."""
    return SHORT_DTYPES.get(dtype) or str(dtype).removeprefix("torch.")


def _join(items: Iterable[Size]) -> str:
    return ", ".join([str(item) for item in items])


_LONG_DTYPES = {short: dtype for dtype, short in SHORT_DTYPES.items()}
_NUMBER_TYPES: dict[str, type] = {kind.__name__: kind for kind in (bool, int, float, complex)}
_TENSOR = re.compile(
    r"(?P<dtype>\w+)\[(?P<shape>[^\]]*)\]"
    r"(?: (?P<device>(?!strides|offset|shares|grad|sparse)[a-z]+(?::\d+)?)(?![\w\[]))?"
    r"(?: (?P<layout>sparse_\w+))?"
    r"(?: strides\[(?P<stride>[^\]]*)\])?"
    r"(?: offset (?P<offset>\d+))?"
    r"(?: shares (?P<shares>\w+))?"
    r"(?P<grad> grad)?"
)


@dataclass(frozen=True, slots=True)
class TensorAnnotation:
    """A parsed tensor annotation; ``shares`` is the name of an earlier tensor with the same storage."""

    shape: tuple[int, ...]
    stride: tuple[Size, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    offset: int
    shares: str | None
    layout: torch.layout


class StorageNumbers:
    """Allocates storage numbers while a printed trace is read.

    Args:
        numbers: storage numbers in order of first appearance; after them, the numbers count up.

    Attributes:
        by_owner: the storage numbers of the tensors read so far, by tensor name.
    """

    def __init__(self, numbers: tuple[int, ...] = ()) -> None:
        self.by_owner: dict[str, int] = {}
        self._numbers = iter(numbers)
        self._next = max(numbers, default=-1) + 1

    def number(self, name: str, known: int | None) -> int:
        """The storage number of the tensor ``name``: ``known`` if it shares that storage, else a new one."""
        if known is None:
            known = next(self._numbers, self._next)
            self._next = max(self._next, known + 1)
        self.by_owner[name] = known
        return known


def read_storages(text: str) -> tuple[int, ...]:
    """The numbers in the header ``# storages: 0-3 7``. Raises ValueError."""
    numbers: list[int] = []
    for part in text.split():
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


def read_input(name: str, text: str, storages: StorageNumbers) -> Proxy:
    """The input ``name`` with the annotation ``text``. Raises ValueError if the text is not an annotation."""
    if text.startswith("object "):
        return OpaqueProxy(name, text.removeprefix("object "))
    if text in _NUMBER_TYPES:
        return NumberProxy(name, _NUMBER_TYPES[text])
    parsed = read_tensor_annotation(text)
    if parsed.shares is not None and parsed.shares not in storages.by_owner:
        raise ValueError(f"it shares the storage of {parsed.shares!r}, which is not defined before")
    number = storages.number(name, None if parsed.shares is None else storages.by_owner[parsed.shares])
    return TensorProxy(
        name,
        parsed.shape,
        parsed.stride,
        parsed.dtype,
        parsed.device,
        parsed.requires_grad,
        number,
        parsed.offset,
        parsed.layout,
    )


def read_tensor_annotation(text: str) -> TensorAnnotation:
    """The parts of a tensor's annotation. Raises ValueError if the text is not a tensor annotation."""
    match = _TENSOR.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an annotation like 'f32[2, 3] strides[1, 2] grad'")
    shape = _numbers(match["shape"])
    layout = getattr(torch, match["layout"] or "strided", None)
    if not isinstance(layout, torch.layout):
        raise ValueError(f"there is no layout {match['layout']!r}")
    return TensorAnnotation(
        shape,
        _stride(shape, match["stride"], layout),
        _dtype(match["dtype"]),
        _device(match["device"] or "cpu"),
        match["grad"] is not None,
        int(match["offset"] or 0),
        match["shares"],
        layout,
    )


def split_annotations(text: str) -> list[str]:
    """The annotations in the comment after an op with several outputs."""
    return [item.strip() for item in re.split(r",(?![^\[]*\])", text)]


def _dtype(name: str) -> torch.dtype:
    dtype = _LONG_DTYPES.get(name) or getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"there is no dtype {name!r}")
    return dtype


def _stride(shape: tuple[int, ...], text: str | None, layout: torch.layout) -> tuple[Size, ...]:
    if text is not None:
        return _numbers(text)
    return contiguous_stride(shape) if layout is torch.strided else ()


def _device(name: str) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def _numbers(text: str) -> tuple[int, ...]:
    items = [item.strip() for item in text.split(",") if item.strip()]
    symbolic = [item for item in items if not item.isdigit()]
    if symbolic:
        raise ValueError(f"symbolic sizes ({', '.join(symbolic)}) cannot be read back")
    return tuple(map(int, items))
