"""The tested derivative rule: its registration during a test, direct calls of it, and whether programs use it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from thunder.compiled.function import ThunderFunction
from thunder.config import settings_of
from thunder.report.training_report import TrainingReport
from thunder_core.autodiff.derivatives.by_rule import SOURCE
from thunder_core.autodiff.derivatives.rules import Rule, add_rules, all_rules, remove_rules
from thunder_core.executors.reference import REFERENCE
from thunder_core.ir.proxy import Proxy
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.conformance.queries import Query
from thunder_testing.conformance.recording import ops_of, record
from thunder_testing.conformance.running import quietly
from thunder_testing.conformance.subject import Subject
from thunder_testing.conformance.tested import Tested
from thunder_testing.conformance.tolerance import Tolerances


@dataclass(frozen=True, eq=False)
class TestedRule(Tested):
    """A derivative rule under test. Programs are compiled with PyTorch's implementations and without transforms.

    Attributes:
        name: the dotted name of the operation.
        rule: the rule.
        subject: the operation.
    """

    __test__ = False  # pytest collects classes with such names

    name: str
    rule: Rule
    subject: Subject

    @classmethod
    def of(cls, name: str, rule: Rule, subject: Subject, tolerances: Tolerances) -> TestedRule:
        """The rule of an operation."""
        settings = settings_of(executors=[], transforms=[])
        return cls(REFERENCE, REFERENCE, settings, "[], transforms=[]", tolerances, name, rule, subject)

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.rule.__module__}.{self.rule.__qualname__}, the derivative rule of {self.name}"

    @contextmanager
    def registered(self) -> Iterator[None]:
        """A context in which the operation has this rule, whichever it has outside."""
        before = all_rules().get(self.name)
        if before is self.rule:
            yield
            return
        if before is not None:
            remove_rules([self.name])
        add_rules({self.name: self.rule})
        try:
            yield
        finally:
            remove_rules([self.name])
            add_rules({} if before is None else {self.name: before})

    def must_have_differentiated(self, program: ThunderFunction, queries: Sequence[Query]) -> None:
        """Raise `Breach` if the rule fails, and `NotApplicable` if it declines the call."""
        training = None if program.last is None else TrainingReport.of(program.last.program)
        symbols = {symbol.name for symbol in self.subject.symbols}
        found = [] if training is None else [one for one in training.derivatives if one.symbol in symbols]
        for derivative in found:
            if derivative.reason.startswith(SOURCE):
                raise Breach("use", f"autograd differentiates the call instead: {derivative.reason}")
        if not any(derivative.source == SOURCE for derivative in found):
            raise NotApplicable("the rule is not asked about the call, or declines it: autograd differentiates it")

    def canonical(self, call: Call) -> Call:
        """The call with the arguments that the rule gets: those of the recorded operation.

        Raises NotApplicable if something else is recorded, or if an argument is not one of the call.
        """
        acquired = record(call)
        values = {proxy.name: value for proxy, value in zip(acquired.trace.inputs, acquired.inputs, strict=True)}
        ops = ops_of(self.subject, acquired)
        if len(ops) != 1 or any(proxy.name not in values for proxy in ops[0].inputs()):
            raise NotApplicable("the call is not recorded as one operation with its arguments")

        def value(leaf: Any) -> Any:
            return values[leaf.name] if isinstance(leaf, Proxy) else leaf

        function = self.subject.function or call.function
        return Call(call.what, function, map_leaves(value, ops[0].args), map_leaves(value, ops[0].kwargs), call.given)

    def apply(self, call: Call) -> Applied:
        """Call the rule with the arguments of a `canonical` call, as eager PyTorch.

        Raises:
            Breach: the rule raises, or returns something else than a pair of a result and a function.
            NotApplicable: it declines the call, or has no parameter for an argument.
        """
        __tracebackhide__ = True
        try:
            bound = inspect.signature(self.rule).bind(*call.args, **call.kwargs)
        except TypeError as error:
            raise NotApplicable(f"the rule has no parameter for an argument: {error}") from error
        bound.apply_defaults()
        with quietly():
            try:
                returned = self.rule(*call.args, **call.kwargs)
            except Exception as error:
                raise Breach("runs", f"the rule raises {type(error).__name__}: {error}") from error
        if returned is NotImplemented:
            raise NotApplicable("the rule declines the call")
        if type(returned) is not tuple or len(returned) != 2 or not callable(returned[1]):
            raise Breach("structure", f"the rule returned {returned!r:.80}, and not a result and a function")
        return Applied(returned[0], returned[1], dict(bound.arguments))


@dataclass(frozen=True, eq=False)
class Applied:
    """What a rule returned for a call.

    Attributes:
        result: the result of the operation.
        backward: the function from cotangents to gradients.
        arguments: the arguments of the call, by parameter of the rule.
    """

    result: Any
    backward: Any
    arguments: dict[str, Any]

    def tensors(self) -> list[torch.Tensor]:
        """The tensors in the result, in order."""
        return [leaf for leaf in iterate_leaves(self.result) if isinstance(leaf, torch.Tensor)]

    def gradients(self, cotangents: Sequence[torch.Tensor | None]) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
        """The parameter, the tensor and the gradient of each tensor argument to which a gradient flows.

        Raises:
            Breach: backward raises, or returns gradients that do not correspond to the parameters.
        """
        __tracebackhide__ = True
        with quietly():
            try:
                returned = self.backward(*cotangents)
            except Exception as error:
                given = ", ".join(["None" if one is None else str(list(one.shape)) for one in cotangents])
                problem = f"backward raises {type(error).__name__}: {error}; cotangents: {given}"
                raise Breach("runs", problem) from error
        returned = returned if isinstance(returned, tuple | list) else (returned,)
        if len(returned) > len(self.arguments):
            raise Breach("gradients", f"backward returned {len(returned)} for {len(self.arguments)} parameters")
        found: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        for (name, argument), gradient in zip(self.arguments.items(), returned):
            items, of_items = (argument, gradient) if isinstance(argument, tuple | list) else ([argument], [gradient])
            if of_items is None:
                continue
            if not isinstance(of_items, list) or len(items) != len(of_items):
                raise Breach("gradients", f"the gradient of {name}, a list of {len(items)}, is {of_items!r:.80}")
            for item, of_item in zip(items, of_items, strict=True):
                if not isinstance(item, torch.Tensor) or of_item is None:  # programs ignore gradients of numbers
                    continue
                if not isinstance(of_item, torch.Tensor):
                    raise Breach("gradients", f"the gradient of {name} is {type(of_item).__name__}, and not a tensor")
                found.append((name, item, of_item))
        return found
