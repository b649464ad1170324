"""Tensors on the meta device in modules, and their replacement in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch

from thunder_core.pytorch_internals import accumulation_hooks_of, backward_hooks_of, swap_tensor_impl


def tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters, buffers and other tensors that a module and its submodules hold, by dotted name.

    Other tensors are attributes, or items of attributes that are lists, tuples or dicts, without a graph: results of
    other tensors are computed again. A tensor with several names is listed under each of them.
    """
    return {
        f"{owner}.{name}" if owner else name: value
        for owner, part in module.named_modules(remove_duplicate=False)
        for name, value in own_tensors(part)
    }


def own_tensors(part: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that a module itself holds, with their names."""
    for table in (part._parameters, part._buffers):
        yield from ((name, value) for name, value in table.items() if value is not None)
    for name, value in vars(part).items():
        if name not in ("_parameters", "_buffers", "_modules"):
            yield from ((place, each) for place, each in _items(name, value) if each.grad_fn is None)


def _items(name: str, value: object) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, list | tuple):
        yield from ((f"{name}[{index}]", each) for index, each in enumerate(value) if isinstance(each, torch.Tensor))
    elif isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", each) for key, each in value.items() if isinstance(each, torch.Tensor))


def meta_tensors(modules: Iterable[torch.nn.Module]) -> list[tuple[str, torch.Tensor]]:
    """Those of the meta device, each once, with its first name in its module."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for module in modules:
        for name, value in tensors_of(module).items():
            if value.device.type == "meta":
                found.setdefault(id(value), (name, value))
    return list(found.values())


def exchange(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Exchange metadata, data and gradients of two tensors, which remain the objects that they are.

    Both keep their class, their attributes and their hooks, so whoever refers to ``tensor`` (another name in a module,
    an optimizer, a list) has what ``other`` was.
    """
    swap_tensor_impl(tensor, other)
    for each in (tensor, other):  # a hook runs for the content that it was registered for, until it is set again
        if hooks := backward_hooks_of(each):
            each._backward_hooks = hooks
        if hooks := accumulation_hooks_of(each):
            each._post_accumulate_grad_hooks = hooks


@contextmanager
def replaced(tensors: Mapping[int, tuple[torch.Tensor, torch.Tensor]]) -> Iterator[None]:
    """A context in which the first tensor of each pair has the content of the second."""
    done = []
    try:
        for pair in tensors.values():
            exchange(*pair)
            done.append(pair)
        yield
    finally:
        for pair in reversed(done):
            exchange(*pair)
