"""Scripts that run a region."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_nvfuser.row import Kind
from thunder_plugin_nvfuser.writer import Written

_SCRIPT: Final = '''"""A region of a Thunder program: runs its definition on random inputs and prints the time."""

import torch
from nvfuser_direct import DataType, FusionDefinition


{source}

def tensor(shape, stride, dtype):
    size = 1 + sum((length - 1) * step for length, step in zip(shape, stride))
    if dtype.is_floating_point:
        memory = torch.randn(size, dtype=dtype, device="cuda")
    else:
        memory = torch.randint(0, {limit}, (size,), device="cuda").to(dtype)
    return memory.as_strided(shape, stride)


torch.manual_seed(0)
inputs = [
{inputs}]
with FusionDefinition() as fd:
    define(fd)
outputs = fd.execute(inputs, device="cuda:0")
for output in outputs:
    print(tuple(output.shape), output.stride(), output.dtype)

start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
start.record()
for _ in range({runs}):
    fd.execute(inputs, device="cuda:0")
end.record()
torch.cuda.synchronize()
print(f"{{start.elapsed_time(end) / {runs} * 1e3:.1f}} us")
'''
_RUNS: Final = 100


def script(written: Written) -> str:
    """The script. Index inputs are zeros, because other indices may be out of range."""
    inputs = "".join([f"    tensor({_metadata(proxy)}),\n" for proxy in written.inputs])
    limit = 1 if Kind.INDEXES in written.kinds else 2
    return _SCRIPT.format(source=written.source, inputs=inputs, limit=limit, runs=_RUNS)


def save(written: Written, folder: Path) -> Path:
    """Write the script to a folder, which is created if needed; equal regions share a file."""
    text = script(written)
    path = folder / f"region_{hashlib.sha256(text.encode()).hexdigest()[:12]}.py"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _metadata(proxy: TensorProxy) -> str:
    return f"{tuple(map(int, proxy.shape))}, {tuple(map(int, proxy.stride))}, {proxy.dtype}"
