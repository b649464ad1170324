"""Output reconstruction: statements that create the program's result, and repeat its writes to Python objects.

The result of a program may be any Python object that contains tensors: nested containers, dataclasses, Hugging Face
outputs, caches. A reconstruction is Python source that creates such an object from the computed tensors, a new one in
each call, as eager does. The statements refer to objects that existed before the program ran by access path.
"""

from __future__ import annotations

import copyreg
import enum
import types
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from thunder_core.checks.source import ArgumentSource, HeldSource, KeywordSource, Names, Source
from thunder_core.checks.stored_attributes import set_attributes, set_default_factory
from thunder_core.contract import Reconstruction
from thunder_core.errors import RunEagerly, UnsupportedError
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.location import at
from thunder_core.ir.proxy import Proxy
from thunder_core.ir.size import from_fake
from thunder_core.ir.switches import Values, set_switch
from thunder_frontend.observe.observer import Observer
from thunder_frontend.observe.writes import Write
from thunder_frontend.record.hooks import TracedHandle
from thunder_frontend.record.interceptions import original_of
from thunder_frontend.record.object_layout import (
    Contents,
    contents_of,
    is_named_global,
)
from thunder_frontend.record.reconstructed_functions import (
    FunctionReconstructor,
    check_class,
    is_method_of_value,
    reconstruct_generator,
)
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.subclasses import has_torch_dispatch
from thunder_frontend.record.traced_number import TracedNumber
from thunder_frontend.record.traced_size import TracedSize
from thunder_frontend.record.traced_tensor import Variable, holds_traced_tensor, variable_of

_ATOMS = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type,
    types.ModuleType,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    enum.Enum,
    range,
)
_NEEDS_EAGER_CALL = {torch.nn.Module: "module", torch.UntypedStorage: "storage", torch.storage.TypedStorage: "storage"}
"""Classes of objects that the program cannot create, except in an eager call, each with a word for the error."""
_LITERALS = frozenset({type(None), bool, int, str})
_FIXED_ROOTS = (ArgumentSource, KeywordSource, HeldSource)
"""Sources whose values no write of the program changes."""


class ReconstructionWriter(Names):
    """Collects statements, and allocates the names in them.

    Attributes:
        statements: statements that create the needed objects and perform the writes.
        namespace: objects that the statements refer to by name.
    """

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.namespace: dict[str, Any] = {}
        self._constants: dict[int, str] = {}
        self._variables = 0
        self._variable_of: dict[int, str] = {}
        self._variable_of_source: dict[int, str] = {}
        self._values: list[Any] = []

    @abstractmethod
    def expression(self, value: Any) -> str:
        """The Python expression for a value, after writing the statements that it needs."""

    def known(self, value: Any) -> str | None:
        """The variable of an object; None if it has none."""
        return self._variable_of.get(id(value))

    def assign(self, value: Any, expression: str) -> str:
        """The variable of ``value``: a new one, to which the expression is assigned, if it has none.

        It has one already if the expressions for its items led back to it: ``items = []; pair = (items,);
        items.append(pair)``.
        """
        name = self.known(value)
        if name is None:
            self._values.append(value)  # so that no other object gets its id
            name = self._variable_of[id(value)] = self._new_variable(expression)
        return name

    def bind(self, source: Source | None) -> None:
        """Assign the object at a path to a variable for the writes to it. The source must outlive the writer."""
        if source is not None and id(source) not in self._variable_of_source and not isinstance(source, _FIXED_ROOTS):
            self._variable_of_source[id(source)] = self._new_variable(source.expression(self))

    def bound(self, source: Source) -> str | None:
        """The variable of a path; None if it was not bound."""
        return self._variable_of_source.get(id(source))

    def constant(self, value: Any, hint: str = "") -> str:
        """A name in the reconstruction's namespace for an object."""
        name = self._constants.get(id(value))
        if name is None:
            name = self._constants[id(value)] = f"c{len(self.namespace)}"
            self.namespace[name] = value
        return name

    def _new_variable(self, expression: str) -> str:
        name = f"v{self._variables}"
        self._variables += 1
        self.statements.append(f"{name} = {expression}")
        return name


