"""Inputs of a trace: the real tensors and other objects that the program uses, with their access paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import CellType
from typing import Any

import torch

from thunder_core.checks.source import ConstantSource, CreatedSource, Source
from thunder_core.errors import RunEagerly, SizeVariesError, UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol, written_storages
from thunder_core.ir.effects import Effects
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.location import at
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy, Proxy, TensorProxy, storages_of
from thunder_core.ir.size import are_constant
from thunder_core.ir.trace import with_bodies
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    FakeTensor,
    neg_view,
)
from thunder_core.recording.input_fakes import InputFakes
from thunder_core.symbols.captured import CAPTURE
from thunder_core.symbols.generators import NEW_GENERATOR
from thunder_core.tracing.fake_tensors import ObservingFakeMode, lazy_bits, storage_address
from thunder_core.tracing.frames import user_location
from thunder_frontend.observe.torch_generators import TorchGenerators
from thunder_frontend.record import subclasses
from thunder_frontend.record.created_objects import CreatedObjects
from thunder_frontend.record.input_sizes import InputSizes
from thunder_frontend.record.open_trace import OpenTrace
from thunder_frontend.record.traced_tensor import Variable, variable_of


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a trace.

    Attributes:
        source: its access path, or a constant.
        value: the real object in the recorded call, kept alive during acquisition (identity is by ``id``).
    """

    proxy: Proxy
    source: Any
    value: Any


