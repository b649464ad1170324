"""`rule_suite`: the tests of derivative rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch

from thunder_core.autodiff.derivatives.rules import Rule
from thunder_core.errors import TraceError
from thunder_core.ir.literals import LiteralPrinter
from thunder_core.plugins.host import host
from thunder_core.plugins.importing import imported
from thunder_core.plugins.specs import SymbolsSpec
from thunder_core.plugins.states import Offered
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.case import Case, as_test, with_skips
from thunder_testing.conformance.failure import Breach, ConformanceError, ConformanceFailure, NotApplicable
from thunder_testing.conformance.rule_checks import CHECKS, Check, check_variant
from thunder_testing.conformance.sampler import Sampler
from thunder_testing.conformance.samples import dtypes_of
from thunder_testing.conformance.snippet import explained
from thunder_testing.conformance.subject import Samples, operation, printed, refuse_unknown, symbol_of
from thunder_testing.conformance.suite import check_devices
from thunder_testing.conformance.tested_rule import TestedRule
from thunder_testing.conformance.tolerance import Tolerance, Tolerances

_FEW: Final = ("result", "gradient")
"""The checks in dtypes with fewer digits than float32."""
_DOUBLE: Final = ("numerical", "second")


def rule_suite(
    rules: str | Mapping[str, Rule],
    *,
    second_derivatives: bool | Iterable[str] = False,
    devices: Sequence[str] = ("cpu",),
    dtypes: Sequence[torch.dtype] | None = None,
    tolerances: Mapping[Any, Tolerance] | None = None,
    samples: Mapping[Any, Samples] | None = None,
    skip: Mapping[str, str] | None = None,
    limit: int = 8,
) -> Callable[..., None]:
    """The tests of derivative rules, for a module that pytest collects: ``test_rules = rule_suite("my_kernels")``.

    ``docs/conformance.md`` describes the tests.

    Args:
        rules: the name of a plugin that offers them, or the rules by the dotted name of their operation.
        second_derivatives: whether autograd can differentiate the backward of the rules, or the names of operations
            for which it can.
        devices: the devices to test on, as for `torch.device`.
        dtypes: the dtypes that get all checks. None: those of the samples, with all checks for float32 and float64.
        tolerances: ``(rtol, atol)`` by name of a symbol, by dtype, or by a pair of both; the defaults are those of
            `torch.testing.assert_close`.
        samples: by operation, a callable ``(device, dtype)`` that yields pairs ``(args, kwargs)``: for operations that
            are not in PyTorch's OpInfo database, and as further samples of others.
        skip: reasons by pattern of test ids: ``{"*-second-*": "its backward is one kernel"}``.
        limit: number of samples of each operation, device and dtype, chosen to differ.

    Returns:
        A function that pytest runs once per test, with ids like ``torch.square-gradient-float32-0``.

    Raises:
        PluginError: the plugin cannot be used.
        ConformanceError: the suite cannot be created, or a device is not available.
    """
    cases = rule_cases(
        rules, second_derivatives=second_derivatives, devices=devices, dtypes=dtypes, tolerances=tolerances,
        samples=samples, skip=skip, limit=limit,
    )  # fmt: skip
    return as_test(cases, f"Conformance of the derivative rules of {rules if isinstance(rules, str) else 'a mapping'}.")


def rule_cases(
    rules: str | Mapping[str, Rule],
    *,
    second_derivatives: bool | Iterable[str] = False,
    devices: Sequence[str] = ("cpu",),
    dtypes: Sequence[torch.dtype] | None = None,
    tolerances: Mapping[Any, Tolerance] | None = None,
    samples: Mapping[Any, Samples] | None = None,
    skip: Mapping[str, str] | None = None,
    limit: int = 8,
) -> list[Case]:
    """The tests of `rule_suite` as cases."""
    check_devices(devices)
    named = _rules_of_plugin(rules) if isinstance(rules, str) else dict(rules)
    symbols = {symbol_of(name): name for name in named}
    given = {symbol_of(key): value for key, value in (samples or {}).items()}
    twice = symbols if second_derivatives is True else [symbol_of(name) for name in second_derivatives or ()]
    refuse_unknown("the suite", [symbol for symbol in given if symbol not in symbols], symbols)
    without = [printed(symbol) for symbol in twice if symbol not in symbols]
    if without:
        raise ConformanceError(f"second_derivatives names {', '.join(without)}, and the suite tests no rule of it")
    known = Tolerances(tolerances or {})
    tested = [
        (symbol, TestedRule.of(name, named[name], operation(symbol, given), known)) for symbol, name in symbols.items()
    ]
    of_rules = [_RuleCases(one, tuple(devices), dtypes, Sampler(limit), symbol in twice) for symbol, one in tested]
    return with_skips([case for cases in of_rules for case in cases], skip or {})


def _rules_of_plugin(name: str) -> dict[str, Rule]:
    """The rules that a plugin offers, after its tables were added."""
    record = host().load(name)
    rules: dict[str, Rule] = {}
    for spec in record.of(SymbolsSpec):
        if spec.rules:
            host().use(Offered(record, spec))
            rules.update(imported(spec.rules))
    if not rules:
        raise ConformanceError(
            f"the {record.title} offers no derivative rules",
            advice=('name them in its hook thunder_symbols: SymbolsSpec(load=..., rules="package.module:RULES")',),
        )
    return rules


@dataclass(frozen=True, eq=False)
class _RuleCases:
    """The tests of one rule."""

    tested: TestedRule
    devices: tuple[str, ...]
    dtypes: Sequence[torch.dtype] | None
    sampler: Sampler
    second_derivatives: bool

    def __iter__(self) -> Iterator[Case]:
        yield Case(f"{self.tested.name}-used", self._used)
        for word, (kind, check) in CHECKS.items():
            for device in self.devices:
                place = "" if self.devices == ("cpu",) else f"{device}-"
                for dtype in self._dtypes(device):
                    if word not in self._words(dtype):
                        continue
                    for number, call in enumerate(self._calls(kind, device, dtype)):
                        name = f"{self.tested.name}-{word}-{place}{str(dtype).removeprefix('torch.')}-{number}"
                        yield Case(name, partial(self._check, word, check, call))

    def _dtypes(self, device: str) -> list[torch.dtype]:
        """Those in which the rule may be called: rules are not called for complex tensors."""
        dtypes = dtypes_of(self.tested.subject, device) if self.dtypes is None else self.dtypes
        return [dtype for dtype in dtypes if dtype.is_floating_point]

    def _words(self, dtype: torch.dtype) -> tuple[str, ...]:
        words = tuple(CHECKS) if self.dtypes is not None or dtype in (torch.float32, torch.float64) else _FEW
        words = tuple([word for word in words if word not in _DOUBLE or dtype is torch.float64])
        return words if self.second_derivatives else tuple([word for word in words if word != "second"])

    def _calls(self, kind: str, device: str, dtype: torch.dtype) -> list[Call]:
        return self.sampler.calls(self.tested.subject, kind, device, dtype)

    def _used(self) -> None:
        """Fail if programs use the rule for no sample."""
        __tracebackhide__ = True
        reasons: dict[str, None] = {}
        for device in self.devices:
            for dtype in self._dtypes(device):
                for call in self._calls("base", device, dtype):
                    try:
                        with self.tested.registered():
                            check_variant(self.tested, call)
                    except NotApplicable as reason:
                        reasons[str(reason)] = None
                        continue
                    except Breach:  # it is used; the other tests say what is wrong
                        return
                    return
        why = "; ".join(reasons) or "there are none: pass samples=..."
        raise ConformanceFailure(f"{self.tested.title}: no sample uses it: {why}")

    def _check(self, word: str, check: Check, call: Call) -> None:
        __tracebackhide__ = True
        tested = self.tested
        try:
            with tested.registered():
                check(tested, call)
        except Breach as breach:
            title = f"{tested.title}, {word}"
            text = explained(title, tested.name, breach, breach.call or call, tested.spelled, self._setup())
            raise ConformanceFailure(text) from breach.__cause__

    def _setup(self) -> list[str]:
        """Lines that register the rule."""
        literals = LiteralPrinter()
        try:
            path = literals.path(self.tested.rule)
        except TraceError:  # a local function
            path = "rule"
        note = "  # rule: the one that the suite was given" if path == "rule" else ""
        lines = [f"import {module}" for module in sorted(literals.modules)]
        add = f"add_rules({{{self.tested.name!r}: {path}}}){note}"
        return [*lines, "from thunder_core.autodiff.derivatives.rules import add_rules", "", add]
