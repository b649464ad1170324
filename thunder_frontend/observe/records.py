"""The records of one observation of a program."""

from __future__ import annotations

import contextvars
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from types import CellType, TracebackType
from typing import Any

from torch import Generator
from torch.nn import Module

from thunder_core.checks.guard import Guard
from thunder_core.checks.source import ClosureSource, ConstantSource, Source
from thunder_core.checks.stored_attributes import MISSING
from thunder_frontend.observe.buffers import Buffers
from thunder_frontend.observe.code_names import CodeNames
from thunder_frontend.observe.contents import NodeKind
from thunder_frontend.observe.distinct_objects import DistinctObjects
from thunder_frontend.observe.getters import Getters
from thunder_frontend.observe.hidden_state import Environment, HiddenStates, StateReads
from thunder_frontend.observe.made_classes import MadeClasses
from thunder_frontend.observe.node import Node, make_node
from thunder_frontend.observe.stand_ins import StandIns
from thunder_frontend.observe.tensor_facts import TensorFacts
from thunder_frontend.observe.tensor_index import TensorIndex
from thunder_frontend.observe.torch_generators import TorchGenerators


class Records(ABC):
    """The visited objects, the guards on them, and other state that the program reads or writes.

    Attributes:
        nodes: the nodes by id of the object.
        guards: the guards; those of a path follow those of its parents.
        tensors: the paths of tensors.
        facts: properties of tensors that the program read.
        buffers: contents of NumPy arrays and other buffers.
        hidden_states: states of random generators outside of PyTorch, and of iterators.
        generators: states of PyTorch's random generators.
        context_before: the context variables at the start of the observation.
        context: the context in which the program runs.
        context_of_others: values that context variables got while the observation was paused. For example, `decimal`
            sets a variable at the first computation of SymPy.
        environment: reads and writes of environment variables.
        state_reads: results of library functions that read state of the process.
        getters: attributes that getters of `operator` may read.
        functions: the nodes of Python functions by id of their code.
        variables: nodes of the global and closure variables that executed code may assign, by id of the dictionary of
            global variables or of the cell.
        stored_attributes: attributes that executed code may assign or delete, of any object.
        builtins_read: by id of the global variables of a Python module, these and the names of builtins in its code.
        late: paths into PyTorch. Recording replaces some of these objects, so they are visited at the end.
        late_classes: nodes of classes, other than the user's, of which the program may read any attribute; visited at
            the end for the same reason.
        visited_abstract: whether an abstract class of the user, which can register subclasses, was visited.
        distinct: objects that the program may have compared by identity.
        made_classes: the classes that the program makes.
        stand_ins: the objects that replace functions implemented in C and numbers during the observation.
    """

    def __init__(self, stand_ins: StandIns, index_modules: Callable[[Module, Source], None]) -> None:
        self.nodes: dict[int, Node] = {}
        self.guards: list[Guard] = []
        self.stand_ins = stand_ins
        self.tensors = TensorIndex(self.nodes, self.guards, index_modules)
        self.made_classes = MadeClasses()
        self._exceptions: dict[int, tuple[BaseException, TracebackType | None]] = {}
        self.distinct = DistinctObjects()
        self.facts = TensorFacts(self.distinct.hashed)
        self.buffers = Buffers()
        self.hidden_states = HiddenStates()
        self.generators = TorchGenerators()
        self.context_before = contextvars.copy_context()
        self.context = contextvars.copy_context()
        self.context_of_others: dict[contextvars.ContextVar[Any], Any] = {}
        self.environment = Environment()
        self.state_reads = StateReads()
        self.getters = Getters()
        self.functions: dict[int, list[Node]] = {}
        self.variables: dict[int, Node] = {}
        self.stored_attributes: set[str] = set()
        self.builtins_read: dict[int, tuple[dict[str, Any], set[str]]] = {}
        self.late: list[Source] = []
        self.late_classes: list[Node] = []
        self.visited_abstract = False
        self._references: list[Any] = []

    @abstractmethod
    def visit(self, value: Any, source: Source, *, by_key: bool = False) -> Node | None:
        """Guard an object that was read from a path; returns the node of an object that has contents.

        Args:
            by_key: the caller reads single items of a dictionary or list; otherwise all items are guarded.
        """

    @abstractmethod
    def visit_receiver(self, function: Any, source: Source) -> None:
        """Visit the object of which ``function`` may be a bound builtin method, which has no frame."""

    def context_value(self, variable: contextvars.ContextVar[Any]) -> Any:
        """The value of a context variable before the run of the program: its default, or None, if it is not set."""
        try:
            return self.context_before.copy().run(variable.get)
        except LookupError:
            return None

    def forget_context_changes(self, before: contextvars.Context) -> None:
        """Exclude changes of context variables since ``before`` from the program's writes: the compiler caused them."""
        for variable, value in contextvars.copy_context().items():
            if before.get(variable, MISSING) is not value:
                self.context_of_others[variable] = value

    def close(self) -> None:
        """Drop all references."""
        self.__dict__.clear()

    def keep(self, value: Any) -> None:
        """Hold a reference to an object, so that no other object gets its id."""
        self._references.append(value)

    def may_assign(self, namespace: dict[str, Any], names: Iterable[str]) -> None:
        """Code may assign the global variables of a Python module with these names: record their values."""
        for name in names:
            if id(namespace) not in self.variables:
                node = make_node(namespace, ConstantSource(namespace), NodeKind.GLOBALS)
                self.variables[id(namespace)] = node
            self.variables[id(namespace)].attributes.setdefault(name, namespace.get(name, MISSING))

    def may_assign_cell(self, cell: CellType, source: ClosureSource) -> None:
        """Code may assign the closure variable at a path: record its value."""
        if id(cell) not in self.variables:
            self.variables[id(cell)] = make_node(cell, source, NodeKind.CLOSURE_VARIABLE)

    def is_overwritten(self, namespace: dict[str, Any], name: str, value: Any) -> bool:
        """Whether ``value`` is not the recorded value of a global variable that code may assign."""
        node = self.variables.get(id(namespace))
        return node is not None and node.attributes.get(name, value) is not value

    def is_overwritten_cell(self, cell: CellType, value: Any) -> bool:
        """Whether ``value`` is not the recorded value of a closure variable that code may assign."""
        nodes = (self.variables.get(id(cell)), self.nodes.get(id(cell)))
        return any(node is not None and node.attributes.get("cell_contents") is not value for node in nodes)

    def distinct_nodes(self) -> tuple[Node, ...]:
        """Each node once. A compiled module and its original have one node, which is in `nodes` twice."""
        return tuple(dict.fromkeys(self.nodes.values()))

    def watch(self, value: Any, source: Source) -> None:
        """Record the state of an object if it is a random generator or an iterator, to detect changes.

        Of an exception, record the traceback, which `raise` extends.
        """
        if isinstance(value, BaseException):
            self._exceptions[id(value)] = (value, value.__traceback__)
        if isinstance(value, Generator):
            self.generators.watch(value, source.describe())
        else:
            self.hidden_states.watch(value, source.describe())

    def forget_tracebacks(self, ending: BaseException | None) -> None:
        """Remove the frames of the program from exceptions that existed before it, except the one that ends it."""
        for error, traceback in self._exceptions.values():
            if error is not ending:
                error.__traceback__ = traceback
        self._exceptions.clear()

    def state_read(self, node: Node, names: CodeNames) -> None:
        """Code with these names reads an object, which may be a random generator or an exception with such state."""
        if isinstance(node.object, Generator):
            self.generators.read_by(node.object, names)
        elif node.kind is NodeKind.OPAQUE or isinstance(node.object, BaseException):
            self.hidden_states.read_by(node.object, node.source, names.attributes)
