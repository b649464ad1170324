"""Finding programs, and what to call them with."""

import sys

import pytest
import torch
import typer

import thunder
from thunder.command_line.program import load_program

SOURCE = """
import functools
import torch
import thunder
import helper

LIMIT = 3

class Net(torch.nn.Module):
    def __init__(self, size=2):
        super().__init__()
        self.size = size
        self.example_inputs = {"x": torch.ones(size)}

    def forward(self, x):
        return x + self.size

class Needs(torch.nn.Module):
    def __init__(self, size):
        super().__init__()

class Fails(torch.nn.Module):
    def __init__(self):
        super().__init__()
        1 + None

class Hooked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_forward_pre_hook(lambda module, args: (*args, 1))

    def forward(self, x, y):
        return x + y

class Plain:
    pass

class Space:
    net = Net(5)

def double(x):
    return helper.two * x

def added(function):
    @functools.wraps(function)
    def called(*args):
        return function(2, *args)

    return called

@added
def wrapped(factor, x):
    return factor * x

def make():
    return Net(4)

def pair(x, y):
    return x

def constant():
    return torch.ones(2)

def inputs():
    return torch.ones(LIMIT), 7

compiled = thunder.jit(double)
model = thunder.jit(Net())
"""


@pytest.fixture
def folder(command, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "nets.py").write_text(SOURCE)
    (tmp_path / "src" / "few.py").write_text(
        "import torch\nfrom math import sin\ndef step(x): ...\nnet = torch.nn.ReLU()\n"
    )
    (tmp_path / "src" / "helper.py").write_text("two = 2\n")
    (tmp_path / "src" / "data.txt").write_text("")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "inner.py").write_text("def f(x): return x\ninputs = [1, 2]\n")
    (tmp_path / "package" / "bad.py").write_text("import absent_library\n")
    return tmp_path


@pytest.fixture
def load(folder):
    return lambda name: load_program(f"src/nets.py:{name}")


def test_module_function_and_compiled_program_are_taken_as_they_are(load):
    assert load("double").called is sys.modules["nets"].double
    assert load("Space.net").called.size == 5
    assert thunder.cache_misses(load("compiled").called) == 0
    assert isinstance(load("model").called, torch.nn.Module)


def test_class_of_modules_and_factory_are_called(load):
    assert load("Net").called.size == 2
    assert load("make").called.size == 4


def test_function_without_parameters_that_makes_no_program_is_one(load):
    program = load("constant")
    assert torch.equal(program.called(), torch.ones(2))
    assert program.arguments(None) == ((), {})


def test_module_by_its_dotted_name_from_the_working_directory(folder):
    program = load_program("package.inner:f")
    assert program.called.__module__ == "package.inner"
    assert program.arguments(None) == (([1, 2],), {})


def test_file_called_like_a_module_does_not_replace_it(folder):
    (folder / "json.py").write_text("def f(x): return x\n")
    assert load_program("json.py:f").called(1) == 1
    assert sys.modules["json"].dumps([]) == "[]"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("src/nets.py", "'src/nets.py' does not name an object; write program.py:model or package.module:model"),
        ("nets.py:", "does not name an object"),
        ("src/absent.py:model", "file not found: src/absent.py"),
        ("absent.part:model", "module not found: 'absent'"),
        ("package.absent:model", "module not found: 'package.absent'"),
        ("src/netz.py:model", "file not found: src/netz.py; did you mean 'nets.py'?"),
        ("../src:model", "'../src' is not the name of a module; write program.py:model or package.module:model"),
        (".nets:model", "'.nets' is not the name of a module"),
        ("src/data.txt:model", "src/data.txt is a file, but its name does not end with .py"),
        ("src/nets.py:Space:net", "'src/nets.py:Space:net' has more than one colon; write program.py:model.part"),
        ("src/nets.py:Space.", "does not name an object"),
        ("src/nets.py:Needs", "src/nets.py:Needs cannot be created without arguments; name an object"),
        ("src/nets.py:Nett", "src/nets.py has no 'Nett'; did you mean 'Net'?"),
        ("src/few.py:model", "src/few.py has no 'model'; it has step, net"),
        ("src/nets.py:LIMIT", "src/nets.py:LIMIT is an object of type int; it must be an nn.Module, a function"),
        ("src/nets.py:Plain", "src/nets.py:Plain is the class Plain; it must be an nn.Module"),
    ],
)
def test_what_is_no_program_is_a_usage_error(folder, target, message):
    with pytest.raises(typer.BadParameter) as caught:
        load_program(target)
    assert message in str(caught.value)


