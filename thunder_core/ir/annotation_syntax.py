"""Read the annotations that `thunder_core.ir.annotation` writes."""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass

import torch

from thunder_core.ir.annotation import SHORT_DTYPES, contiguous_stride
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.size import Size

_LONG_DTYPES = {short: dtype for dtype, short in SHORT_DTYPES.items()}
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
    """What is written about a tensor; ``shares`` names another one whose memory it shares."""

    shape: tuple[int, ...]
    stride: tuple[Size, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    offset: int
    shares: str | None
    layout: torch.layout


class Storages:
    """Hands out storage numbers.

    Args:
        numbers: those of new memories in order of appearance; after them, or without them, numbers count up.

    Attributes:
        by_owner: the numbers of the tensors so far, by name.
    """

    def __init__(self, numbers: tuple[int, ...] = ()) -> None:
        self.by_owner: dict[str, int] = {}
        self._numbers = iter(numbers)
        self._next = max(numbers, default=-1) + 1

    def number(self, name: str, known: int | None) -> int:
        """The number of the memory of the tensor ``name``; ``known`` when it shares one."""
        if known is None:
            known = next(self._numbers, self._next)
            self._next = max(self._next, known + 1)
        self.by_owner[name] = known
        return known


def read_storages(text: str) -> tuple[int, ...]:
    """The numbers in the header ``# memories: 0-3 7``. Raises ValueError."""
    numbers: list[int] = []
    for part in text.split():
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


def read_input(name: str, text: str, storages: Storages) -> Proxy:
    """The input ``name`` with the annotation ``text``. Raises ValueError when that is not understood."""
    if text.startswith("object "):
        return OpaqueProxy(name, text.removeprefix("object "))
    python_type = getattr(builtins, text, None)
    if isinstance(python_type, type):
        return NumberProxy(name, python_type)
    said = read_tensor_annotation(text)
    if said.shares is not None and said.shares not in storages.by_owner:
        raise ValueError(f"it shares the memory of {said.shares!r}, which is not defined before")
    number = storages.number(name, None if said.shares is None else storages.by_owner[said.shares])
    return TensorProxy(
        name, said.shape, said.stride, said.dtype, said.device, said.requires_grad, number, said.offset, said.layout
    )


def read_tensor_annotation(text: str) -> TensorAnnotation:
    """The parts of a tensor's annotation. Raises ValueError when the text is not one."""
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
    """The annotations in the comment behind a line with several outputs."""
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
