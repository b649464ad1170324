"""Packed sequences: recurrent networks in programs and compiled themselves, and other tuples with a ``__new__``."""

import copy
import typing
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import thunder
from thunder_core.errors import UncacheableWarning

LENGTHS = ([7, 5, 3, 2], [7, 5, 3, 2], [6, 6, 1], [4])


class Padded(nn.Module):
    """Packs its argument, and pads the result."""

    def __init__(self, kind, **options):
        super().__init__()
        self.recurrent, self.sorted = kind(4, 5, batch_first=True, **options), True
        self.last = nn.Linear(self.recurrent(torch.randn(1, 1, 4))[0].shape[-1], 2)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=self.sorted)
        result, state = self.recurrent(packed)
        return self.last(pad_packed_sequence(result, batch_first=True)[0]), result, state


class Packed(nn.Module):
    """Passes a packed sequence on."""

    def __init__(self, recurrent):
        super().__init__()
        self.recurrent = recurrent

    def forward(self, packed):
        return self.recurrent(packed)


def step(program, module, *args):
    """The result of a training step, its leaves and the gradients."""
    module.zero_grad()
    result = program(*args)
    leaves = [leaf for leaf in flat(result) if isinstance(leaf, torch.Tensor)]
    trained = [leaf for leaf in leaves if leaf.requires_grad]
    if trained:
        sum(leaf.sin().sum() for leaf in trained).backward()
    return result, leaves, [parameter.grad for parameter in module.parameters()]


def flat(value):
    return [leaf for item in value for leaf in flat(item)] if isinstance(value, tuple) else [value]


def classes(value):
    return [type(value), *map(classes, value)] if isinstance(value, tuple) else type(value)


def compare(module, calls):
    """Each call is as in eager."""
    compiled = thunder.jit(copy.deepcopy(module))
    for args in calls:
        (result, *values), (expected, *others) = step(compiled, compiled, *args), step(module, module, *args)
        assert classes(result) == classes(expected)
        torch.testing.assert_close(values, others, rtol=0, atol=0)


