"""Checks after a program has run: objects that would outlive the recording, and effects that later calls would miss."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any, Final

import torch

from thunder_core.checks.arrays import is_buffer, shares_memory
from thunder_core.checks.check import Check
from thunder_core.checks.conditions import OTHER_MEMORY
from thunder_core.checks.source import CreatedSource
from thunder_core.errors import LeakedTensorError, RunEagerly, SizeVariesError, UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol, written_storages
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import OpaqueProxy, TensorProxy
from thunder_core.ir.trace import with_bodies
from thunder_core.ir.tree import map_leaves
from thunder_core.pytorch_internals import FakeTensor, storage_identity
from thunder_frontend.observe.observer import Observer
from thunder_frontend.observe.outside_code import outside_code
from thunder_frontend.observe.torch_generators import TorchGenerators
from thunder_frontend.record.attempt import CONSTANT_NUMBERS, RecordAgain
from thunder_frontend.record.prefix import real_calls
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.tensors import Tensors
from thunder_frontend.record.traced_number import TracedNumber
from thunder_frontend.record.traced_size import TracedSize
from thunder_frontend.record.traced_tensor import MOST_OBJECTS, is_traced, reachable, variable_of

_NUMBERS: Final = frozenset({TracedNumber, TracedSize, torch.SymInt, torch.SymFloat, torch.SymBool})
_PATIENCE: Final = 20
"""How often other threads get 10 ms to release frames of the program, which sampling profilers hold."""


def check_leaks(tensors: Tensors) -> None:
    """Check that no traced tensor or number is still referenced.

    Raises:
        LeakedTensorError: one is; the containers that hold it are cleaned before.
        RunEagerly: a class that the program defines holds it. Such a class is not created again for its results.
    """
    if not _referenced(tensors):
        return
    gc.collect()  # reference cycles of the user's program (frames, closures) are not leaks
    alive = _referenced(tensors)
    for _ in range(_PATIENCE if threading.active_count() > 1 else 0):
        if not alive:
            break
        alive = []
        time.sleep(0.01)
        alive = _referenced(tensors)
    if not alive:
        return
    kinds = [kind for item in alive for kind in _classes_holding(item)]
    if kinds:
        raise RunEagerly(
            f"the program defines the class {kinds[0].__qualname__}, which holds a tensor that it computes"
        )
    locations: list[SourceLocation | None] = []
    holders: list[str] = []
    while alive:
        item = alive.pop()
        variables = item.variables if type(item) is TracedNumber else (tensors.variable(item),)
        locations.append(variables[0].location if variables else None)
        holders.extend(_scrub(item, ignore=(alive, locals())))
    raise _leaked(", ".join(holders), locations[-1])


def _classes_holding(value: Any) -> list[type]:
    """The classes that have a value as an attribute."""
    namespaces = [holder for holder in gc.get_referrers(value) if type(holder) is dict and "__module__" in holder]
    return [kind for held in namespaces for kind in gc.get_referrers(held) if isinstance(kind, type)]


def _referenced(tensors: Tensors) -> list[Any]:
    """The traced tensors and numbers of the program that are still referenced."""
    return [*tensors.alive(), *[number for reference in tensors.numbers if (number := reference()) is not None]]


def _leaked(holder: str, location: SourceLocation | None) -> LeakedTensorError:
    return LeakedTensorError(
        f"a tensor or a number computed by the compiled function was stored outside of its results, in {holder}",
        location=location,
        advice=(
            "return it from the function, or store it in a variable, a container or an attribute of an object",
            "if it is for debugging, store tensor.shape or other plain values instead",
        ),
    )


def _scrub(tensor: Any, ignore: tuple[Any, ...]) -> list[str]:
    """Remove a traced tensor or number from the containers that hold it; returns a description of each."""
    described = []
    ignored = {id(item) for item in ignore}
    for holder in gc.get_referrers(tensor):
        if id(holder) in ignored:
            continue
        kind = type(holder)
        if kind is list:
            holder[:] = [item for item in holder if item is not tensor]
        elif kind is dict:
            for key in [key for key, item in holder.items() if item is tensor]:
                del holder[key]
        elif kind is set:
            holder.discard(tensor)
        elif kind.__name__ == "cell":
            holder.cell_contents = None
        elif kind.__name__ == "frame":
            continue
        described.append(f"a {kind.__name__}")
    return described or ["an object that the garbage collector does not track"]


def check_cached_functions(recorder: Recorder, observer: Observer) -> None:
    """Check the functions with ``functools.lru_cache`` that the program called.

    Results that depend on no tensor are guarded constants.

    Raises:
        RunEagerly: the cache would have to store a tensor that this call computed, or was called with tensors.
        RecordAgain, SizeVariesError: it would have to store a number that varies between calls, which is a constant in
            the next recording.
    """
    for function in observer.called_cached_functions():
        name = str(getattr(function, "__qualname__", function))
        # of results from before, writes are observed as of other objects
        stored = list(reachable(function, MOST_OBJECTS, known=observer.cached_before))
        if any(map(is_traced, stored)):
            function.cache_clear()
            raise RunEagerly(f"the functools.lru_cache of {name} stores a tensor that the program computes")
        if any(type(held) in _NUMBERS for held in stored):
            function.cache_clear()
            sizes = recorder.inputs.input_sizes
            if sizes is not None and sizes.floats.any:
                raise sizes.floats.constants(None)
            if recorder.has_traced_numbers:
                raise RecordAgain("a functools.lru_cache stores a number of the trace", guesses=CONSTANT_NUMBERS)
            raise SizeVariesError(f"the functools.lru_cache of {name} stores a number that varies")
        if any(_holds_tensor(key) for held in gc.get_referents(function) if type(held) is dict for key in held):
            raise RunEagerly(f"{name}, which has a functools.lru_cache, is called with tensors")


def _holds_tensor(key: Any) -> bool:
    parts = key if isinstance(key, tuple | list) else (key,)
    return any(isinstance(part, torch.Tensor) for part in parts)


def check_buffers(recorder: Recorder, observer: Observer) -> None:
    """Check that NumPy arrays and other buffers are unchanged, and that no op of the trace changes their memory.

    Raises:
        RunEagerly: the program writes to one by code that is not recorded, or to a tensor that shares its memory,
            or creates such a tensor by a call that is not recorded.
    """
    changed = observer.changed_buffers()
    if changed:
        raise RunEagerly(f"the program writes to {', '.join(changed)}, whose memory PyTorch does not own")
    inputs, buffers = recorder.inputs, observer.buffers()
    if not buffers and not any(is_buffer(item.value) for item in inputs):
        return
    written = written_storages(with_bodies(recorder.trace.ops))
    for item in inputs:
        is_written = isinstance(item.proxy, TensorProxy) and item.proxy.storage in written
        own = item.source.parts if isinstance(item.source, CreatedSource) else ()  # a tensor in the memory of its part
        for buffer, path in buffers if is_written or inputs.is_unrecorded(item.proxy) else ():
            if path in own:
                continue
            if shares_memory(buffer, item.value):
                use = "writes to" if is_written else "creates"
                raise RunEagerly(f"the program {use} a tensor that shares memory with {path.describe()}")
            if is_written:
                observer.add_guard(Check(path, OTHER_MEMORY, item.source))
    objects = {item.proxy.name: item.value for item in inputs}
    for op in recorder.trace.ops:
        if _writes_buffer(op, written, objects):
            raise RunEagerly(f"the program writes to the result of {op.symbol.name}, the memory of an array")


def _writes_buffer(op: BoundSymbol, written: frozenset[int], objects: dict[str, Any]) -> bool:
    """Whether the program writes to a tensor that an op creates in the memory of a buffer.

    Args:
        objects: the inputs of the trace, by name.
    """
    buffers = [objects.get(proxy.name) for proxy in op.inputs() if isinstance(proxy, OpaqueProxy)]
    buffers = [value for value in buffers if is_buffer(value)]
    results = [proxy for proxy in op.outputs() if isinstance(proxy, TensorProxy)]
    if not buffers or not any(proxy.storage in written for proxy in results):
        return False
    if any(isinstance(proxy, TensorProxy) for proxy in op.inputs()):
        return False  # the array is an index or an operand
    with real_calls():
        args, kwargs = map_leaves(
            lambda leaf: objects[leaf.name] if isinstance(leaf, OpaqueProxy) else leaf, (op.args, op.kwargs)
        )
        result = op.symbol.target(*args, **kwargs)
        return any(shares_memory(value, result) for value in buffers)


def check_kernels(recorder: Recorder, observer: Observer) -> None:
    """Check the operators whose kernels are functions of Python: these run with the compiled program only.

    Raises:
        RunEagerly: a kernel may change an object that the program reads, or read a tensor to which it writes.
    """
    if not recorder.kernels:
        return
    written = written_storages(with_bodies(recorder.trace.ops))
    inputs = [item for item in recorder.inputs if isinstance(item.proxy, TensorProxy) and item.proxy.storage in written]
    for symbol, functions in recorder.kernels.items():
        code, kernel = outside_code(functions), f"{symbol.name}, whose kernel is a function of Python,"
        changed = observer.read_changed_by(code)
        if changed is not None:
            raise RunEagerly(f"{kernel} may change {changed.describe()}, which the program reads")
        storages = {storage_identity(tensor.untyped_storage()) for tensor in code.tensors() if _is_plain(tensor)}
        for item in inputs:
            if _is_plain(item.value) and storage_identity(item.value.untyped_storage()) in storages:
                raise RunEagerly(f"{kernel} may read {item.source.describe()}, to which the program writes")


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is real and has a storage."""
    return variable_of(tensor) is None and tensor.layout is torch.strided and type(tensor) is not FakeTensor


