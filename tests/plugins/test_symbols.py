"""Rows about operations that plugins define."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch

import thunder
from tests.plugins import operations
from tests.plugins.conftest import Site, record
from thunder.config import check_config
from thunder_core.autodiff.derivatives.rules import all_rules, remove_rules
from thunder_core.errors import PluginError
from thunder_core.ir.symbol import Tag
from thunder_core.plugins.host import host, reset_host
from thunder_core.plugins.lookup import find
from thunder_core.plugins.specs import CheckSpec, ExecutorSpec
from thunder_core.plugins.states import PluginState
from thunder_core.symbols import operation_names
from thunder_core.symbols import registry as registry_module
from thunder_core.symbols.registry import Registry
from thunder_core.symbols.row import row

SWISH = "tests.plugins.operations.swish"
NORM = "tests.plugins.operations.rms_norm(x, weight, *, eps=1e-5)"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """An own one, so that the rows of these tests are not in the tables of others."""
    fresh = Registry()
    monkeypatch.setattr(registry_module, "registry", fresh)
    return fresh


def test_a_row_makes_equal_calls_equal(registry: Registry) -> None:
    registry.extend([row(NORM, tags=(Tag.NORMALIZATION,))])
    x, weight = torch.ones(2), torch.ones(2)
    symbol, args, kwargs = registry.resolve(operations.rms_norm, (), {"weight": weight, "x": x, "eps": 1e-5})
    assert symbol.name == "tests.plugins.operations.rms_norm"
    assert symbol.tags == {Tag.NORMALIZATION}
    assert args == (x, weight)
    assert kwargs == {}
    assert registry.symbol_named(symbol.name) is symbol
    assert registry.symbol_of(operations.rms_norm) is symbol


def test_what_was_known_before_is_replaced(registry: Registry) -> None:
    before, _, _ = registry.resolve(operations.swish, (torch.ones(2),), {})
    assert Tag.OPAQUE in before.tags
    registry.extend([row(f"{SWISH}(x)", tags=(Tag.ELEMENTWISE,))])
    after, _, _ = registry.resolve(operations.swish, (torch.ones(2),), {})
    assert after.tags == {Tag.ELEMENTWISE}
    assert registry.symbol_of(operations.swish) is registry.symbol_named(SWISH) is after


def test_spellings(registry: Registry) -> None:
    registry.symbol_of(operations.plain)
    registry.extend([row(f"{SWISH}(x)", "tests.plugins.operations.plain")])
    assert registry.symbol_of(operations.plain) is registry.symbol_of(operations.swish)


def test_a_module_that_nobody_imported_yet_is_imported(registry: Registry, site: Site) -> None:
    module = site.module("def operation(x):\n    return x")
    registry.extend([row(f"{module}.operation(x)")])
    assert registry.symbol_of(sys.modules[module].operation).name == f"{module}.operation"


def test_a_module_that_adds_its_own_rows_when_a_name_of_it_is_read(registry: Registry, site: Site) -> None:
    module = site.module(
        "from thunder_core.symbols.registry import registry\n"
        "from thunder_core.symbols.row import row\n"
        "def operation(x):\n    return x\n"
        "registry.extend([row(f'{__name__}.operation(x)')])"
    )
    symbol = registry.symbol_named(f"{module}.operation")
    assert symbol.tags == frozenset()
    assert symbol is registry.symbol_of(sys.modules[module].operation)


@pytest.mark.parametrize("name", ["relu", "sin", "Size"])
def test_names_of_torch_functions_are_not_taken(registry: Registry, site: Site, name: str) -> None:
    """A row ``kernels.relu`` is not about ``torch.relu``, as one of the tables' would be."""
    module = site.module(f"def {name}(x):\n    return x")
    known = registry.symbol_of(torch.relu)
    registry.extend([row(f"{module}.{name}(x)")])
    assert registry.symbol_of(torch.relu) is known
    assert {spelling.name for spelling in row(f"{module}.{name}(x)").spellings} == {f"{module}.{name}"}


