"""Real tensors and other objects that the program meets become inputs of its trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from types import CellType
from typing import Any

import torch

from thunder_core.acquire import subclasses
from thunder_core.acquire.created_objects import CreatedObjects
from thunder_core.acquire.input_sizes import InputSizes
from thunder_core.acquire.open_trace import OpenTrace
from thunder_core.acquire.traced_tensor import variable_of
from thunder_core.acquire.variable import Variable
from thunder_core.errors import SizeVariesError, UnsupportedError
from thunder_core.guards.shared_memory import base_of
from thunder_core.guards.source import ConstantSource, CreatedSource, Source
from thunder_core.guards.torch_generators import TorchGenerators
from thunder_core.guards.wrapper_gradients import GradientLayout
from thunder_core.ir.bound_symbol import BoundSymbol, tensors_written_by, written_storages
from thunder_core.ir.effects import Effects
from thunder_core.ir.literals import import_path
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.size import are_constant
from thunder_core.ir.trace import bodies_of
from thunder_core.pytorch_internals import (
    CreationMeta,
    DisableTorchFunction,
    FakeTensor,
    get_creation_meta,
    is_view,
    neg_view,
    set_creation_meta,
    tensor_identity,
    version_of,
)
from thunder_core.symbols.captured import CAPTURE
from thunder_core.symbols.generators import NEW_GENERATOR
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_alias, make_derived, make_fake, storage_address
from thunder_core.tracing.user_frames import user_location


class InputFakes:
    """Makes them. What is written to one of several views shows in the gradients of the others, so that a view has a
    fake of the tensor that it is a view of, also where the program never sees that one; and in memory that detached
    tensors share, each has a place of its own in autograd.

    Args:
        mode: what they belong to.
    """

    def __init__(self, mode: ObservingFakeMode) -> None:
        self._mode = mode
        self._of_storage: dict[int, FakeTensor] = {}
        self._of_base: dict[int, FakeTensor] = {}

    def close(self) -> None:
        """Forget them."""
        self._of_storage.clear()
        self._of_base.clear()

    def make(self, tensor: torch.Tensor, proxy: TensorProxy, *, varies: bool = False) -> FakeTensor:
        """The fake of a dense tensor, whose metadata is that of ``proxy``. Its memory has one number of its own.

        Args:
            varies: its sizes vary between calls. What else is in its memory is not known then.
        """
        base = base_of(tensor)
        if varies:
            make = make_fake if tensor.is_leaf else make_derived
            own = self._of_storage[storage_address(tensor)] = make(self._mode, proxy)
            self._of_base[tensor_identity(tensor)] = own
            return own if base is tensor else view_like(own, tensor, (own.shape, own.stride(), own.storage_offset()))  # type: ignore[return-value]
        fake = self._of_base.get(tensor_identity(base))
        if fake is None:
            seen = proxy if base is tensor else _metadata(base, proxy)
            fake = self._of_base[tensor_identity(base)] = self._make_base(base, seen)
        return fake if base is tensor else view_like(fake, tensor)  # type: ignore[return-value]

    def _make_base(self, base: torch.Tensor, proxy: TensorProxy) -> FakeTensor:
        address = storage_address(base)
        sibling = self._of_storage.get(address)
        if sibling is not None:
            return make_alias(sibling, proxy, leaf=base.is_leaf, derived=not base.is_leaf)
        size = base.untyped_storage().nbytes() // max(base.element_size(), 1)
        part = base.storage_offset() != 0 or size > base.numel()
        make = make_fake if base.is_leaf else make_derived
        fake = self._of_storage[address] = make(self._mode, proxy, storage_size=size if part else None)
        return fake


def _metadata(tensor: torch.Tensor, like: TensorProxy) -> TensorProxy:
    return replace(
        like,
        shape=tuple(tensor.shape),
        stride=tensor.stride(),
        offset=int(tensor.storage_offset()),
        requires_grad=tensor.requires_grad,
    )


def view_like(base: torch.Tensor, tensor: torch.Tensor, geometry: tuple[Any, Any, Any] | None = None) -> torch.Tensor:
    """A view of ``base`` as ``tensor`` is one of its base; autograd takes writes to it, or refuses them, likewise.

    Args:
        geometry: shape, strides and offset; by default those of ``tensor``.
    """
    creation = get_creation_meta(tensor)
    recorded = tensor.requires_grad and creation != CreationMeta.NO_GRAD_MODE
    with torch.inference_mode(False), torch.set_grad_enabled(recorded):
        view = base.as_strided(*(geometry or (tensor.shape, tensor.stride(), tensor.storage_offset())))
    if is_view(view):  # not below autograd, where calls arrive that escaped functorch
        set_creation_meta(view, creation)
    if version_of(base):
        torch.autograd.graph.increment_version(view)  # the program wrote the base when the view existed
    if tensor.requires_grad and not base.requires_grad:
        view.requires_grad_()
    return view


class Inputs:
    """The inputs of a trace in order, with where each comes from.

    Args:
        source_of: where the prologue finds an object; None for one that no path leads to.
        closure_of: the path to the variable of a function that existed before the program, by the variable's cell.
        input_sizes: gives inputs sizes that vary between calls; None where all sizes are constants.

    Attributes:
        proxies: the inputs.
        sources: access path of each, or a constant.
        reshaped: variables of real tensors whose shape or strides the program changed in place, by id.
        objects: the real object of each, kept alive during acquisition (identity is by ``id``).
        carriers: of inner tensors of wrapper subclasses that require grad, the values that have the gradients.
        made_objects: those of Python that the program makes and hands to lines.
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
        self.carriers: dict[Variable, TensorProxy] = {}
        self._layouts: dict[tuple[Any, ...], GradientLayout] = {}
        self._trace = trace
        self._fake_mode = fake_mode
        self._generators = generators
        self._source_of = source_of
        self.made_objects = CreatedObjects(source_of, closure_of)
        self.proxies: list[Proxy] = []
        self.sources: list[Any] = []
        self.objects: list[Any] = []
        self.reshaped: dict[int, Variable] = {}
        self._variables: dict[int, Variable] = {}
        self._opaque: dict[int, OpaqueProxy] = {}
        self._made: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._fakes = InputFakes(fake_mode)
        self._originals: dict[int, TensorProxy] = {}
        self._unknown: set[int] = set()

    def close(self) -> None:
        """Forget every object."""
        self.objects = []
        self.sources = []
        self._made.clear()
        self.made_objects.close()
        self._variables.clear()
        self.carriers.clear()
        self._layouts.clear()
        self._fakes.close()
        self._source_of = lambda _: None

    def gradient_layout(self, variables: tuple[Any, ...]) -> GradientLayout:
        """How the gradient of a wrapper with these inner tensors is taken apart, where it enters or leaves programs."""
        return self._layouts.setdefault(variables, GradientLayout())

    def lift(self, tensor: torch.Tensor) -> Variable:
        """The variable of a real tensor; the first time, an input is made for it."""
        variable = self._variables.get(id(tensor))
        if variable is None:
            variable = self._variables[id(tensor)] = self._make(tensor)
        return variable

    def add(self, tensor: torch.Tensor, source: Source) -> Variable:
        """Make an input for a real tensor that is computed from what the call is given, before the program runs."""
        with DisableTorchFunction():
            variable = self._variables[id(tensor)] = self._add(tensor, source, constant=False)
            return variable

    def is_own_size(self, size: Any) -> bool:
        """Whether a size that varies is one of this program, and not left over from another."""
        environment = size.node.shape_env
        return self.input_sizes is not None and environment is self.input_sizes.sizes.environment

    def is_found(self, tensor: torch.Tensor) -> bool:
        """Whether a path leads to a real tensor."""
        with DisableTorchFunction():
            return self._source_of(tensor) is not None

    def find(self, tensor: torch.Tensor) -> Variable | None:
        """The variable of a real tensor that was lifted before."""
        return self._variables.get(id(tensor))

    def object_proxy(self, tensor: torch.Tensor) -> TensorProxy:
        """The input that *is* a real tensor object, whatever the program wrote into it since."""
        self.lift(tensor)
        return self._originals[id(tensor)]

    def reshaped_objects(self) -> list[tuple[TensorProxy, TensorProxy]]:
        """For each input whose shape or strides were changed in place: the input, and what it shows at the end."""
        return [(self._originals[key], variable.proxy) for key, variable in self.reshaped.items()]

    def number(self, value: float, source: Source) -> NumberProxy:
        """A Python float that varies between calls, as an input."""
        proxy = NumberProxy(self._trace.names.for_input(source.describe()), float)
        self._append(proxy, source, value)
        return proxy

    def constant(self, value: torch.Tensor) -> torch.Tensor:
        """A computed constant as a traced tensor: the program gets a copy of it in each run."""
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
            source = source or self.made_objects.source(value)
            name = self._trace.names.for_input(source.describe())
            proxy = self._opaque[id(value)] = OpaqueProxy(name, type(value).__qualname__)
            captured = self.made_objects.captured(source)
            self._append(proxy, source, self.made_objects.object_of(source) if captured else value)
            self._capture(proxy, captured)
            self._hand_out_lists()
        if isinstance(value, torch.Generator):
            self._generators.drawn(value)
        return proxy

    def unknown(self, storage: int) -> bool:
        """Whether a memory is that of a tensor to which no path leads, and that the recorder did not make itself."""
        return storage in self._unknown

    def is_constant_object(self, value: Any) -> bool:
        """Whether an opaque input is the same object in every run, as no path leads to it."""
        proxy = self._opaque[id(value)]
        return proxy in self.proxies and isinstance(self.sources[self.proxies.index(proxy)], ConstantSource)

    def created_proxy(self, value: Any) -> OpaqueProxy | None:
        """The input that an object made by the program is, as it was handed to a line; None for other objects."""
        proxy = self._opaque.get(id(value))
        if proxy is None or proxy not in self.proxies:
            return None
        return proxy if isinstance(self.sources[self.proxies.index(proxy)], CreatedSource) else None

    def made(self, value: Any, proxy: OpaqueProxy) -> None:
        """Remember an object that a line of the trace makes."""
        self._opaque[id(value)] = proxy
        self._made.append(value)

    def objects_of_lines(self) -> dict[str, Any]:
        """The objects that lines of the trace make, by name."""
        return {self._opaque[id(value)].name: value for value in self._made}

    def _capture(self, proxy: OpaqueProxy, tensors: dict[int, torch.Tensor]) -> None:
        """Record that a function is given the tensors of the program that it holds, by number."""
        if tensors:
            held = tuple([variable.proxy for variable in map(variable_of, tensors.values()) if variable is not None])
            self._trace.write(CAPTURE, (proxy, tuple(tensors), held), {}, effects=Effects(external=True))

    def _hand_out_lists(self) -> None:
        """Make inputs of the lists that functions use, so that the program returns or stores the same ones."""
        for value, _, source in self.made_objects.lists:
            if id(value) not in self._opaque:
                name = self._trace.names.for_input(source.describe())
                proxy = self._opaque[id(value)] = OpaqueProxy(name, type(value).__qualname__)
                self._append(proxy, source, value)

    def check_captured(self) -> None:
        """To be called when the program has run: functions see the tensors that they hold as they are at the end.

        Raises:
            UnsupportedError: the program writes to one of these after it handed the function on.
        """
        captured: set[int] = set()
        for line in _with_bodies(self._trace.lines):
            if any(proxy.storage in captured for proxy in tensors_written_by(line)):
                raise UnsupportedError(
                    f"{line.symbol.name} writes to a tensor that a hook, or another function of the program, holds",
                    location=line.location,
                    advice=("give the function a copy: tensor.clone()", "write before the hook is set"),
                )
            if line.symbol is CAPTURE:
                captured |= {proxy.storage for proxy in line.args[2]}

    def _make_generator(self, generator: torch.Generator) -> OpaqueProxy:
        """Record that the program makes a generator, which it has drawn nothing from yet: each run makes its own.

        The line is the program's own, also in a region: what follows a region may use the generator as well.
        """
        proxy = OpaqueProxy(self._trace.names.intermediate(), type(generator).__qualname__)
        args = (str(generator.device), generator.initial_seed())
        effects = Effects(random=True, external=True)
        self._trace.outwards()[-1].append(BoundSymbol(NEW_GENERATOR, args, {}, proxy, effects, None, user_location()))
        self.made(generator, proxy)
        self._generators.made(generator)
        self._generators.watch(generator, "a generator that the program makes")
        return proxy

    def _make(self, tensor: torch.Tensor) -> Variable:
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
                self._unknown.add(variable.proxy.storage)
            return variable

    def _add(self, tensor: torch.Tensor, source: Any, *, constant: bool) -> Variable:
        _check_supported(tensor, source)
        subclasses.check_supported(tensor, "a tensor of the program" if constant else source.describe())
        if tensor.layout is not torch.strided:
            return self._add_sparse(tensor, source, constant)
        address = storage_address(tensor)
        storage = self._numbers.get(address)
        if storage is None:
            storage = self._numbers[address] = self._trace.storages.new()
        varying = None if constant or self.input_sizes is None else self.input_sizes.geometry(tensor, source)
        shape, stride = varying or (tuple(tensor.shape), tensor.stride())
        proxy = TensorProxy(
            self._trace.names.for_input(source.describe()),
            shape,
            stride,
            tensor.dtype,
            tensor.device,
            tensor.requires_grad,
            storage,
            int(tensor.storage_offset()),
        )
        variable = Variable(proxy, constant=constant, location=user_location())
        with self._fake_mode.observing():
            variable.fake = self._fakes.make(tensor, proxy, varies=varying is not None)
            self._trace.storages.bind(variable.fake, storage)
            if tensor.is_conj():
                variable.fake = variable.fake.conj()  # type: ignore[assignment]
            if tensor.is_neg():
                variable.fake = neg_view(variable.fake)
        if constant:
            self._trace.storages.constant.add(storage)
        self._originals[id(tensor)] = proxy
        self._append(proxy, source, tensor)
        return variable

    def check_sharing(self, lines: Sequence[BoundSymbol], output: Sequence[Proxy]) -> None:
        """Where inputs share memory and sizes of one vary, it is known neither where each of them begins nor whether
        they overlap.

        Raises:
            SizeVariesError: the program writes such a memory, or returns a part of it.
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
        returned = {proxy.storage for proxy in output if isinstance(proxy, TensorProxy)}
        for storage in (written_storages(lines) | returned) & shared.keys():
            one, other, *_ = shared[storage]
            what = "is returned" if storage in returned else "is written"
            raise SizeVariesError(f"{other.name} shares memory with {one.name}, and {what}")

    def _add_sparse(self, tensor: torch.Tensor, source: Any, constant: bool) -> Variable:
        proxy = TensorProxy(
            self._trace.names.for_input(source.describe()),
            tuple(tensor.shape),
            (),
            tensor.dtype,
            tensor.device,
            tensor.requires_grad,
            self._trace.storages.new(),
            layout=tensor.layout,
        )
        with self._fake_mode.observing():
            fake = self._fake_mode.from_tensor(tensor)
        if constant:
            self._trace.storages.constant.add(proxy.storage)
        self._originals[id(tensor)] = proxy
        self._append(proxy, source, tensor)
        return Variable(proxy, fake=fake, constant=constant, location=user_location())

    def _append(self, proxy: Proxy, source: Any, value: Any) -> None:
        self.proxies.append(proxy)
        self.sources.append(source)
        self.objects.append(value)


def _check_supported(tensor: torch.Tensor, source: Any) -> None:
    if tensor.is_quantized or tensor.is_nested:
        kind = "quantized" if tensor.is_quantized else "nested"
        raise UnsupportedError(
            f"{source.describe()} is a {kind} tensor; only dense and sparse tensors can be traced",
            location=user_location(),
            advice=("convert it with .to_padded_tensor() or .dequantize() before the compiled function",),
        )


def _with_bodies(lines: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    """The lines, those of the programs that a line takes before it."""
    for line in lines:
        for body in bodies_of(line):
            yield from _with_bodies(body.symbols)
        yield line
