"""What every random program can use. Its source is the beginning of each program's source."""

# ruff: noqa: F401 - programs use these modules

import collections
import contextlib
import copy
import functools
import itertools
import logging
import operator
import random
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

SCALE = 2.0
COUNT = 0
CURRENT = None
LOG = []
TABLE = {}
HANDLES = []
Pair = collections.namedtuple("Pair", "first second")


class Node:
    """An object that is compared by identity."""

    def __init__(self, value):
        self.value = value


class Settings:
    """An object with a computed attribute, and with one that is looked up in a dict."""

    scale = 1.5

    def __init__(self):
        self.rate = 0.5
        self.extra = {"bias": 0.25}

    @property
    def doubled(self):
        return self.rate * 2

    def __getattr__(self, name):
        extra = self.__dict__.get("extra", {})
        if name in extra:
            return extra[name]
        raise AttributeError(name)


class Counting:
    """An object that counts its attribute lookups, by name."""

    def __init__(self, inner):
        self.asked = []
        self.inner = inner

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__["asked"].append(name)
        return getattr(self.__dict__["inner"], name)


class Note(UserWarning):
    """A warning of the program's."""


class Lines(logging.Handler):
    """Writes where ``print`` does."""

    def emit(self, record):
        sys.stdout.write(f"{record.levelname} {record.lineno} {record.getMessage()}\n")


logger = logging.getLogger("random_program")
logger.handlers[:] = [Lines()]


class Image(torch.Tensor):
    """A subclass that behaves as its base."""


class TwoResults(torch.autograd.Function):
    """Its backward shows which cotangents are None."""

    @staticmethod
    def forward(ctx, x, y, materialize, saves):
        ctx.set_materialize_grads(materialize)
        if saves:
            ctx.save_for_backward(x, y)
        ctx.saves = saves
        return x.sin(), y * 3

    @staticmethod
    def backward(ctx, first, second):
        x, y = ctx.saved_tensors if ctx.saves else (1.0, 2.0)
        one = x * 0 + 5.0 if first is None else first * x
        two = y * 0 + 7.0 if second is None else second * y
        shape = (first if first is not None else second).shape
        return torch.zeros(shape) + one, torch.zeros(shape) + two, None, None


class Marked(torch.autograd.Function):
    """One result without a gradient."""

    @staticmethod
    def forward(ctx, x):
        values, indices = x * 2, (x > 0).float()
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices)
        return values, indices

    @staticmethod
    def backward(ctx, first, second):
        (indices,) = ctx.saved_tensors
        return first * indices


class Overwriting(torch.autograd.Function):
    """Writes its argument."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent * 3


class WithSetup(torch.autograd.Function):
    """Forward and context apart."""

    @staticmethod
    def forward(x, factor):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]
        ctx.needs = ctx.needs_input_grad

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent * ctx.factor if ctx.needs[0] else None, None


class Block(torch.nn.Module):
    """A module with parameters, a buffer, and state of Python."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.norm = torch.nn.BatchNorm1d(3, eps=0.1)  # the gradient of two rows would be rounding errors, magnified
        self.register_buffer("total", torch.zeros(3))
        self.calls = 0
        self.last = None

    def forward(self, x):
        self.calls += 1
        y = self.norm(self.linear(x))
        self.total += y.detach().sum(0)
        return torch.tanh(y) * SCALE


def counter():
    """Two closures over one number and one tensor."""
    count, kept = 0, None

    def step(x):
        nonlocal count, kept
        count += 1
        kept = x * count
        return kept

    def read():
        return count, kept

    return step, read


def pieces(*tensors):
    """A generator of tensors."""
    for index, tensor in enumerate(tensors):
        yield tensor * (index + 1)


class World:
    """The state that a program reads and writes."""

    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.weight = torch.nn.Parameter(torch.randn(2, 3, generator=generator))
        self.frozen = torch.randn(2, 3, generator=generator)
        self.buffer = torch.ones(2, 3)
        self.samples = torch.linspace(-1, 2, 12).view(4, 3)
        self.block = Block()
        with torch.no_grad():
            for parameter in self.block.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        self.generator = torch.Generator().manual_seed(2)
        self.settings = Settings()
        self.counting = Counting(self.settings)
        logger.setLevel(logging.INFO)
        self.nodes = [Node(1), Node(2), Node(3)]
        self.members = [self.nodes[0], self.nodes[1]]
        self.by_node = {self.nodes[0]: 1.5, self.nodes[1]: 2.5}
        self.flags = {"on": True, "off": False}
        self.options = {"a": 1.0, "b": 2.0}
        self.items = []
        self.queue = collections.deque(maxlen=3)
        self.step, self.read = counter()
        self.names = {"first", "second"}
        self.optimizer = torch.optim.SGD([self.weight], lr=0.1, momentum=0.9)