def test_the_same_rows_again_change_nothing(registry: Registry) -> None:
    rows = [row(f"{SWISH}(x)")]
    registry.extend(rows)
    symbol = registry.symbol_of(operations.swish)
    registry.extend(rows)
    assert registry.symbol_of(operations.swish) is symbol


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("torch.relu(x)", r"torch\.relu: torch\.relu belongs to the row of torch\.relu"),
        (f"{SWISH}(x, y)", f"{SWISH} belongs to the row of {SWISH}"),
        ("tests.plugins.operations.absent(x)", "about a function that does not exist"),
        ("thunder_test_absent.absent(x)", "about a function that does not exist"),
    ],
)
def test_contradictions_are_errors_and_nothing_is_added(registry: Registry, call: str, message: str) -> None:
    registry.extend([row(f"{SWISH}(x)")])
    with pytest.raises(ValueError, match=message):
        registry.extend([row(NORM), row(call)])
    assert Tag.OPAQUE in registry.symbol_of(operations.rms_norm).tags


def test_two_rows_of_one_function_at_once(registry: Registry) -> None:
    with pytest.raises(ValueError, match="two rows"):
        registry.extend([row(f"{SWISH}(x)"), row(f"{SWISH}(y)")])


def test_operators_of_torch_library(registry: Registry) -> None:
    library = torch.library.Library("thunder_test_rows", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    call = "torch.ops.thunder_test_rows.twice"
    registry.extend([row(f"{call}(x)", f"{call}.default", tags=(Tag.ELEMENTWISE,))])
    operator = torch.ops.thunder_test_rows.twice
    x = torch.ones(1)
    for function in (operator, operator.default):
        symbol, args, kwargs = registry.resolve(function, (), {"x": x})
        assert (symbol.name, symbol.tags, args, kwargs) == (call, {Tag.ELEMENTWISE}, (x,), {})


# ------------------------------------------------------------------------------------------------------ of a plugin

PLUGIN = """
from thunder_core.plugins import *

@hookimpl
def thunder_executors():
    return [ExecutorSpec("alpha", "{module}:make")]

@hookimpl
def thunder_symbols():
    return [SymbolsSpec("SYMBOLS:ROWS")]

@hookimpl
def thunder_doctor():
    return [CheckSpec("it works", "{module}:make")]

def make(options=None):
    return "the executor"
"""
ROWS = f"from thunder_core.symbols.row import row\nROWS = [row('{SWISH}(x)')]"


def _plugin(site: Site, rows: str) -> str:
    symbols = site.module(rows)
    site.plugin("alpha", PLUGIN.replace("SYMBOLS", symbols))
    return symbols


def test_the_rows_of_a_plugin_are_added_when_it_is_used(site: Site, registry: Registry) -> None:
    symbols = _plugin(site, ROWS)
    offered = find(ExecutorSpec, "alpha")
    assert symbols not in sys.modules
    assert Tag.OPAQUE in registry.symbol_of(operations.swish).tags
    for _ in range(2):
        assert host().import_object(offered)() == "the executor"
        assert Tag.OPAQUE not in registry.symbol_of(operations.swish).tags


def test_patterns_of_operations_may_be_about_those_of_executors_that_come_later(
    site: Site, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_names, "registry", registry)
    symbols = site.module(ROWS)
    own = "from thunder_core.executors import OperatorExecutor\n    return OperatorExecutor('alpha', ())"
    site.plugin("alpha", PLUGIN.replace("SYMBOLS", symbols).replace('return "the executor"', own))
    assert check_config({"executors": [{"reference": {"exclude": ["*.operations.swish"]}}, "alpha"]}) == []
    assert len(check_config({"executors": [{"reference": {"exclude": ["*.operations.swash"]}}, "alpha"]})) == 1


RULES = """
import torch

def swish(x):
    return x * torch.sigmoid(x), lambda g: g * 2

RULES = {"tests.plugins.operations.swish": swish}
"""


@pytest.fixture
def no_rules_stay() -> Iterator[None]:
    known = all_rules()
    yield
    remove_rules(all_rules().keys() - known.keys())


@pytest.mark.usefixtures("no_rules_stay")
def test_the_rules_of_a_plugin_give_derivatives(site: Site, registry: Registry) -> None:
    symbols = site.module(f"ROWS = []\n{RULES}")
    site.plugin("alpha", PLUGIN.replace('SYMBOLS:ROWS"', f'{symbols}:ROWS", rules="{symbols}:RULES"'))
    for _ in range(2):
        host().import_object(find(ExecutorSpec, "alpha"))
    x = torch.ones(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(thunder.jit(operations.swish)(x).sum(), x)
    assert torch.equal(gradient, torch.full((3,), 2.0))


@pytest.mark.usefixtures("no_rules_stay")
def test_the_rules_of_a_plugin_that_is_loaded_after_the_first_call(site: Site, registry: Registry) -> None:
    x = torch.ones(3, requires_grad=True)
    program = thunder.jit(operations.swish)
    torch.autograd.grad(program(x).sum(), x)
    symbols = site.module(f"ROWS = []\n{RULES}")
    site.plugin("alpha", PLUGIN.replace('SYMBOLS:ROWS"', f'{symbols}:ROWS", rules="{symbols}:RULES"'))
    reset_host()  # the plugin was installed after plugins were discovered
    host().import_object(find(ExecutorSpec, "alpha"))
    (gradient,) = torch.autograd.grad(program(x).sum(), x)
    assert torch.equal(gradient, torch.full((3,), 2.0))
    reason = thunder.explain(program).entries[-1].reason
    assert reason == f"derivative rules: expected none for {SWISH}, got {symbols}.swish for {SWISH}"


@pytest.mark.usefixtures("no_rules_stay")
def test_the_rules_of_two_plugins_for_one_symbol(site: Site, registry: Registry) -> None:
    """The first plugin keeps its rule; the error names the other plugin and the module of the rule."""
    modules = [site.module(f"ROWS = []\n{RULES}") for _ in range(2)]
    for name, module in zip(("alpha", "beta"), modules, strict=True):
        own = PLUGIN.replace('SYMBOLS:ROWS"', f'{module}:ROWS", rules="{module}:RULES"').replace('"alpha"', f'"{name}"')
        site.plugin(name, own)
    host().import_object(find(ExecutorSpec, "alpha"))
    with pytest.raises(PluginError, match=rf"{SWISH} has a rule already: {modules[0]}") as raised:
        host().import_object(find(ExecutorSpec, "beta"))
    assert "plugin-beta" in str(raised.value)
    assert all_rules()[SWISH].__module__ == modules[0]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("RULES = [len]", "is not a mapping from names of operations to functions"),
        ("RULES = {'a.b': 3}", "is not a mapping from names of operations to functions"),
        (
            "RULES = {'a.b': len, 'torch.matmul': len}",
            "torch.matmul has a rule already: thunder_core.autodiff.",
        ),
    ],
)
def test_rules_that_cannot_be_added(site: Site, registry: Registry, rules: str, message: str) -> None:
    symbols = site.module(f"ROWS = []\n{rules}")
    site.plugin("alpha", PLUGIN.replace('SYMBOLS:ROWS"', f'{symbols}:ROWS", rules="{symbols}:RULES"'))
    known = set(all_rules())
    with pytest.raises(PluginError, match=message):
        host().import_object(find(ExecutorSpec, "alpha"))
    assert set(all_rules()) == known


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("from thunder_core.symbols.row import row\nROWS = [row('torch.relu(x)')]", "these rows contradict others"),
        ("ROWS = 3", "is int, and not a list of Row"),
        ("ROWS = ['torch.relu(x)']", "holds str, and not only Row"),
        ("1 / 0", "its symbols cannot be added: ZeroDivisionError: division by zero"),
    ],
)
def test_rows_that_cannot_be_added(site: Site, registry: Registry, rows: str, message: str) -> None:
    _plugin(site, rows)
    with pytest.raises(PluginError, match=message):
        host().import_object(find(ExecutorSpec, "alpha"))
    assert record("alpha").state is PluginState.FAILED
    (check,) = [offered for offered in host().offered(CheckSpec) if offered.plugin.name == "alpha"]
    assert host().import_object(check)() == "the executor"
