"""Serialization of compiled regions.

Inductor's cache needs the graph of a region for a lookup, and all of Inductor to load it. An artifact is the module
that Inductor generated, with its kernels: libraries for a CPU, files of Triton's cache for a GPU. Loading executes the
module, which imports parts of Inductor on first use. So an artifact is code, and the folder of artifacts must be
private. All else in it is plain data.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import io
import pickle
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, ModuleType
from typing import Any, Final, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict

from thunder_core.private_folder import temporary_folder
from thunder_plugin_inductor.compiled_region import CompiledRegion
from thunder_plugin_inductor.cpp_batches import load_entry
from thunder_plugin_inductor.pytorch_internals import (
    ENTRY,
    PARTS_OF_LAUNCHERS,
    AsyncCompile,
    TritonBundle,
    TritonBundler,
    TritonKernelArtifact,
    TritonKernelArtifacts,
)


class _Kernel(NamedTuple):
    """A compiled Triton kernel: the files of its folder in Triton's cache."""

    name: str
    device: int
    files: dict[str, bytes]


class _Stored(BaseModel):
    """A compiled region.

    Attributes:
        source: the module that Inductor generated.
        libraries: its C++ kernels in the order in which the module compiles them: a shared library, which may contain
            several, and the name in it.
        kernels: its Triton kernels.
        launchers: Inductor's launchers of Triton kernels, of each bundle, pickled.
        constants: tensors in the namespace of the module, by `torch.save`.
        checked: as in `CompiledRegion`.
    """

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64"
    )

    source: str
    libraries: tuple[tuple[bytes, str], ...]
    kernels: tuple[_Kernel, ...]
    launchers: tuple[bytes, ...]
    constants: bytes
    checked: tuple[int, ...]


def artifact(compiled: Any, scope: dict[str, Any], checked: tuple[int, ...], bundles: Sequence[Any]) -> bytes | None:
    """The bytes of a graph that Inductor compiled; None if it has parts that are specific to this process."""
    if compiled.torchbind_constants or getattr(compiled, "opaque_value_type_classes", None) or not compiled.source_code:
        return None
    owners = [value.__self__ for value in scope.values() if isinstance(value, BuiltinFunctionType)]
    modules = [owner for owner in owners if isinstance(owner, ModuleType) and f".{ENTRY}" in owner.__name__]
    if compiled.source_code.count(".cpp_pybinding(") != len(modules) or any(not module.__file__ for module in modules):
        return None
    constants = dict(compiled.constants or {})
    if any(type(constant) is not torch.Tensor for constant in constants.values()):
        return None
    buffer = io.BytesIO()
    torch.save(constants, buffer)
    stored = _Stored(
        source=compiled.source_code,
        libraries=tuple([(Path(str(item.__file__)).read_bytes(), item.__name__.split(".")[-1]) for item in modules]),
        kernels=tuple([_kernel_files(kernel) for bundle in bundles for kernel in bundle.kernel_artifacts]),
        launchers=tuple([_launchers(bundle.static_autotuners) for bundle in bundles]),
        constants=buffer.getvalue(),
        checked=checked,
    )
    return stored.model_dump_json().encode()


def load(
    data: bytes, expected: Callable[..., Sequence[tuple[int, ...]]], written: tuple[int, ...] = ()
) -> CompiledRegion:
    """The region from its bytes; the other arguments are as in `CompiledRegion`. Raises for invalid bytes."""
    stored = _Stored.model_validate_json(data)
    constants = torch.load(io.BytesIO(stored.constants), weights_only=True)
    kernels = [_as_artifact(kernel) for kernel in stored.kernels]
    launchers = [launcher for pickled in stored.launchers for launcher in _read_launchers(pickled)]
    if kernels or launchers:
        TritonBundler.read_and_emit(TritonBundle(kernels, launchers))
    names = dict(constants)
    names["__builtins__"] = {**vars(builtins), "__import__": partial(_import, partial(_Loading, stored.libraries))}
    exec(compile(stored.source, "<region compiled by Inductor>", "exec", dont_inherit=True), names)
    names.update(constants)
    region = CompiledRegion(names["call"], stored.checked, expected, written)
    region.artifact = lambda: data
    region.code = stored.source
    return region