def test_errors_of_the_program_are_its_own(folder, load):
    with pytest.raises(ModuleNotFoundError, match="absent_library"):
        load_program("package.bad:f")
    with pytest.raises(TypeError, match="unsupported operand"):
        load("Fails")


def test_inputs_from_an_expression(load):
    program = load("double")
    assert program.arguments("LIMIT") == ((3,), {})
    assert load("Net").arguments("LIMIT,") == ((3,), {})
    assert load("pair").arguments("LIMIT, [4]") == ((3, [4]), {})
    assert program.arguments("{'x': LIMIT}") == ((), {"x": 3})
    assert program.arguments("({'x': LIMIT},)") == (({"x": 3},), {})
    ((tensor,), _) = program.arguments("torch.full((2,), 5)")
    assert torch.equal(tensor, torch.full((2,), 5))


def test_inputs_from_the_program_then_its_file(load):
    (args, kwargs) = load("Net").arguments(None)
    assert args == ()
    assert torch.equal(kwargs["x"], torch.ones(2))
    (args, kwargs) = load("pair").arguments(None)
    assert torch.equal(args[0], torch.ones(3))
    assert (args[1:], kwargs) == ((7,), {})


def test_layer_called_inputs_is_no_input(folder):
    (folder / "layers.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.inputs = torch.nn.Linear(2, 2)\n"
    )
    with pytest.raises(typer.BadParameter, match="how to call it"):
        load_program("layers.py:Net").arguments(None)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("torch.rand(", "'torch.rand\\(' is not a Python expression: '\\(' was never closed"),
        ("x=torch.ones(2)", "for keyword arguments write a dict"),
        (" ", "it is empty"),
        ("torch.rnd(2)", "AttributeError"),
        ("x", "NameError: name 'x' is not defined"),
        ("exit()", "SystemExit"),
    ],
)
def test_expression_that_cannot_be_evaluated(load, expression, message):
    with pytest.raises(typer.BadParameter, match=message):
        load("double").arguments(expression)


@pytest.mark.parametrize(
    ("name", "expression", "message"),
    [
        ("double", "1, 2", "src/nets.py:double cannot be called with its inputs: too many positional arguments"),
        ("pair", "1", "missing a required argument: 'y'"),
        ("Net", "{'y': 1}", "cannot be called with its inputs"),
        ("pair", "{1: 2}", "names of keyword arguments are text, not 1"),
        ("constant", "1", "too many positional arguments"),
    ],
)
def test_inputs_that_the_program_does_not_take(load, name, expression, message):
    with pytest.raises(typer.BadParameter) as caught:
        load(name).arguments(expression)
    assert message in str(caught.value)


def test_programs_that_are_called_with_more_than_their_inputs(load):
    assert load("Hooked").arguments("2") == ((2,), {})
    assert load("wrapped").arguments("2") == ((2,), {})
    assert load("compiled").arguments("2") == ((2,), {})


def test_inputs_are_made_without_arguments(folder):
    (folder / "other.py").write_text("def f(x): return x\ndef inputs(n): return n\n")
    with pytest.raises(typer.BadParameter, match="`inputs` must be a value, or a function that takes no arguments"):
        load_program("other.py:f").arguments(None)


def test_no_inputs_at_all(command, program):
    program.write_text("import torch\nmodel = torch.nn.Linear(2, 2)\n")
    ended = command("explain", "program.py:model")
    assert (ended.code, ended.out) == (2, "")
    assert "Give --inputs" in ended.err