OPTIONS = {"one layer": {}, "two layers": {"num_layers": 2, "bidirectional": True}}
KINDS = {
    "gru": nn.GRU,
    "lstm": nn.LSTM,
    "tanh": nn.RNN,
    "relu": lambda *args, **options: nn.RNN(*args, nonlinearity="relu", **options),
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.battery
def test_packed_in_the_program(kind, options) -> None:
    """The process ended: kernels read the batch sizes of a fake tensor, whose number of steps varies."""
    calls = [(torch.randn(len(lengths), lengths[0], 4), torch.tensor(lengths)) for lengths in LENGTHS]
    compare(Padded(kind, **options), calls)


@pytest.mark.slow
def test_sequences_that_are_not_sorted() -> None:
    module = Padded(nn.GRU)
    module.sorted = False
    compare(module, [(torch.randn(3, 5, 4), torch.tensor(lengths)) for lengths in ([2, 5, 1], [5, 1, 1], [5, 5, 5])])


@pytest.mark.parametrize("whole", [True, False], ids=["compiled itself", "submodule"])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.battery
def test_packed_arguments(kind, grad, whole) -> None:
    recurrent = kind(4, 5, batch_first=True)
    packed = [pack_padded_sequence(torch.randn(len(n), n[0], 4), torch.tensor(n), batch_first=True) for n in LENGTHS]
    with torch.set_grad_enabled(grad):
        compare(recurrent if whole else Packed(recurrent), [(one,) for one in packed])


FUNCTIONS = {
    "padded": lambda packed: pad_packed_sequence(packed),
    "elements": lambda packed: packed.data * 2,
    "itself": lambda packed: packed,
    "cast": lambda packed: packed.to(torch.float64),
    "batch sizes": lambda packed: packed.data[: int(packed.batch_sizes[0])],
    "packed again": lambda packed: pack_sequence([packed.data[:3], packed.data[:2]]),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_of_packed_sequences(function) -> None:
    """Padding ended the process: its kernel ran on sample values for the batch sizes, which it does not check."""
    compiled = thunder.jit(function)
    for lengths in ([5, 3, 2], [5, 3, 2], [4, 4]):
        packed = pack_padded_sequence(torch.randn(5, len(lengths), 4), torch.tensor(lengths))
        result, expected = compiled(packed), function(packed)
        assert classes(result) == classes(expected)
        torch.testing.assert_close(flat(result), flat(expected), rtol=0, atol=0)


@pytest.mark.slow
def test_module_that_pads_and_reads_values() -> None:
    """Submodules that depend on values are tried on samples, too."""

    class Inner(nn.Module):
        def forward(self, data, sizes):
            padded, lengths = pad_packed_sequence(PackedSequence(data, sizes, None, None))
            return data * padded.shape[0] if lengths.sum() > 3 else data

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, data, sizes):
            return self.inner(data, sizes) + 1

    compare(Outer(), [(torch.randn(6, 2), torch.tensor(sizes)) for sizes in ([3, 2, 1], [3, 3], [1] * 6)])


# ---- tuples ----------------------------------------------------------------------------------------------------------


class Pair(typing.NamedTuple):
    first: torch.Tensor
    second: object


class FromOne(Pair):
    """A named tuple that is created from one argument."""

    def __new__(cls, first):
        return super().__new__(cls, first, first + 1)


class Items(tuple):
    """A tuple that is created from its items as arguments."""

    def __new__(cls, *items):
        return super().__new__(cls, items)


class Scaled(tuple):
    """A tuple that is created from what it does not hold."""

    def __new__(cls, x, scale):
        return super().__new__(cls, (x * scale, x))


class Plain(tuple):
    """A subclass without methods."""

    __slots__ = ()


def with_attribute(x):
    items = Items(x, x + 1)
    items.name = "name"
    return items


def local(x):
    class Local(tuple):
        __slots__ = ()

    return Local((x, x + 1))


def check(program, create):
    """Two calls as in eager, with the gradients of the arguments."""
    compiled = thunder.jit(program)
    for seed in range(2):
        outcomes = []
        for each in (program, compiled):
            torch.manual_seed(seed)
            args = create()
            result = each(*args)
            if result.requires_grad:
                result.sum().backward()
            outcomes.append((result, [arg.grad for arg in args if isinstance(arg, torch.Tensor)]))
        torch.testing.assert_close(outcomes[1], outcomes[0], rtol=0, atol=0)


class Uses(torch.autograd.Function):
    """Checks the class of its argument, and reads an attribute of it."""

    @staticmethod
    def forward(ctx, x, items):
        assert type(items) is not tuple
        return x * items[0] * len(getattr(items, "name", ""))

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2, None


TUPLES = {
    "named": lambda x: Pair(x, x + 1),
    "from one": FromOne,
    "items": Items,
    "scaled": lambda x: Scaled(x, 3),
    "plain": lambda x: Plain((x, x + 1)),
    "attribute": with_attribute,
    "local": local,
}
CREATED: typing.Final = set(TUPLES) - {"attribute", "local"}


@pytest.mark.parametrize("name", TUPLES)
def test_tuples_as_arguments_and_results(name: str) -> None:
    """Instances are rebuilt from their items, not by a call of their class."""
    create = TUPLES[name]
    check(lambda items: torch.stack(items) * 2, lambda: (create(torch.randn(3)),))
    check(lambda x: torch.stack(create(x)), lambda: (torch.randn(3),))
    check(lambda x, items: Uses.apply(x, items), lambda: (torch.randn(3, requires_grad=True), create(torch.ones(3))))
    if name != "local":  # each call has another class
        result = thunder.jit(lambda x: create(x))(torch.ones(3))
        assert type(result) is type(create(torch.ones(3)))
        assert vars(result) == vars(create(torch.ones(3))) if hasattr(result, "__dict__") else True
        torch.testing.assert_close(tuple(result), tuple(create(torch.ones(3))))


@pytest.mark.parametrize("name", TUPLES)
def test_tuples_that_a_program_passes_to_functions(name: str) -> None:
    def program(x, y):
        return Uses.apply(x, TUPLES[name](y * 2))

    reason = "holds a tensor of the program"
    with nullcontext() if name in CREATED else pytest.warns(UncacheableWarning, match=reason):
        check(program, lambda: (torch.randn(3, requires_grad=True), torch.randn(3)))
