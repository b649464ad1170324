"""Source into callables."""

import importlib
import inspect
import linecache
import sys

import pytest
import torch

import thunder
from thunder_core.errors import TraceError
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.program import annotate_exception, compile_source, compile_trace
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import leaves
from thunder_core.symbols import recorded
from thunder_testing import hand_built as build


def test_source_is_shown_while_the_function_lives():
    function = compile_source("def f(x):\n    return x + 1\n", "f", {}, title="sample")
    filename = function.__code__.co_filename
    assert filename.startswith("<thunder sample ")
    assert inspect.getsource(function) == "def f(x):\n    return x + 1\n"
    assert filename in linecache.cache
    linecache.checkcache()
    assert filename in linecache.cache
    del function  # there is no cycle to collect
    assert filename not in linecache.cache


def test_file_names_are_unique():
    functions = [compile_source("def f(): ...", "f", {}, title="same") for _ in range(2)]
    assert functions[0].__code__.co_filename != functions[1].__code__.co_filename


def test_a_name_without_a_dot_is_bound_to_its_target():
    x, y = build.tensor("x", (2,), 0), build.tensor("y", (2,), 1)
    region = Symbol("region", lambda x: x * 2)
    function = compile_trace(build.trace((x,), [build.bound(region, (x,), y)], y))
    assert function(torch.ones(2)).tolist() == [2, 2]


def test_modules_of_custom_names_are_imported():
    x, y = build.tensor("x", (2,), 0), build.tensor("y", (2,), 1)
    symbol = Symbol("thunder_core.ir.tree.leaves", leaves)
    function = compile_trace(build.trace((x,), [build.bound(symbol, ([x],), (y,))], y))
    assert function(torch.ones(2)).tolist() == [1, 1]


@pytest.fixture
def hidden(tmp_path, monkeypatch):
    """A function of a module that nobody gets at from attribute to attribute: its package has a function's name."""
    package = tmp_path / "hiding"
    (package / "part").mkdir(parents=True)
    (package / "__init__.py").write_text("from hiding.part import function\nfrom hiding.part.part import part\n")
    (package / "part" / "__init__.py").write_text("def function(x):\n    return x + 1\n")
    (package / "part" / "part.py").write_text("def part(x):\n    return x\n\n\ndef function(x):\n    return x * 5\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("hiding.part.part").function
    for name in [name for name in sys.modules if name.partition(".")[0] == "hiding"]:
        del sys.modules[name]


def test_a_function_that_another_object_hides_is_bound(hidden):
    x, y = build.tensor("x", (2,), 0), build.tensor("y", (2,), 1)
    symbol = Symbol(f"{hidden.__module__}.{hidden.__name__}", hidden)
    assert import_path(hidden) is None
    assert compile_trace(build.trace((x,), [build.bound(symbol, (x,), y)], y))(torch.ones(2)).tolist() == [5, 5]


def test_a_program_with_a_hidden_function_runs_and_is_not_saved(hidden, tmp_path):
    function = recorded(hidden)
    compiled = thunder.jit(lambda x: function(x) * 2)
    assert compiled(torch.ones(2)).tolist() == [10, 10]
    with pytest.raises(TraceError, match="which a file cannot import"):
        thunder.save_trace(compiled, tmp_path / "program.py")


def test_a_name_that_gives_another_function_is_not_called():
    x, y = build.tensor("x", (2,), 0), build.tensor("y", (2,), 1)
    symbol = Symbol("torch.relu", lambda x: x * 7)
    assert compile_trace(build.trace((x,), [build.bound(symbol, (x,), y)], y))(torch.ones(2)).tolist() == [7, 7]


def test_exceptions_from_elsewhere_get_no_note():
    with pytest.raises(ValueError, match="other") as caught:
        raise ValueError("other")
    annotate_exception(caught.value)
    assert not hasattr(caught.value, "__notes__")


def test_local_functions_and_values_of_one_name_stay_apart():
    x, y, z = (build.tensor(name, (2,), storage) for storage, name in enumerate("xyz"))
    one, other = Symbol("x", lambda x: x * 2), Symbol("x", lambda x: x + 1)
    lines = [build.bound(one, (x,), y), build.bound(other, (y,), z)]
    assert compile_trace(build.trace((x,), lines, z))(torch.ones(2)).tolist() == [3, 3]


def test_a_local_symbol_with_an_importable_target_is_printed_by_its_path():
    x, y = build.tensor("x", (2,), 0), build.tensor("y", (2,), 1)
    symbol = Symbol("Double_apply", Double.apply)
    source = build.trace((x,), [build.bound(symbol, (x,), y)], y).python()
    assert "import tests.ir.test_program" in source
    assert "y = tests.ir.test_program.Double.apply(x)" in source


class Double(torch.autograd.Function):
    """Importable, unlike its bound method ``apply``."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x
