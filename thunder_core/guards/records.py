"""What is noted during one observation of a program.

For getters of the ``operator`` module the attribute names are known. For an alias such as ``fetch = getattr`` they are
not: the program may then read anything.
"""

from __future__ import annotations

import contextvars
import operator
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Generator
from torch.nn import Module

from thunder_core.guards.abstract_stack import UNKNOWN
from thunder_core.guards.check import Check, Comparison, Condition, reading
from thunder_core.guards.code_names import CodeNames
from thunder_core.guards.conditions import IDENTITY
from thunder_core.guards.distinct_objects import DistinctObjects
from thunder_core.guards.guard import Guard
from thunder_core.guards.hidden_state import Environment, HiddenStates, LoggerLevels
from thunder_core.guards.node import MISSING, Node
from thunder_core.guards.source import GlobalSource, Source
from thunder_core.guards.stand_ins import StandIns
from thunder_core.guards.steps import ClosureSource
from thunder_core.guards.tensor_guard import TensorGuard
from thunder_core.guards.tensor_index import TensorIndex
from thunder_core.guards.torch_generators import TorchGenerators
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    identity_property,
    is_view,
    version_property,
    view_base_getter,
)

_READERS: Final = (getattr, hasattr, vars, dir, id, hash, isinstance, issubclass, callable, globals)


class Getters:
    """The attributes that getters, and aliases of functions like `getattr`, seen so far may read.

    From then on, any code may read them of any object that it reaches, like the names in its own bytecode.
    """

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._reads_all = False
        self._extended: dict[tuple[int, frozenset[str], bool], tuple[CodeNames, CodeNames]] = {}

    def met_function(self, function: Any) -> None:
        """Note a C function that the program has under another name."""
        self._reads_all |= any(function is reader for reader in _READERS)

    def met(self, value: Any) -> None:
        """Note an object, which may be a getter."""
        if isinstance(value, operator.attrgetter):
            paths = value.__reduce__()[1]
        elif isinstance(value, operator.methodcaller):
            paths = _called(value.__reduce__())
        else:
            return
        self._names |= {name for path in paths for name in str(path).split(".")}

    def extend(self, names: CodeNames) -> CodeNames:
        """``names`` with those of the getters; the same object while no getter is met."""
        if self._names <= names.attributes and not (self._reads_all and UNKNOWN not in names.whole):
            return names
        key = (id(names), self._names, self._reads_all)
        if key not in self._extended:
            extended = replace(names, attributes=names.attributes | self._names)
            if self._reads_all:
                extended = replace(
                    extended,
                    chains=(*names.chains, ("globals",)),
                    whole=frozenset({UNKNOWN}),
                    reads_order=True,
                    asks_class=True,
                    uses_class=True,
                    compares_identity=True,
                    compares_objects=True,
                )
            self._extended[key] = (names, extended)
        return self._extended[key][1]


def _called(reduced: Any) -> tuple[str, ...]:
    """The name of the method in what ``methodcaller.__reduce__`` returns, with or without keywords."""
    make, arguments, *_ = reduced
    return (arguments[0],) if make is operator.methodcaller else (make.args[0],)


_Tensor: Any = torch.Tensor  # its properties are descriptors, which the stubs do not say
_DIFFERS: Final = Comparison("{actual} != {expected}")
"""No dispatch key: to ask for ``grad`` may warn, and is right only of a tensor that has passed its other checks."""


def _fact(expression: str) -> Condition:
    """Something about a tensor that a `TensorGuard` does not compare: a bool or a number."""
    what = expression.removeprefix("{value}")

    def message(value: Any, expected: Any) -> str:
        return f"{what}: expected {expected}, got {read(condition, value)}"

    code = f"({expression})" if " " in expression else expression
    condition = Condition("fact", code, _DIFFERS, message, lambda expected: f"{what} is {expected}")
    return condition