class Reconstructor(ReconstructionWriter):
    """Builds a `Reconstruction`.

    Args:
        recorder: the recorder of the program.
        observer: the observer of the program.
        outputs: receives the proxies that the statements need, the outputs of the trace.
    """

    def __init__(self, recorder: Recorder, observer: Observer, outputs: list[Proxy]) -> None:
        super().__init__()
        self._recorder = recorder
        self._inputs = recorder.inputs
        self._observer = observer
        self._outputs = outputs
        self._positions: dict[str, int] = {}
        self._uncopied_classes: list[str] = []

    def reconstruction(self, result: Any, writes: Sequence[Write], switches: Values) -> Reconstruction:
        """The reconstruction for one run of the program.

        Args:
            result: the result of the program.
            writes: its writes to Python objects.
            switches: PyTorch's switches that it changed, with their values at its end.
        """
        for original, final in self._inputs.reshaped_objects():
            self.statements.append(
                f"{self.output(original)}.as_strided_({final.shape}, {final.stride}, {final.offset})"
            )
        # values and targets are read before any write, which may replace an object that another write refers to
        values = [self.expression(write.value) for write in writes]
        expression = self.expression(result)
        for write in writes:
            self.bind(write.place)
        for write, value in zip(writes, values, strict=True):
            self.statements.extend(write.statements(value, self))
        for name, value in switches.items():
            self.statements.append(f"{self.constant(set_switch)}({name!r}, {self.constant(value)})")
        return Reconstruction(
            tuple(self.statements), expression, self.namespace, len(values), tuple(self._uncopied_classes)
        )

    def expression(self, value: Any) -> str:
        """The Python expression for a value, after writing the statements that it needs."""
        kind = type(value)  # a weak proxy of an object that is gone has no ``__class__``
        if kind in _LITERALS:
            # Python refuses to print ints of more than 4300 digits
            return self.constant(value) if kind is int and value.bit_length() > 64 else repr(value)
        if kind is TracedSize:
            return f"({from_fake(value)})"
        if issubclass(kind, torch.Tensor):
            return self._tensor(value)
        if kind is TracedNumber:
            return self.output(value.proxy)
        if issubclass(kind, TracedHandle):
            return self.output(value.proxy())
        if not issubclass(kind, tuple):  # one with stand-ins among its items is another in each call
            value = original_of(self._observer.original_of(value))
        known = self.known(value)
        if known is not None:
            return known
        created = self._inputs.created_proxy(value)
        if created is not None:
            return self.output(created)
        if self._inputs.created_objects.is_copied(value):
            name = type(value).__name__
            raise RunEagerly(
                f"the program returns or stores a {name} of tensors that a function which it passes to PyTorch holds"
            )
        if issubclass(type(value), _ATOMS) and not _has_attributes(value):
            if issubclass(type(value), type):
                check_class(value, self._observer)
            return self.constant(value)
        source = self._observer.source_of(value)
        if source is not None:
            return self.assign(value, source.expression(self))
        return self._new(value)

    def _tensor(self, tensor: torch.Tensor) -> str:
        variable = variable_of(tensor)
        if variable is not None:
            return self._traced(tensor, variable)
        if has_torch_dispatch(type(tensor)):
            return self.known(tensor) or self._wrapper(tensor)
        return self.output(self._inputs.object_proxy(tensor))

    def _traced(self, tensor: torch.Tensor, variable: Variable) -> str:
        """The expression for a computed tensor, with the class and the attributes that it has in the program."""
        known = self.known(tensor)
        if known is not None:
            return known
        if isinstance(tensor, torch.nn.Parameter):
            raise RunEagerly("the program returns or stores a Parameter that it creates")
        name, kind = self.output(variable.proxy), type(tensor)
        if kind is not torch.Tensor:
            name = self.assign(tensor, f"{name}.as_subclass({self.constant(kind)})")
        attributes = vars(tensor)
        if attributes and kind is torch.Tensor:
            name = self.assign(tensor, name)
        self.statements.extend([f"{name}.{key} = {self.expression(item)}" for key, item in attributes.items()])
        return name

    def _wrapper(self, wrapper: torch.Tensor) -> str:
        """The expression for a wrapper subclass: a tensor that existed before, or a new one."""
        source = self._observer.source_of(wrapper)
        if source is not None:
            return self.assign(wrapper, source.expression(self))
        return self._recorder.wrapper_calls.rebuild(self, wrapper)

    def output(self, proxy: Proxy) -> str:
        """Make a value of the trace one of its outputs, and return its name."""
        position = self._positions.get(proxy.name)
        if position is None:
            position = self._positions[proxy.name] = len(self._outputs)
            self._outputs.append(proxy)
        return f"o{position}"

    def _new(self, value: Any) -> str:
        """The expression for a new object like the one that the program created."""
        build = _BUILDERS.get(type(value))
        if build is not None:
            return build(self, value)
        if issubclass(type(value), torch.Generator):
            self._observer.generators.handed_out(value)
            return self.output(self._inputs.object(value))
        if self._inputs.is_returnable(value):
            return self.output(self._inputs.object(value))
        for base, word in _NEEDS_EAGER_CALL.items():
            if issubclass(type(value), base):
                created = f" ({type(value).__qualname__}{at(self._observer.created_at(value))})"
                raise RunEagerly(f"the program returns or stores a {word} that it creates{created}")
        if isinstance(value, types.BuiltinFunctionType) and not is_method_of_value(value):
            return self.constant(value)
        contents = contents_of(value)
        if contents is not None and not is_named_global(value):
            return self._with_contents(value, contents)
        return self._reduced(value)

    def _tuple(self, value: tuple[Any, ...]) -> str:
        items = "".join(f"{self.expression(item)}, " for item in value)
        return self.assign(value, f"({items.rstrip()})" if value else "()")

    def _list(self, value: list[Any]) -> str:
        name = self.assign(value, "[]")
        for item in value:
            self.statements.append(f"{name}.append({self.expression(item)})")
        return name

    def _dict(self, value: dict[Any, Any]) -> str:
        name = self.assign(value, "{}")
        for key, item in value.items():
            self.statements.append(f"{name}[{self.expression(key)}] = {self.expression(item)}")
        return name

    def _slice(self, value: slice) -> str:
        bounds = ", ".join(map(self.expression, (value.start, value.stop, value.step)))
        return self.assign(value, f"slice({bounds})")

    def _from_tuple(self, value: Any) -> str:
        """The expression for an object whose class takes a tuple of its items."""
        items = "".join(f"{self.expression(item)}, " for item in value)
        return self.assign(value, f"{self.constant(type(value))}(({items}))")

    def _function(self, value: types.FunctionType) -> str:
        return FunctionReconstructor(self, self._observer, self._inputs.created_objects).function(value)

    def _method(self, value: types.MethodType) -> str:
        return FunctionReconstructor(self, self._observer, self._inputs.created_objects).method(value)

    def _with_contents(self, value: Any, contents: Contents) -> str:
        """The expression for an instance of a Python class."""
        base = contents.base
        arguments = "".join(f", {self.expression(argument)}" for argument in contents.arguments)
        known = self.known(value)
        if known is not None:  # the arguments refer to it
            return known
        name = self.assign(value, f"{self.constant(base.__new__)}({self.expression(type(value))}{arguments})")
        if contents.state is not None:
            self.statements.append(f"{self.constant(set_attributes)}({name}, {self.expression(contents.state)})")
        if contents.default_factory is not None:
            factory = self.expression(contents.default_factory)
            self.statements.append(f"{self.constant(set_default_factory)}({name}, {factory})")
        store: Any = getattr(base, "append", None) or getattr(base, "add", None)
        for item in contents.items:
            self.statements.append(f"{self.constant(store)}({name}, {self.expression(item)})")
        for key, item in contents.pairs:
            pair = f"{self.expression(key)}, {self.expression(item)}"
            self.statements.append(f"{self.constant(base.__setitem__)}({name}, {pair})")
        return name

    def _reference(self, reference: weakref.ref[Any]) -> str:
        """The expression for a weak reference to the same referent, with the same callback: that of its container."""
        referent = reference()
        if referent is None:
            return self.constant(reference)
        parts = [referent] if reference.__callback__ is None else [referent, reference.__callback__]
        if isinstance(reference, weakref.KeyedRef):
            parts = [referent, reference.__callback__, reference.key]
        arguments = ", ".join(map(self.expression, parts))
        return self.assign(reference, f"{self.constant(type(reference))}({arguments})")

    def _not_reducible(self, value: Any, error: TypeError) -> str:
        """The expression for an object that ``__reduce_ex__`` rejects.

        It is the object itself, valid in this run only, except for generators that have not started and weak
        references.
        """
        if isinstance(value, types.GeneratorType):
            generator = reconstruct_generator(self, value)
            if generator is not None:
                return generator
        if type(value) in (weakref.ref, weakref.KeyedRef):
            return self._reference(value)
        if holds_traced_tensor(value):
            raise _cannot_be_reconstructed(value, error) from error
        self._uncopied_classes.append(type(value).__qualname__)
        return self.constant(value)

    def _reduced(self, value: Any) -> str:
        """The expression for an instance of another class, by the protocol of ``copy`` and ``pickle``."""
        try:
            reduced = value.__reduce_ex__(4)
        except TypeError as error:
            return self._not_reducible(value, error)
        if isinstance(reduced, str):
            if isinstance(getattr(value, "__wrapped__", None), types.FunctionType) and import_path(value) is None:
                raise _cannot_be_reconstructed(value, "it has state")
            return self.constant(value)
        function, arguments, state, items, pairs, set_state = (*reduced, None, None, None, None)[:6]
        if function is copyreg.__newobj__:  # type: ignore[attr-defined]
            function = arguments[0].__new__
        call = ", ".join([self.expression(argument) for argument in arguments])
        known = self.known(value)
        if known is not None:  # the arguments refer to it
            return known
        name = self.assign(value, f"{self.constant(function)}({call})")
        if state is not None:
            self.statements.append(f"{self.constant(set_state or _set_state)}({name}, {self.expression(state)})")
        for item in items or ():
            self.statements.append(f"{name}.append({self.expression(item)})")
        for key, item in pairs or ():
            self.statements.append(f"{name}[{self.expression(key)}] = {self.expression(item)}")
        return name


