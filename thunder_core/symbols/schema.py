"""Effects of operators on their arguments, derived from their schemas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from thunder_core.pytorch_internals import CustomOpDef, OpOverload, OpOverloadPacket, overload_of, schema_of


@dataclass(frozen=True, slots=True)
class MutatedArgument:
    """An argument that an operator writes.

    Attributes:
        name: the keyword.
        position: its place among positional arguments; None if it is keyword-only.
    """

    name: str
    position: int | None


def schema_effects(func: Callable[..., Any]) -> tuple[MutatedArgument, ...] | None:
    """The arguments that an operator writes, in schema order; None if ``func`` has no schema.

    For a packet, those of all its overloads: an argument counts only if it is given. Custom operators of
    ``torch.library`` have schemas like all others.
    """
    overloads = overloads_of(func)
    return None if overloads is None else _mutated(overloads)


def schema_is_random(func: Callable[..., Any]) -> bool | None:
    """Whether an operator may consume random numbers; None if ``func`` has no schema.

    PyTorch's random operators have a tag. Custom operators may be random without it (`is_untagged`).
    """
    overloads = overloads_of(func)
    return None if overloads is None else _is_random(overloads)


def is_untagged(func: Callable[..., Any]) -> bool:
    """Whether only a run tells if an operator consumes random numbers.

    The tag is optional for custom operators, whose fake implementations draw no random numbers.
    """
    return any(
        torch.Tag.nondeterministic_seeded not in overload.tags
        and schema_of(overload).name.partition("::")[0] not in _TAGGED
        for overload in overloads_of(func) or ()
    )


COMMUNICATES = frozenset(
    {"c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "symm_mem", "_dtensor"}
)
"""Namespaces of operators that communicate with other processes, which must call them even if a result is unused."""
_OF_PYTORCH = frozenset({"aten", "prim", "prims", "profiler"})
# PyTorch's namespaces too: their random operators are tagged.
_TAGGED = _OF_PYTORCH | COMMUNICATES | {"_native", "_quantized", "inductor", "inductor_prims", "mkl", "mkldnn"}
_TAGGED |= {"mkldnn_prepacked", "onednn", "quantized", "rngprims", "sparse", "fsdp", "torch_attn", "torch_nn"}
# PyTorch's operators without results that are called for their effects; the others check or query metadata.
_ACTS = frozenset({"aten::_assert_async", "aten::_assert_scalar", "aten::_print"})


@cache
def schema_is_external(overload: OpOverload) -> bool:
    """Whether a call of an operator is visible outside of its tensors: it communicates, or there is no tensor that it
    could be for.
    """
    schema = schema_of(overload)
    namespace = schema.name.partition("::")[0]
    if namespace in _OF_PYTORCH:
        return schema.name in _ACTS
    for_tensors = schema.is_mutable or any("Tensor" in str(result.type) for result in schema.returns)
    return namespace in COMMUNICATES or not for_tensors


def communicates(func: Any) -> bool:
    """Whether ``func`` is an operator of PyTorch that communicates with other processes."""
    return isinstance(func, OpOverload | OpOverloadPacket) and _communicates(func)


@cache
def _communicates(operator: OpOverload | OpOverloadPacket) -> bool:
    overloads = overloads_of(operator) or ()
    return bool(overloads) and all(
        schema_of(overload).name.partition("::")[0] in COMMUNICATES for overload in overloads
    )


def written_values(
    effects: tuple[MutatedArgument, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """The values of the arguments that a call writes, without the absent ones."""
    values = []
    for item in effects:
        if item.name in kwargs:
            values.append(kwargs[item.name])
        elif item.position is not None and item.position < len(args):
            values.append(args[item.position])
    return tuple(value for value in values if value is not None)


def overloads_of(func: Any) -> tuple[OpOverload, ...] | None:
    """The overloads that a call of ``func`` may select; None if it is not an operator."""
    if isinstance(func, CustomOpDef):
        return (overload_of(func),)
    if isinstance(func, OpOverload):
        return (func,)
    if isinstance(func, OpOverloadPacket):
        return tuple(getattr(func, name) for name in func.overloads())
    return None


# A view that its schema calls a write.
_WRONGLY_ANNOTATED = frozenset({"prims::as_strided"})


@cache
def _mutated(overloads: tuple[OpOverload, ...]) -> tuple[MutatedArgument, ...]:
    arguments = [
        MutatedArgument(argument.name, None if argument.kwarg_only else position)
        for overload in overloads
        if schema_of(overload).name not in _WRONGLY_ANNOTATED
        for position, argument in enumerate(schema_of(overload).arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return tuple(dict.fromkeys(arguments))


@cache
def _is_random(overloads: tuple[OpOverload, ...]) -> bool:
    return any(torch.Tag.nondeterministic_seeded in overload.tags or is_untagged(overload) for overload in overloads)
