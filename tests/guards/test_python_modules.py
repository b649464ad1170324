"""Variables of Python modules, also of the standard library's and PyTorch's, however code reads them."""

import collections
import fractions
import importlib
import inspect
import math
import operator
import random
import string
import sys
import types
from unittest import mock

import pytest
import torch

import thunder

OWN = types.ModuleType("a_module_of_the_user")
MODULES = (OWN, math, torch)
MODULE = OWN
COMPUTED = ("sc", "ale")


def by_import(x):
    return x * importlib.import_module(MODULE.__name__).scale


def by_sys_modules(x):
    module = sys.modules[MODULE.__name__]
    return x * module.scale


READS = {
    "attribute": lambda x: x * MODULE.scale,
    "attribute of a default": lambda x, modules=MODULES: x * sum(module.scale for module in modules),
    "item of a tuple": lambda x, modules=MODULES: x * (modules[0].scale + modules[1].scale + modules[2].scale),
    "getattr": lambda x: x * getattr(MODULE, "scale"),  # noqa: B009
    "getattr with a default": lambda x: x * getattr(MODULE, "scale", 1.0),
    "getattr of a computed name": lambda x: x * getattr(MODULE, "".join(COMPUTED)),
    "vars": lambda x: x * vars(MODULE)["scale"],
    "__dict__": lambda x: x * MODULE.__dict__["scale"],
    "get": lambda x: x * MODULE.__dict__.get("scale"),
    "items": lambda x: x * dict(vars(MODULE).items())["scale"],
    "attrgetter": lambda x: x * operator.attrgetter("scale")(MODULE),
    "format": lambda x: x * float("{0.scale}".format(MODULE)),  # noqa: UP030, UP032
    "import": by_import,
    "sys.modules": by_sys_modules,
    "members": lambda x: x * dict(inspect.getmembers(OWN))["scale"] * MODULE.scale,
}


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
@pytest.mark.parametrize("read", READS)
def test_a_change_is_seen(monkeypatch, read, module):
    monkeypatch.setitem(sys.modules, OWN.__name__, OWN)
    monkeypatch.setitem(globals(), "MODULE", module)
    for each in MODULES:
        monkeypatch.setattr(each, "scale", 2.0, raising=False)
    program = READS[read]
    compiled, x = thunder.jit(program), torch.ones(2)
    assert torch.equal(compiled(x), program(x))
    monkeypatch.setattr(module, "scale", 3.0)
    assert torch.equal(compiled(x), program(x))


PATCHES = {
    "__import__": (math, "pi", 3.0, lambda x: x * __import__("math").pi),
    "math.pi": (math, "pi", 3.0, lambda x: x * math.pi),
    "math.floor": (math, "floor", math.ceil, lambda x: x * math.floor(2.5)),
    "string.digits": (string, "digits", "12", lambda x: x * len(string.digits)),
    "torch.pi": (torch, "pi", 3.0, lambda x: x * torch.pi),
    "sys.flags": (sys, "own", 1, lambda x: x * (2 if hasattr(sys, "own") else 1)),
    "absent": (random, "own", 1, lambda x: x * getattr(random, "own", 2)),
}


@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_is_seen_and_its_end(name):
    module, attribute, value, program = PATCHES[name]
    compiled, x = thunder.jit(program), torch.ones(2)
    assert torch.equal(compiled(x), program(x))
    with mock.patch.object(module, attribute, value, create=True):
        assert torch.equal(compiled(x), program(x))
    assert torch.equal(compiled(x), program(x))


LAYER = torch.nn.Linear(2, 2)
FRACTION = fractions.Fraction(1, 2)
ADDED = {
    "of a class": (collections.Counter, lambda x: x * collections.Counter.added),
    "of an object": (fractions.Fraction, lambda x: x * FRACTION.added),
    "of a created object": (fractions.Fraction, lambda x: x * fractions.Fraction(1, 2).added),
    "of a tensor": (torch.Tensor, lambda x: x * (x + 1).added),
    "of a module": (torch.nn.Linear, lambda x: LAYER(x) * LAYER.added),
}


@pytest.mark.parametrize("name", ADDED)
def test_an_attribute_that_a_user_adds_to_a_class(monkeypatch, name):
    kind, program = ADDED[name]
    compiled, x = thunder.jit(program), torch.ones(2)
    for value in (2.0, 3.0, torch.ones(2)):
        monkeypatch.setattr(kind, "added", value, raising=False)
        assert torch.equal(compiled(x), program(x))


DEFINITIONS = """
class Scale:
    by_class = 2.0
    def __init__(self): self.own = 2.0
    def __call__(self, x): return x * self.by_class * self.own
scale = Scale()
def program(x): return scale(x)
"""


@pytest.mark.parametrize("variables", [{}, {"__name__": "a_module_that_is_not_loaded"}], ids=["without name", "named"])
def test_classes_that_exec_defines(variables):
    namespace = dict(variables)
    exec(DEFINITIONS, namespace)
    compiled, x = thunder.jit(namespace["program"]), torch.ones(2)
    for change in ((namespace["Scale"], "by_class"), (namespace["scale"], "own"), (namespace["scale"], "by_class")):
        assert torch.equal(compiled(x), namespace["program"](x))
        setattr(*change, 5.0)
        assert torch.equal(compiled(x), namespace["program"](x))


class Backend:
    """As in einops: ``torch.torch`` is PyTorch itself."""

    def __init__(self):
        self.torch = torch

    def add_axis(self, x):
        return self.torch.unsqueeze(x, 0)


def test_a_module_that_refers_to_itself():
    backend, x = Backend(), torch.ones(2)
    assert vars(torch)["torch"] is torch
    assert thunder.jit(lambda x: backend.add_axis(x))(x).shape == (1, 2)