class Inputs:
    """The inputs of a trace, in order.

    Args:
        source_of: returns the access path of an object; None for an object without one.
        closure_of: returns the path to the closure variable with a given cell, of a function that existed before.
        input_sizes: creates symbols for sizes of inputs that vary between calls; None where all sizes are constants.

    Attributes:
        reshaped: variables of real tensors whose shape or strides the program changed in place, by id.
        created_objects: the Python objects that the program creates and passes to ops.
    """

    def __init__(
        self,
        trace: OpenTrace,
        fake_mode: ObservingFakeMode,
        generators: TorchGenerators,
        source_of: Callable[[Any], Any],
        closure_of: Callable[[CellType], Any],
        input_sizes: InputSizes | None = None,
    ) -> None:
        self.input_sizes = input_sizes
        self._trace = trace
        self._fake_mode = fake_mode
        self._generators = generators
        self._source_of = source_of
        self.created_objects = CreatedObjects(source_of, closure_of)
        self._inputs: list[Input] = []
        self.reshaped: dict[int, Variable] = {}
        self._variables: dict[int, Variable] = {}
        self._opaque: dict[int, OpaqueProxy] = {}
        self._created: list[Any] = []
        self._returnable: set[int] = set()
        self._storages: dict[int, int] = {}
        self._fakes = InputFakes(fake_mode)
        self._originals: dict[int, TensorProxy] = {}
        self._unknown_origins: set[int] = set()

    def close(self) -> None:
        """Forget every object."""
        self._inputs.clear()
        self._created.clear()
        self._returnable.clear()
        self.created_objects.close()
        self._variables.clear()
        self._fakes.close()
        self._source_of = lambda _: None

    def __iter__(self) -> Iterator[Input]:
        return iter(self._inputs)

    @property
    def proxies(self) -> list[Proxy]:
        """The proxies of the inputs."""
        return [item.proxy for item in self._inputs]

    def lift(self, tensor: torch.Tensor) -> Variable:
        """The variable of a real tensor, which becomes an input at the first call."""
        variable = self._variables.get(id(tensor))
        if variable is None:
            variable = self._variables[id(tensor)] = self._lift(tensor)
        return variable

    def add(self, tensor: torch.Tensor, source: Source) -> Variable:
        """Add an input for a real tensor that is computed from the arguments before the program runs.

        Its sizes are constants.
        """
        with DisableTorchFunction():
            variable = self._variables[id(tensor)] = self._add(tensor, source, constant=False, varies=False)
            return variable

    def owns_size(self, size: Any) -> bool:
        """Whether a varying size belongs to this recording, not to an earlier one."""
        environment = size.node.shape_env
        return self.input_sizes is not None and environment is self.input_sizes.sizes.environment

    def has_path(self, value: Any) -> bool:
        """Whether a real tensor or another object has an access path."""
        with DisableTorchFunction():
            return self._source_of(value) is not None

    def find(self, tensor: torch.Tensor) -> Variable | None:
        """The variable of a real tensor that was lifted before."""
        return self._variables.get(id(tensor))

    def object_proxy(self, tensor: torch.Tensor) -> TensorProxy:
        """The input for a real tensor object, regardless of later writes by the program."""
        self.lift(tensor)
        return self._originals[id(tensor)]

    def reshaped_objects(self) -> list[tuple[TensorProxy, TensorProxy]]:
        """Each input whose shape or strides were changed in place, with its proxy at the end."""
        return [(self._originals[key], variable.proxy) for key, variable in self.reshaped.items()]

    def number(self, value: float, source: Source) -> NumberProxy:
        """A Python float that varies between calls, as an input."""
        proxy = NumberProxy(self._trace.names.for_input(source.describe()), float)
        self._inputs.append(Input(proxy, source, value))
        return proxy

    def constant(self, value: torch.Tensor) -> torch.Tensor:
        """A traced tensor for a computed constant: the program gets a copy of it in each run."""
        variable = self._add(value, ConstantSource(value), constant=True)
        self._variables[id(value)] = variable
        return value

    def object(self, value: Any) -> Any:
        """A literal for an importable function or class, else an opaque input."""
        if import_path(value) is not None:
            return value
        if isinstance(value, torch.Generator):
            value = self._generators.known(value) or value
        proxy = self._opaque.get(id(value))
        if proxy is None:
            source = self._source_of(value)
            if source is None and isinstance(value, torch.Generator) and self._generators.is_new(value):
                return self._make_generator(value)
            source = source or self.created_objects.source(value)
            captured = self.created_objects.captured(source)
            held = self.created_objects.object_of(source) if captured else value
            proxy = self._add_object(value, source, held)
            self._capture(proxy, captured)
            self._add_containers()
        if isinstance(value, torch.Generator):
            self._generators.drawn(value)
        return proxy

    def generator_before(self, generator: torch.Generator) -> torch.Generator:
        """A generator with the state that an input has before the program; a default generator itself."""
        return self._generators.before(generator)

    def is_of_unknown_origin(self, storage: int) -> bool:
        """Whether a storage belongs to a tensor without an access path that the recorder did not create."""
        return storage in self._unknown_origins

    def is_unrecorded(self, proxy: Proxy) -> bool:
        """Whether an input is a tensor of unknown origin, which is the same in every run."""
        return isinstance(proxy, TensorProxy) and proxy.storage in self._unknown_origins

    def is_constant_object(self, value: Any) -> bool:
        """Whether an opaque input is the same object in every run, as it has no access path."""
        return isinstance(self._source(self._opaque[id(value)]), ConstantSource)

    def created_proxy(self, value: Any) -> OpaqueProxy | None:
        """The input for an object that the program created and passed to an op; None for other objects."""
        proxy = self._opaque.get(id(value))
        return proxy if proxy is not None and isinstance(self._source(proxy), CreatedSource) else None

    def _source(self, proxy: OpaqueProxy) -> Any:
        """The source of an input; None for an object that an op creates."""
        return next((item.source for item in self._inputs if item.proxy is proxy), None)

    def bind(self, value: Any, proxy: OpaqueProxy, *, returnable: bool = False) -> None:
        """Bind an object that an op of the trace creates to its proxy.

        Args:
            returnable: the program may return or store the object, which is an output of the trace then.
        """
        self._opaque[id(value)] = proxy
        self._created.append(value)
        if returnable:
            self._returnable.add(id(value))

    def is_returnable(self, value: Any) -> bool:
        """Whether an op creates the object, and the program may return or store it."""
        return id(value) in self._returnable

    def objects_of_ops(self) -> dict[str, Any]:
        """The objects that ops of the trace create, by name."""
        return {self._opaque[id(value)].name: value for value in self._created}

    def _capture(self, proxy: OpaqueProxy, tensors: dict[int, torch.Tensor]) -> None:
        """Record an op that passes to a function the tensors of the program that it holds, by number."""
        if tensors:
            held = tuple([variable.proxy for variable in map(variable_of, tensors.values()) if variable is not None])
            self._trace.write(CAPTURE, (proxy, tuple(tensors), held), {}, effects=Effects(external=True))

    def _add_containers(self) -> None:
        """Add inputs for the containers that functions use, so that the program returns or stores the same ones."""
        for value, source in self.created_objects.containers:
            if id(value) not in self._opaque:
                self._add_object(value, source, value)

    def _add_object(self, value: Any, source: Source, held: Any) -> OpaqueProxy:
        """Add an input for an object; ``held`` is its value in this call."""
        name = self._trace.names.for_input(source.describe())
        proxy = self._opaque[id(value)] = OpaqueProxy(name, type(value).__qualname__)
        self._inputs.append(Input(proxy, source, held))
        return proxy

    def check_captured(self) -> None:
        """Check, after the program has run, that tensors which functions hold were not written since.

        Raises:
            RunEagerly: the program writes to such a tensor after it passed the function to an op.
        """
        captured: set[int] = set()
        for op in with_bodies(self._trace.ops):
            if not captured.isdisjoint(written_storages([op])):
                what = "a tensor that a hook, or another function of the program, holds"
                raise RunEagerly(f"{op.symbol.name} writes to {what}{at(op.location)}")
            if op.symbol is CAPTURE:
                captured |= {proxy.storage for proxy in op.args[2]}

    def _make_generator(self, generator: torch.Generator) -> OpaqueProxy:
        """Record that the program creates a generator, before it draws from it: each run creates another one.

        The op is outside of regions, even if the program is in one: ops after the region may use the generator.
        """
        proxy = OpaqueProxy(self._trace.names.intermediate(), type(generator).__qualname__)
        args = (str(generator.device), generator.initial_seed())
        effects = Effects(random=True, external=True)
        self._trace.outwards()[-1].append(BoundSymbol(NEW_GENERATOR, args, {}, proxy, effects, None, user_location()))
        self.bind(generator, proxy)
        self._generators.made(generator)
        self._generators.watch(generator, "a generator that the program creates")
        return proxy

    def _lift(self, tensor: torch.Tensor) -> Variable:
        with DisableTorchFunction():
            source = self._source_of(tensor)
            constant = source is None
            if constant and self._generators.tells_state(tensor):
                raise UnsupportedError(
                    "the program reads the state of a random generator by a call that is not recorded",
                    location=user_location(),
                    advice=("call torch.get_rng_state", "read the state outside of the compiled function"),
                )
            variable = self._add(tensor, source or ConstantSource(tensor), constant=constant)
            if constant:
                self._unknown_origins.add(variable.proxy.storage)
            return variable

    def _add(self, tensor: torch.Tensor, source: Any, *, constant: bool, varies: bool = True) -> Variable:
        _check_supported(tensor, source)
        subclasses.check_supported(tensor, "a tensor of the program" if constant else source.describe())
        dense = tensor.layout is torch.strided
        storage = self._storage(tensor)
        sizes = self.input_sizes if varies and not constant else None
        varying = None if sizes is None else sizes.geometry(tensor, source)
        shape, stride = varying or (tuple(tensor.shape), tensor.stride() if dense else ())
        proxy = TensorProxy(
            self._trace.names.for_input(source.describe()),
            shape,
            stride,
            tensor.dtype,
            tensor.device,
            tensor.requires_grad,
            storage,
            int(tensor.storage_offset()) if dense else 0,
            tensor.layout,
        )
        create = partial(self._fake, tensor, proxy, varies=varying is not None)
        bits = lazy_bits(tensor)
        variable = Variable(proxy, create_fake=create, constant=constant, bits=bits, location=user_location())
        if not dense:
            with self._fake_mode.observing():
                variable.fake = self._fake_mode.from_tensor(tensor)
        if constant:
            self._trace.storages.constant.add(storage)
        self._originals[id(tensor)] = proxy
        self._inputs.append(Input(proxy, source, tensor))
        return variable

    def _storage(self, tensor: torch.Tensor) -> int:
        """The number of a tensor's storage; a new one for a sparse tensor, which has none."""
        if tensor.layout is not torch.strided:
            return self._trace.storages.new(of_inference=tensor.is_inference())
        address = storage_address(tensor)
        storage = self._storages.get(address)
        if storage is None:
            storage = self._storages[address] = self._trace.storages.new(of_inference=tensor.is_inference())
        return storage

    def _fake(self, tensor: torch.Tensor, proxy: TensorProxy, *, varies: bool) -> FakeTensor:
        """The fake of a dense input with this proxy."""
        with DisableTorchFunction(), self._fake_mode.observing():
            fake = self._fakes.make(tensor, proxy, varies=varies)
            self._trace.storages.bind(fake, proxy.storage)
            if tensor.is_conj():
                fake = fake.conj()  # type: ignore[assignment]
            return neg_view(fake) if tensor.is_neg() else fake

    def check_sharing(self, ops: Sequence[BoundSymbol], output: Sequence[Proxy]) -> None:
        """Check inputs that share storage where sizes of one vary: their positions and overlap are unknown then.

        Raises:
            SizeVariesError: the program writes such a storage, or returns a part of it.
        """
        inputs: dict[int, list[TensorProxy]] = {}
        for proxy in self.proxies:
            if isinstance(proxy, TensorProxy):
                inputs.setdefault(proxy.storage, []).append(proxy)
        shared = {
            storage: proxies
            for storage, proxies in inputs.items()
            if len(proxies) > 1 and not all(are_constant((*proxy.shape, *proxy.stride)) for proxy in proxies)
        }
        if not shared:
            return
        returned = storages_of(output)
        for storage in (written_storages(ops) | returned) & shared.keys():
            one, other, *_ = shared[storage]
            use = "is returned" if storage in returned else "is written"
            raise SizeVariesError(f"{other.name} shares memory with {one.name}, and {use}")


def _check_supported(tensor: torch.Tensor, source: Any) -> None:
    if tensor.is_quantized or tensor.is_mkldnn:
        kind = "a quantized tensor" if tensor.is_quantized else "a tensor in the format of oneDNN"
        raise RunEagerly(f"{source.describe()} is {kind}, which cannot be traced{at(user_location())}")
    if tensor.is_nested:
        raise UnsupportedError(
            f"{source.describe()} is a nested tensor; only dense and sparse tensors can be traced",
            location=user_location(),
            advice=("convert it with .to_padded_tensor() before the compiled function",),
        )
