"""Read the annotations that `thunder_core.ir.annotation` writes."""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass

import torch

from thunder_core.ir.annotation import SHORT_DTYPES, contiguous_stride
from thunder_core.ir.proxy import Dimension, NumberProxy, OpaqueProxy, Proxy, TensorProxy

_LONG_DTYPES = {short: dtype for dtype, short in SHORT_DTYPES.items()}
_TENSOR = re.compile(
    r"(?P<dtype>\w+)\[(?P<shape>[^\]]*)\]"
    r"(?: (?P<device>(?!strides|offset|shares|storage|grad)[a-z]+(?::\d+)?)(?![\w\[]))?"
    r"(?: strides\[(?P<stride>[^\]]*)\])?"
    r"(?: offset (?P<offset>\d+))?"
    r"(?: shares (?P<shares>\w+))?"
    r"(?: storage (?P<storage>\d+))?"
    r"(?P<grad> grad)?"
)


@dataclass(frozen=True, slots=True)
class TensorAnnotation:
    """What is written about a tensor; ``shares`` and ``storage`` are None where nothing is said."""

    shape: tuple[int, ...]
    stride: tuple[Dimension, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    offset: int
    shares: str | None
    storage: int | None


class AnnotationReader:
    """Turns the annotations of one function's inputs, in order, into proxies."""

    def __init__(self) -> None:
        self.storages = Storages()

    def proxy(self, name: str, text: str) -> Proxy:
        """The input ``name``. Raises ValueError when the annotation is not understood."""
        if text.startswith("object "):
            return OpaqueProxy(name, text.removeprefix("object "))
        python_type = getattr(builtins, text, None)
        if isinstance(python_type, type):
            return NumberProxy(name, python_type)
        said = read_tensor_annotation(text)
        number = self.storages.number(name, said, None)
        return TensorProxy(
            name, said.shape, said.stride, said.dtype, said.device, said.requires_grad, number, said.offset
        )


class Storages:
    """Hands out storage numbers the way that `thunder_core.ir.annotation.Annotator` leaves them out.

    Attributes:
        by_owner: the numbers of the tensors so far, by name.
    """

    def __init__(self) -> None:
        self.by_owner: dict[str, int] = {}
        self._next = 0

    def number(self, name: str, said: TensorAnnotation | None, known: int | None) -> int:
        """The storage number of the tensor ``name``.

        Args:
            said: its annotation; followed for the number of a new storage, and for sharing when ``known`` is None.
            known: the number of the storage that it is known to share.
        """
        if known is None and said is not None and said.shares is not None:
            if said.shares not in self.by_owner:
                raise ValueError(f"it shares the memory of {said.shares!r}, which is not defined before")
            known = self.by_owner[said.shares]
        if known is None:
            fresh = said.storage if said is not None else None
            known = fresh if fresh is not None and fresh not in self.by_owner.values() else self._next
            self._next = known + 1
        self.by_owner[name] = known
        return known


def read_tensor_annotation(text: str) -> TensorAnnotation:
    """The parts of a tensor's annotation. Raises ValueError when the text is not one."""
    match = _TENSOR.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an annotation like 'f32[2, 3] strides[1, 2] grad'")
    shape = _numbers(match["shape"])
    return TensorAnnotation(
        shape,
        contiguous_stride(shape) if match["stride"] is None else _numbers(match["stride"]),
        _dtype(match["dtype"]),
        _device(match["device"] or "cpu"),
        match["grad"] is not None,
        int(match["offset"] or 0),
        match["shares"],
        int(match["storage"]) if match["storage"] else None,
    )


def split_annotations(text: str) -> list[str]:
    """The annotations in the comment behind a line with several outputs."""
    return [item.strip() for item in re.split(r",(?![^\[]*\])", text)]


def _dtype(name: str) -> torch.dtype:
    dtype = _LONG_DTYPES.get(name) or getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"there is no dtype {name!r}")
    return dtype


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