def check_generators(generators: TorchGenerators) -> None:
    """Refuse changes of a generator by calls that are not recorded."""
    moved = generators.moved()
    if moved:
        raise UnsupportedError(
            f"the program changes the state of {', '.join(moved)}, or reads its seed, by a call that is not recorded: "
            "it would run once, at compile time",
            advice=(
                "call torch.manual_seed and torch.set_rng_state for the default generator",
                "seed other generators outside of the compiled function",
            ),
        )


def check_outliving_generators(generators: TorchGenerators) -> None:
    """Refuse generators that outlive the recording which created them: each call of the program creates new ones."""
    if generators.outliving():
        raise UnsupportedError(
            "the program seeds or uses a random generator without an access path, or stores one that it creates where "
            "no access path leads to it",
            advice=(
                "pass the generator as an argument, or hold it in an attribute or a variable that the program reads",
            ),
        )


def check_arrays(recorder: Recorder) -> None:
    """Refuse writes to storages of tensors that the program has converted to NumPy arrays before.

    Raises:
        UnsupportedError: the write would not change the array that the program holds.
    """
    for storage, position in recorder.prefix.shared.items():
        for op in recorder.trace.ops[position:]:
            if storage in written_storages([op]):
                raise UnsupportedError(
                    f"{op.symbol.name} writes to a tensor whose storage a NumPy array shares",
                    location=op.location,
                    advice=("copy it before: tensor.clone().numpy()",),
                )