_BUILDERS: Final[dict[type, Callable[[Reconstructor, Any], str]]] = {
    tuple: Reconstructor._tuple,
    list: Reconstructor._list,
    dict: Reconstructor._dict,
    slice: Reconstructor._slice,
    set: Reconstructor._from_tuple,
    frozenset: Reconstructor._from_tuple,
    torch.Size: Reconstructor._from_tuple,
    types.FunctionType: Reconstructor._function,
    types.MethodType: Reconstructor._method,
}
"""The methods that write expressions for new objects of builtin classes."""


def add_builder(kind: type, build: Callable[[Reconstructor, Any], str]) -> None:
    """Write the expressions for new objects of a plugin's class by ``build``, instead of by their contents."""
    _BUILDERS[kind] = build


def _has_attributes(value: Any) -> bool:
    """Whether a number or a string is of a subclass, other than an enum, and has attributes, which may hold tensors."""
    if not isinstance(value, int | float | complex | str | bytes) or isinstance(value, enum.Enum):
        return False
    return bool(getattr(value, "__dict__", None))


def _cannot_be_reconstructed(value: Any, reason: object) -> UnsupportedError:
    return UnsupportedError(
        f"the program returns or stores a {type(value).__qualname__}, which cannot be rebuilt: {reason}",
        advice=("return tensors in tuples, lists, dicts, dataclasses or other copyable objects",),
    )


def _set_state(value: Any, state: Any) -> None:
    """Set the state that ``__reduce_ex__`` returned, as ``copy.copy`` does."""
    if hasattr(value, "__setstate__"):
        value.__setstate__(state)
    else:
        set_attributes(value, state)
