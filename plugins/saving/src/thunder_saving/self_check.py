"""The script part of a saved program: prints its inputs, and runs it on random inputs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from thunder_core.errors import ThunderError
from thunder_core.ir.annotation import Annotator
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.size import as_constants
from thunder_core.ir.tree import iterate_leaves
from thunder_saving.files import load_trace


def main(path: str) -> None:
    """Load the program at ``path``, run it on random inputs of the annotated types and print the results.

    Exits with status 1 if the program cannot be read or fails.
    """
    try:
        program = load_trace(path, functions=_NamesOfScript())
    except ThunderError as error:
        sys.exit(str(error))
    annotator = Annotator()
    write = sys.stdout.write
    write(f"{program.trace.name} takes:\n")
    for proxy in program.trace.inputs:
        note = "  (stored in this file)" if proxy.name in program.constants else ""
        write(f"    {proxy.name}: {annotator.annotate(proxy)}{note}\n")
    missing = _cannot_be_made(program.inputs)
    if missing:
        write(f"Not tried: {missing}.\n")
        return
    result = program(*random_inputs(program.inputs))
    write("On random inputs it returns:\n")
    for leaf in iterate_leaves(result):
        write(f"    {describe(leaf)}\n")


class _NamesOfScript(Mapping[str, Any]):
    """What dotted names mean in the script that runs: it was executed, so it is trusted."""

    def __getitem__(self, name: str) -> Any:
        root, *parts = name.split(".")
        value = vars(sys.modules["__main__"])[root]
        for part in parts:
            try:
                value = getattr(value, part)
            except AttributeError as error:
                raise KeyError(name) from error
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(vars(sys.modules["__main__"]))

    def __len__(self) -> int:
        return len(vars(sys.modules["__main__"]))


def random_inputs(proxies: Sequence[Proxy]) -> list[object]:
    """Inputs with the metadata of ``proxies``: normally distributed floats, integers 0 and 1; shared storages are
    shared.
    """
    generator = torch.Generator().manual_seed(0)
    memories: dict[int, torch.Tensor] = {}
    return [
        _random_tensor(proxy, proxies, memories, generator) if isinstance(proxy, TensorProxy) else _plain(proxy)
        for proxy in proxies
    ]


def describe(leaf: object) -> str:
    """One line about a value: a tensor's type and the range of its values."""
    if not isinstance(leaf, torch.Tensor):
        return repr(leaf)
    shape = ", ".join(map(str, leaf.shape))
    text = f"{str(leaf.dtype).removeprefix('torch.')}[{shape}]"
    if leaf.numel() == 0 or leaf.is_complex() or leaf.dtype is torch.bool:
        return text
    values = leaf.detach().double()
    return f"{text}, values from {values.min().item():.4g} to {values.max().item():.4g}"


def _random_tensor(
    proxy: TensorProxy, proxies: Sequence[Proxy], memories: dict[int, torch.Tensor], generator: torch.Generator
) -> torch.Tensor:
    if proxy.storage not in memories:
        sharing = [item for item in proxies if isinstance(item, TensorProxy) and item.storage == proxy.storage]
        memories[proxy.storage] = _random_memory(sharing, generator)
    memory = memories[proxy.storage].view(proxy.dtype)
    tensor = memory.as_strided(*as_constants(proxy.geometry))
    return tensor.requires_grad_(proxy.requires_grad)


def _random_memory(sharing: Sequence[TensorProxy], generator: torch.Generator) -> torch.Tensor:
    """A flat tensor with enough elements for all of ``sharing``, with values for the dtype of the first."""
    dtype = sharing[0].dtype
    size = max(_extent(proxy) * proxy.dtype.itemsize for proxy in sharing)
    count = -(-size // 16) * 16 // dtype.itemsize  # a multiple of every element size
    if dtype.is_floating_point or dtype.is_complex:
        values = torch.randn(count, generator=generator)
    else:
        values = torch.randint(0, 2, (count,), generator=generator)
    return values.to(sharing[0].device, dtype)


def _extent(proxy: TensorProxy) -> int:
    if 0 in proxy.shape:
        return 1
    steps = zip(proxy.shape, proxy.stride, strict=True)
    return int(proxy.offset + sum((size - 1) * step for size, step in steps) + 1)


def _plain(proxy: NumberProxy | OpaqueProxy) -> object:
    return proxy.python_type(1) if isinstance(proxy, NumberProxy) else torch.Generator()


def _cannot_be_made(proxies: Sequence[Proxy]) -> str:
    """The reason why there are no random inputs; empty if there are."""
    for proxy in proxies:
        if isinstance(proxy, OpaqueProxy) and proxy.type_name != "Generator":
            return f"{proxy.name} is an object of type {proxy.type_name}"
        if isinstance(proxy, TensorProxy) and proxy.device.type == "cuda" and not torch.cuda.is_available():
            return f"{proxy.name} is on {proxy.device}, and there is no such device"
    return ""
