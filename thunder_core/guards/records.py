"""What is noted during one observation of a program."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

from torch import Generator
from torch.nn import Module

from thunder_core.guards.code_names import CodeNames
from thunder_core.guards.distinct_objects import DistinctObjects
from thunder_core.guards.getters import Getters
from thunder_core.guards.guard import Guard
from thunder_core.guards.hidden_state import Environment, HiddenStates, LoggerLevels
from thunder_core.guards.node import MISSING, Node
from thunder_core.guards.source import GlobalSource, Source
from thunder_core.guards.stand_ins import StandIns
from thunder_core.guards.steps import ClosureSource
from thunder_core.guards.tensor_facts import TensorFacts
from thunder_core.guards.tensor_index import TensorIndex
from thunder_core.guards.torch_generators import TorchGenerators


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