_PLAIN_NAME: Final = re.compile(r"\w[\w.-]*")


def _kernel_files(kernel: Any) -> _Kernel:
    return _Kernel(kernel.kernel_hash, kernel.device, {file.filename: file.payload for file in kernel.artifacts})


def _as_artifact(kernel: _Kernel) -> Any:
    """A kernel as Inductor writes it to Triton's cache. Raises ValueError for names of files outside of it."""
    for name in (kernel.name, *kernel.files):
        if not _PLAIN_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a file of a kernel")
    files = [TritonKernelArtifact(name, content) for name, content in kernel.files.items()]
    return TritonKernelArtifacts(kernel.name, kernel.device, files)


def _launchers(launchers: Sequence[Any]) -> bytes:
    """Launchers as bytes that `_read_launchers` accepts. If it refuses them, there are none: loading takes longer."""
    pickled = pickle.dumps([*launchers])
    try:
        _read_launchers(pickled)
    except pickle.UnpicklingError:
        return pickle.dumps([])
    return pickled


def _read_launchers(pickled: bytes) -> list[Any]:
    launchers = _LauncherReader(io.BytesIO(pickled)).load()
    if type(launchers) is not list:
        raise pickle.UnpicklingError("it is not a list of launchers")
    return launchers


class _LauncherReader(pickle.Unpickler):
    """Reads launchers of kernels, and their parts."""

    def find_class(self, module: str, name: str) -> Any:
        """A class of the table. Raises UnpicklingError for others, and for functions."""
        if (module, name) == ("builtins", "getattr"):
            return _binder
        if name not in PARTS_OF_LAUNCHERS.get(module, ()):
            raise pickle.UnpicklingError(f"{module}.{name} is not part of a launcher")
        return super().find_class(module, name)


def _binder(function: Any, name: str) -> Any:
    """The one bound method in a launcher: of Triton's function, which compiles for new types of arguments."""
    if name != "create_binder" or type(function).__module__ != "triton.runtime.jit":
        raise pickle.UnpicklingError(f"the attribute {name} is not part of a launcher")
    return function.create_binder


class _Loading(AsyncCompile):
    """Supplies the stored kernels where the module compiles them."""

    def __init__(self, libraries: Sequence[tuple[bytes, str]]) -> None:
        super().__init__()
        self.libraries = iter(libraries)

    def cpp_pybinding(self, argtypes: list[str], source_code: str) -> Any:
        """The kernel of the next library."""
        return _kernel(*next(self.libraries))

    @classmethod
    def use_process_pool(cls) -> bool:
        """The kernels exist, so a process pool is not needed."""
        return False


def _kernel(library: bytes, entry: str) -> Callable[..., Any]:
    """Load a kernel from a file, which is deleted afterwards."""
    key = hashlib.sha256(library).hexdigest()
    with temporary_folder() as folder:
        path = folder / f"{key}.so"
        path.write_bytes(library)
        module = load_entry(str(path), key, entry)
    kernel: Callable[..., Any] = getattr(module, entry)
    return kernel


def _import(compiler: Callable[[], AsyncCompile], name: str, *args: Any) -> Any:
    """The ``import`` of the module: parts of Inductor and Triton are imported on first use."""
    if name == "torch._inductor.async_compile":
        return _Names(AsyncCompile=compiler)
    inside = name.startswith("torch._inductor.") or name.split(".")[0] == "triton"
    return _Later(name) if inside and name not in sys.modules else builtins.__import__(name, *args)


class _Names:
    def __init__(self, **names: Any) -> None:
        self.__dict__.update(names)


class _Later:
    """A module, or an attribute of it, that is imported on first use."""

    def __init__(self, module: str, path: tuple[str, ...] = ()) -> None:
        self._module, self._path = module, path

    def _value(self) -> Any:
        value: Any = importlib.import_module(self._module)
        for name in self._path:
            value = getattr(value, name)
        return value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._value(), name) if self._path else _Later(self._module, (name,))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._value()(*args, **kwargs)