def read(fact: Condition, tensor: torch.Tensor) -> Any:
    """The tensor's own answer, without PyTorch's remark that ``grad`` of what is no leaf is not kept."""
    with DisableTorchFunction(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return reading(fact)(tensor)


_ADDRESS = _fact("{value}.data_ptr()")
_STORAGE = (_fact("{value}.untyped_storage().data_ptr()"), _fact("{value}.untyped_storage().nbytes()"))
_GRADIENT = _fact("{value}.grad is None")
_LEAF = _fact("{value}.is_leaf")
_INFERENCE = _fact("{value}.is_inference()")
_FACTS: dict[Callable[..., Any], tuple[Condition, ...]] = {
    _Tensor.is_leaf.__get__: (_LEAF,),
    _Tensor.retains_grad.__get__: (_fact("{value}.retains_grad"),),
    _Tensor.output_nr.__get__: (_fact("{value}.output_nr"),),
    _Tensor.grad_fn.__get__: (_fact("{value}.grad_fn is None"),),
    _Tensor.grad.__get__: (_GRADIENT,),
    _Tensor.storage_offset: (_fact("{value}.storage_offset()"),),
    _Tensor.is_shared: (_fact("{value}.is_shared()"),),
    _Tensor.is_pinned: (_fact("{value}.is_pinned()"),),
    view_base_getter: (_fact("{value}._base is None"),),
    is_view: (_fact("{value}._is_view()"),),
    _Tensor.is_inference: (_INFERENCE,),
    torch.is_inference: (_INFERENCE,),
    _Tensor.data_ptr: (_ADDRESS,),
    identity_property.__get__: (_fact("{value}._cdata"),),
    _Tensor.is_set_to: (_ADDRESS,),
    _Tensor.__deepcopy__: (_GRADIENT, _LEAF, _STORAGE[1]),
    version_property.__get__: (_fact("{value}._version"),),
    _Tensor.untyped_storage: _STORAGE,
    _Tensor.storage: _STORAGE,
}
_OF_CLASS_OR_IDENTITY = frozenset({torch.is_tensor, _Tensor.__hash__, _Tensor.__dir__})


class TensorFacts:
    """Notes questions while the program runs."""

    def __init__(self, on_hash: Callable[[torch.Tensor], None]) -> None:
        self._on_hash = on_hash
        self._asked: dict[int, tuple[torch.Tensor, dict[Condition, Any]]] = {}

    def note(self, function: Callable[..., Any], tensor: torch.Tensor) -> None:
        """The program called ``function``, which reads no elements, with a tensor that it may not have made."""
        if function is _Tensor.__hash__:
            self._on_hash(tensor)
        if function in _OF_CLASS_OR_IDENTITY:
            return
        facts = self._asked.setdefault(id(tensor), (tensor, {}))[1]
        for fact in _FACTS.get(function, ()):
            if fact not in facts:
                facts[fact] = read(fact, tensor)

    def guards(self, inputs: set[int], find: Callable[[torch.Tensor], Source | None]) -> Iterator[Guard]:
        """What must stay as it was.

        Args:
            inputs: ids of tensors that are inputs of the program: their metadata is guarded anyway.
            find: gives the path to a tensor; what has none is a constant of the program.
        """
        inputs = set(inputs)
        for key, (tensor, facts) in self._asked.items():
            source = find(tensor)
            if source is None:
                continue
            if key not in inputs:
                yield Check(source, IDENTITY, tensor) if tensor.is_nested else TensorGuard.of(source, tensor)
            for fact, expected in facts.items():
                yield Check(source, fact, expected)
        self._asked.clear()


class Records:
    """Objects that were met, the guards on them, and what code may have done to them.

    Attributes:
        nodes: by id of the object.
        guards: in the order in which they were found: a path's guards come after those of its parts.
        tensors: where tensors were seen.
        facts: what the program asked of tensors.
        hidden_states: of Python's and NumPy's generators when the observation began, and of what was met since.
        generators: of PyTorch.
        context_before, context: the context variables when the observation began, and those that the program sets.
        context_of_others: values that context variables got while the observation was paused, as `decimal` sets one
            when SymPy first computes.
        environment: the environment variables.
        levels: of loggers.
        getters: prebuilt getters of the ``operator`` module.
        functions: nodes of Python functions by the id of their code.
        stored_globals, stored_cells: variables that observed code rebinds, with their first values.
        stored_attributes: attributes that observed code assigns or deletes, of whatever object.
        builtins_read: names of builtins by the Python module, here its variables, whose code uses them.
        late: paths into PyTorch whose objects are looked at when the program has run: during acquisition some of them
            are replaced.
        late_classes: classes that are not the user's, of which the program may read any attribute; the same holds for
            them.
        met_abstract: an abstract class of the user's was met, in which others can be registered.
        distinct: what the program may have compared by identity.
        stand_ins: what is put in place of functions of C that acquisition replaces.
    """

    def __init__(self, stand_ins: StandIns, index_modules: Callable[[Module, Source], None]) -> None:
        self.nodes: dict[int, Node] = {}
        self.guards: list[Guard] = []
        self.stand_ins = stand_ins
        self.tensors = TensorIndex(self.nodes, self.guards, index_modules)
        self.distinct = DistinctObjects()
        self.facts = TensorFacts(self.distinct.hashed)
        self.hidden_states = HiddenStates()
        self.generators = TorchGenerators()
        self.context_before = contextvars.copy_context()
        self.context = contextvars.copy_context()
        self.context_of_others: dict[contextvars.ContextVar[Any], Any] = {}
        self.environment = Environment()
        self.levels = LoggerLevels()
        self.getters = Getters()
        self.functions: dict[int, list[Node]] = {}
        self.stored_globals: dict[tuple[int, str], tuple[GlobalSource, Any]] = {}
        self.stored_cells: dict[int, tuple[ClosureSource, Any, Any]] = {}
        self.stored_attributes: set[str] = set()
        self.builtins_read: dict[int, tuple[dict[str, Any], set[str]]] = {}
        self.late: list[Source] = []
        self.late_classes: list[Node] = []
        self.met_abstract = False
        self._kept: list[Any] = []

    def forget_context_changes(self, before: contextvars.Context) -> None:
        """What context variables have that they did not have ``before`` is not of the program's doing."""
        for variable, value in contextvars.copy_context().items():
            if before.get(variable, MISSING) is not value:
                self.context_of_others[variable] = value

    def close(self) -> None:
        """Let go of everything."""
        self.__dict__.clear()

    def keep(self, value: Any) -> None:
        """Keep an object alive, so that its id stays its own."""
        self._kept.append(value)

    def distinct_nodes(self) -> tuple[Node, ...]:
        """Each node once; that of a compiled module and its original is in `nodes` twice."""
        return tuple(dict.fromkeys(self.nodes.values()))

    def watch(self, value: Any, source: Source) -> None:
        """Notice if the program consumes the state of ``value``, should it be a random generator or an iterator."""
        if isinstance(value, Generator):
            self.generators.watch(value, source.describe())
        else:
            self.hidden_states.watch(value, source.describe())

    def asked(self, node: Node, names: CodeNames) -> None:
        """Code with these names reads an object, which may be a random generator that it asks for its state."""
        if isinstance(node.object, Generator):
            self.generators.asked(node.object, names)
        else:
            self.hidden_states.asked(node.object, node.source.describe(), names.attributes)
