"""Serialization of compiled regions.

Inductor's cache needs the graph of a region for a lookup, and all of Inductor to load it. An artifact is the module
that Inductor generated, with its kernels: libraries for a CPU, Inductor's bundles for Triton. Loading executes the
module, which imports parts of Inductor on first use.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, ModuleType
from typing import Any

from thunder_plugin_inductor.compiled_region import CompiledRegion
from thunder_plugin_inductor.cpp_batches import load_entry
from thunder_plugin_inductor.pytorch_internals import ENTRY, AsyncCompile, TritonBundler


@dataclass(frozen=True, slots=True)
class _Stored:
    """A compiled region.

    Attributes:
        source: the module that Inductor generated.
        libraries: its C++ kernels in the order in which the module compiles them: a shared library, which may contain
            several, and the name in it.
        bundles: its Triton kernels.
        constants: tensors in the namespace of the module.
        checked: as in `CompiledRegion`.
    """

    source: str
    libraries: tuple[tuple[bytes, str], ...]
    bundles: tuple[Any, ...]
    constants: dict[str, Any]
    checked: tuple[int, ...]


def artifact(compiled: Any, scope: dict[str, Any], checked: tuple[int, ...], bundles: Sequence[Any]) -> bytes | None:
    """The bytes of a graph that Inductor compiled; None if it has parts that are specific to this process."""
    if compiled.torchbind_constants or getattr(compiled, "opaque_value_type_classes", None) or not compiled.source_code:
        return None
    owners = [value.__self__ for value in scope.values() if isinstance(value, BuiltinFunctionType)]
    modules = [owner for owner in owners if isinstance(owner, ModuleType) and f".{ENTRY}" in owner.__name__]
    if compiled.source_code.count(".cpp_pybinding(") != len(modules) or any(not module.__file__ for module in modules):
        return None
    code = tuple([(Path(str(module.__file__)).read_bytes(), module.__name__.split(".")[-1]) for module in modules])
    constants = dict(compiled.constants or {})
    return pickle.dumps(_Stored(compiled.source_code, code, tuple(bundles), constants, checked))


def load(
    data: bytes, expected: Callable[..., Sequence[tuple[int, ...]]], written: tuple[int, ...] = ()
) -> CompiledRegion:
    """The region from its bytes; the other arguments are as in `CompiledRegion`. Raises for invalid bytes."""
    stored = pickle.loads(data)
    if not isinstance(stored, _Stored):
        raise TypeError(f"the file holds {type(stored).__name__}")
    for bundle in stored.bundles:
        TritonBundler.read_and_emit(bundle)
    names = dict(stored.constants)
    names["__builtins__"] = {**vars(builtins), "__import__": partial(_import, partial(_Loading, stored.libraries))}
    exec(compile(stored.source, "<region compiled by Inductor>", "exec", dont_inherit=True), names)
    names.update(stored.constants)
    region = CompiledRegion(names["call"], stored.checked, expected, written)
    region.artifact = lambda: data
    return region


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
    handle, path = tempfile.mkstemp(suffix=".so")
    try:
        with open(handle, "wb") as file:
            file.write(library)
        module = load_entry(path, key, entry)
    finally:
        os.unlink(path)
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
