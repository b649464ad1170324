"""The constants of a program as part of its file: small tensors as literals, other objects as encoded text."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Mapping
from typing import Any

import torch

from thunder_core.errors import TraceError
from thunder_core.ir.literals import Speller

_LARGEST_LITERAL = 32
_LITERAL_DTYPES = frozenset({torch.bool, torch.int32, torch.int64, torch.float32, torch.float64, torch.bfloat16})

DECODER = '''\
def decode(text: str):
    """A constant from its text; like the rest of this file it is code, so load only files that you trust."""
    return torch.load(io.BytesIO(base64.b64decode(text)), weights_only=False)
'''
"""What a file defines that has encoded constants; it needs ``import base64``, ``import io``."""


def print_constants(constants: Mapping[str, Any], speller: Speller) -> list[str]:
    """The lines that define ``CONSTANTS``, a dict by input name. Raises TraceError for what cannot be encoded."""
    values = {name: _literal(value, speller) or _encoded(name, value) for name, value in constants.items()}
    lines = ["CONSTANTS = {"]
    for name, text in values.items():
        lines += f"    {name!r}: {text},".split("\n")
    lines.append("}")
    if any(text.startswith("decode(") for text in values.values()):
        speller.modules |= {"base64", "io"}
        lines = [*DECODER.splitlines(), "", "", *lines]
    return lines


def is_encodable(value: Any) -> bool:
    """Whether ``value`` can be part of a file."""
    try:
        _encode(value)
    except Exception:  # noqa: BLE001 - whatever pickling of the object raises
        return False
    return True


def _literal(value: Any, speller: Speller) -> str:
    """A small plain tensor as a call of ``torch.tensor``; empty for everything else."""
    plain = (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.dtype in _LITERAL_DTYPES
        and value.device.type == "cpu"
        and value.is_contiguous()
        and not value.requires_grad
        and 0 < value.numel() <= _LARGEST_LITERAL
    )
    return f"torch.tensor({speller.spell(value.tolist())}, dtype={value.dtype})" if plain else ""


def _encoded(name: str, value: Any) -> str:
    try:
        text = base64.b64encode(_encode(value)).decode()
    except Exception as error:
        raise TraceError(
            f"The constant {name!r}, a {type(value).__qualname__}, cannot be saved: {error}",
            advice=("define its class or function at the top level of a module, or make it an argument",),
        ) from error
    return 'decode("""\n' + "\n".join(textwrap.wrap(text, 116)) + '\n""")'


def _encode(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()
