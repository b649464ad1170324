"""Loaded programs compute what the compiled ones and eager PyTorch do, bit by bit."""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.errors import OptionError, SavedProgramError, UnsupportedError


class Model(nn.Module):
    """Calls a function with itself; it has a layer, normalization, dropout and a buffer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("factor", torch.full((), 2.0), persistent=False)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Record:
    value: Any
    count: int = 2


@dataclasses.dataclass(slots=True)
class Slots:
    value: Any
    count: Any


def leaves(value: Any) -> list[Any]:
    """The tensors and plain values in a structure."""
    if dataclasses.is_dataclass(value):
        return [leaf for each in dataclasses.fields(value) for leaf in leaves(getattr(value, each.name))]
    if isinstance(value, dict):
        return [leaf for key, each in value.items() for leaf in (key, *leaves(each))]
    return [leaf for each in value for leaf in leaves(each)] if isinstance(value, list | tuple) else [value]


def assert_same(value: Any, expected: Any) -> None:
    assert type(value) is type(expected)
    for one, other in zip(leaves(value), leaves(expected), strict=True):
        assert type(one) is type(other)
        if not isinstance(one, torch.Tensor):
            assert one == other
            continue
        assert torch.equal(one, other)
        assert (one.stride(), one.dtype, one.requires_grad) == (other.stride(), other.dtype, other.requires_grad)


def differentiable(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def assert_like_eager(
    eager: Any, loaded: Any, args: tuple[Any, ...], kwargs: dict[str, Any], pick: Callable[..., Any] = differentiable
) -> None:
    """Results, arguments, gradients, buffers and random streams of one call are those of eager."""
    given, expected = [], []
    for model, collected in ((eager, expected), (loaded, given)):
        own_args, own_kwargs = copy.deepcopy((args, kwargs))
        torch.manual_seed(0)
        result = model(*own_args, **own_kwargs)
        collected += [result, own_args, own_kwargs, torch.rand(2)]
        if pick(result):
            torch.stack([value.float().sum() for value in pick(result)]).sum().backward()
    assert_same(given, expected)
    if isinstance(eager, nn.Module):
        for one, other in zip(loaded.parameters(), eager.parameters(), strict=True):
            assert_same(one.grad, other.grad)
        for one, other in zip(loaded.buffers(), eager.buffers(), strict=True):
            assert torch.equal(one, other)


def load_saved(model: Any, path: Path, example: Any, **options: Any) -> Any:
    thunder.save(thunder.jit(model, **options), path / "model.thunder", example=example)
    return thunder.load(path / "model.thunder")


def autocast_region(m: Model, x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = m.linear(x)
    return y, m.linear(y.float())


def without_grad(m: Model, x: torch.Tensor) -> Any:
    with torch.no_grad():
        y = m.linear(x)
    return y + m.linear(x)


def views(m: Model, x: torch.Tensor) -> Any:
    y = m.linear(x)
    return y, y.t(), y, x, x[1:]


def writes(m: Model, x: torch.Tensor) -> Any:
    x[0].mul_(2)
    m.calls.add_(1)
    return m.linear(x) * m.calls * m.factor


def defaults(m: Model, x: torch.Tensor) -> Any:
    found = collections.defaultdict(list)
    found["a"].append(m.linear(x))
    return found


X = torch.randn(3, 4)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "batch norm, dropout": (lambda m, x: m.dropout(m.norm(m.linear(x))) + torch.rand(3, 4), (X,), {}),
    "writes": (writes, (X,), {}),
    "views and repeated results": (views, (X,), {}),
    "nested": (
        lambda m, d, k=None: {"a": [m.linear(d["x"][0]), None, {"q": (d["n"],)}], k: torch.Size([2])},
        ({"x": [X], "n": 3},),
        {"k": "hi"},
    ),
    "record": (lambda m, r: Record(m.linear(r.value) * r.count, 5), (Record(X, 3),), {}),
    "slots": (lambda m, r: Slots(m.linear(r.value), r.count), (Slots(X, 3),), {}),
    "named tuple": (lambda m, p: Pair(m.linear(p.first), p.second), (Pair(X, 3),), {}),
    "ordered dict": (lambda m, x: collections.OrderedDict(a=m.linear(x), b=x.shape, c=x.dtype, d=x.device), (X,), {}),
    "default dict": (defaults, (X,), {}),
    "result types": (lambda m, x: (torch.max(m.linear(x), 0), x.sort()), (X,), {}),
    "autocast region": (autocast_region, (X,), {}),
    "without grad": (without_grad, (X,), {}),
    "checkpoint": (
        lambda m, x: checkpoint(lambda y: m.dropout(m.linear(y).relu()), x, use_reentrant=False),
        (X,),
        {},
    ),
    "cond": (lambda m, x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y * 2, (x,)), (X,), {}),
    "operators": (
        lambda m, x: (
            torch.einsum("ij,kj->ik", x, m.linear.weight),
            F.scaled_dot_product_attention(x[None], x[None], m.linear(x)[None]),
            F.one_hot(torch.arange(3)),
            x[:, [0, 1]],
            torch.where(x > 0, x, float("inf")),
            torch.fft.fft(x) * (1 + 2j),
            x.to(torch.float64)[..., None],
        ),
        (X,),
        {},
    ),
    "item": (lambda m, x: m.linear(x) * x.sum().item(), (X,), {}),
    "sizes of results": (lambda m, x: m.linear(x[x[:, 0] > 0]), (X,), {}),
    "gradient of an argument": (lambda m, x: m.linear(x), (X.clone().requires_grad_(),), {}),
    "no tensor": (lambda m, x: None, (X,), {}),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.slow
def test_like_eager(name: str, tmp_path: Path) -> None:
    function, args, kwargs = PROGRAMS[name]
    model = Model(function)
    loaded = load_saved(model, tmp_path, (args, kwargs))
    for _ in range(2):
        assert_like_eager(model, loaded, args, kwargs)


@pytest.mark.parametrize("picked", [[0], [1], [0, 2], [0, 1, 2]], ids=str)
def test_backward_from_some_results(picked: list[int], tmp_path: Path) -> None:
    model = Model(lambda m, x: (m.linear(x), m.linear(x).tanh(), m.linear(x * 3)))
    loaded = load_saved(model, tmp_path, X)
    assert_like_eager(model, loaded, (X,), {}, lambda result: [result[index] for index in picked])


def test_backward_that_is_not_saved(tmp_path: Path) -> None:
    compiled = thunder.jit(Model(lambda m, x: tuple([m.linear(x * n) for n in range(5)])))
    results = compiled(X)
    (results[0] + results[1]).sum().backward()  # such a backward is saved, as it has run
    thunder.save(compiled, tmp_path / "model.thunder")
    loaded = thunder.load(tmp_path / "model.thunder")
    results = loaded(X)
    (results[0] + results[1]).sum().backward()
    assert_same(loaded.linear.weight.grad, compiled.linear.weight.grad)
    results = loaded(X)
    with pytest.raises(SavedProgramError, match=r"from those of the results \(2, 3\); it has programs for"):
        (results[2] + results[3]).sum().backward()


@pytest.mark.slow
def test_several_programs(tmp_path: Path) -> None:
    """Sizes, keyword arguments, numbers, training and inference in one file; other calls are refused."""
    model = Model(lambda m, x, scale=1: m.dropout(m.norm(m.linear(x))) * scale)
    compiled = thunder.jit(model, dynamic=False)
    with torch.no_grad():
        compiled(X)
    model.eval()
    compiled(X)
    model.train()
    examples = [(X,), (torch.randn(2, 4),), {"x": X}, ((X,), {"scale": 3}), (X, 2.5)]
    thunder.save(compiled, tmp_path / "model.thunder", example=examples)
    loaded = thunder.load(tmp_path / "model.thunder")
    model.load_state_dict(loaded.state_dict())
    assert len(loaded.saved_programs) == 7
    for args, kwargs in [((X,), {}), ((examples[1][0],), {}), ((), {"x": X}), ((X,), {"scale": 3}), ((X, 2.5), {})]:
        assert_like_eager(model, loaded, args, kwargs)
    with torch.no_grad():
        assert_like_eager(model, loaded, (X,), {})
    model.eval(), loaded.eval()
    assert_like_eager(model, loaded, (X,), {})
    for call, difference in [
        (lambda: loaded(torch.randn(5, 4)), r"\[0\]: shape \(5, 4\) instead of \(3, 4\)"),
        (lambda: loaded(X.double()), r"dtype torch.float64 instead of torch.float32"),
        (lambda: loaded(X, 7), "expected 2.5, got 7"),
        (lambda: loaded(X, y=1), "expected the keyword arguments"),
        (lambda: loaded.train(), ""),
        (lambda: torch.no_grad()(loaded)(torch.randn(2, 4)), "torch grad_enabled: expected True, got False"),
    ]:
        if not difference:
            call()
            continue
        with pytest.raises(SavedProgramError, match=difference) as caught:
            call()
        assert "training, evaluation mode: args[0]: tensor Tensor float32 (3, 4) stride (4, 1) cpu" in str(caught.value)


@pytest.mark.parametrize("shapes", [[(3, 4)], [(3, 4), (6, 4)]], ids=["dynamic", "after two sizes"])
def test_sizes_that_vary(shapes: list[tuple[int, int]], tmp_path: Path) -> None:
    model = Model(lambda m, x: torch.cat([m.linear(x), x]).view(2, -1, 4) * x.shape[0])
    options = {"dynamic": True} if len(shapes) == 1 else {}
    loaded = load_saved(model, tmp_path, [(torch.randn(shape),) for shape in shapes], **options)
    for size in (2, 5, 9):
        assert_like_eager(model, loaded, (torch.randn(size, 4),), {})
    with pytest.raises(SavedProgramError, match=r"covers this call of Model:\n  0, training: args\[0\]: tensor"):
        loaded(torch.randn(3, 5))


def test_modes(tmp_path: Path) -> None:
    model = Model(lambda m, x: m.linear(x) @ x.t())
    for index, mode in enumerate([torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode()]):
        folder = tmp_path / str(index)
        folder.mkdir()
        with mode:
            loaded = load_saved(model, folder, (torch.ones(3, 4),))
            assert_like_eager(model, loaded, (torch.ones(3, 4),), {}, lambda result: [])
        with pytest.raises(SavedProgramError, match=r"torch (autocast|grad_enabled)"):
            loaded(torch.ones(3, 4))


def test_values_that_decide(tmp_path: Path) -> None:
    """Both outcomes of a branch are saved if both have run; a third is refused, and leaves the generator as it was."""
    model = Model(lambda m, x: m.linear(x) + torch.rand(()) if x.sum() > 0 else m.linear(-x))
    compiled = thunder.jit(model)
    compiled(X.abs())
    thunder.save(compiled, tmp_path / "one.thunder")
    compiled(-X.abs())
    thunder.save(compiled, tmp_path / "both.thunder")
    loaded = thunder.load(tmp_path / "both.thunder")
    for x in (X.abs(), -X.abs()):
        assert_like_eager(model, loaded, (x,), {})
    state = torch.get_rng_state()
    with pytest.raises(SavedProgramError, match=r"recorded with the value True, which now is False"):
        thunder.load(tmp_path / "one.thunder")(-X.abs())
    assert torch.equal(torch.get_rng_state(), state)


def test_functions_and_their_tensors(tmp_path: Path) -> None:
    weight, constant = nn.Parameter(torch.randn(4)), torch.randn(4)
    loaded = load_saved(lambda x: x * weight + constant, tmp_path, (X,))
    assert torch.equal(loaded(X), X * weight + constant)
    loaded(X).sum().backward()
    (gradient,) = [parameter.grad for parameter in loaded.parameters()]
    assert torch.equal(gradient, X.sum(0))
    assert list(loaded.buffers()) == []


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.block = self.again = nn.Linear(4, 4)
        self.view = nn.Parameter(torch.randn(4, 8)[:, ::2].detach())

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.head(self.again(self.block(self.embedding(index) + self.view[0])))


def test_tied_weights_and_the_state(tmp_path: Path) -> None:
    model = Tied()
    index = torch.tensor([0, 3])
    loaded = load_saved(model, tmp_path, (index,))
    assert loaded.head.weight is loaded.embedding.weight
    assert loaded.block is loaded.again
    assert loaded.state_dict().keys() == model.state_dict().keys()
    assert [name for name, _ in loaded.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert loaded.view.stride() == model.view.stride()
    assert_like_eager(model, loaded, (index,), {})


def test_a_module_or_a_state_dict_replaces_the_state(tmp_path: Path) -> None:
    model, other = (
        Model(lambda m, x: m.norm(m.linear(x)) * m.factor),
        Model(lambda m, x: m.norm(m.linear(x)) * m.factor),
    )
    load_saved(model, tmp_path, (X,))
    loaded = thunder.load(tmp_path / "model.thunder", module=other)
    assert loaded.linear.weight is other.linear.weight
    twin = copy.deepcopy(other)
    assert_like_eager(twin, loaded, (X,), {})
    assert torch.equal(other.norm.running_mean, twin.norm.running_mean)
    assert torch.equal(other.linear.weight.grad, twin.linear.weight.grad)
    state = copy.deepcopy(model.state_dict())
    loaded = thunder.load(tmp_path / "model.thunder", module=state)
    assert loaded.linear.weight.data_ptr() == state["linear.weight"].data_ptr()
    assert_like_eager(model, loaded, (X,), {})
    del state["calls"]
    state["linear.bias"] = state["linear.bias"].double()
    state["linear.weight"] = torch.zeros(5, 4)
    state["more"] = torch.zeros(1)
    with pytest.raises(SavedProgramError) as caught:
        thunder.load(tmp_path / "model.thunder", module=state)
    for text in (
        "calls is missing",
        "more is not in the file",
        "linear.bias: the file has dtype torch.float32, this is torch.float64",
        "linear.weight: the file has shape (4, 4), this is (5, 4)",
    ):
        assert text in str(caught.value)
    with pytest.raises(SavedProgramError, match=r"norm.weight is missing"):
        thunder.load(tmp_path / "model.thunder", module=nn.Linear(4, 4))


def test_an_optimizer_trains_it(tmp_path: Path) -> None:
    model = Model(lambda m, x: m.norm(m.linear(x)))
    loaded = load_saved(model, tmp_path, (X,))
    for each in (model, loaded):
        optimizer = torch.optim.AdamW(each.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            each(X).square().sum().backward()
            optimizer.step()
    for one, expected in zip(loaded.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, expected)
    with pytest.raises(UnsupportedError, match=r"no second derivatives"):
        torch.autograd.grad(loaded(X).square().sum(), loaded.linear.weight, create_graph=True)
    with pytest.raises(UnsupportedError, match=r"cannot be copied"):
        copy.deepcopy(loaded)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


def sets_attribute(m: Model, x: torch.Tensor) -> Any:
    m.last = x.sum()
    return m.linear(x)


def hooks(m: Model, x: torch.Tensor) -> Any:
    y = m.linear(x)
    y.register_hook(lambda grad: grad * 2)
    return y


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (sets_attribute, r"writes to 1 Python object\(s\).*Model.__dict__\['last'\] = o0"),
        (hooks, "an argument of .*hook.*, is an object of type function.*in hooks: y.register_hook"),
        (lambda m, x: Doubled.apply(m.linear(x)), "calls Function_apply.*no operator.*test_programs.py"),
        (lambda m, x: m.norm, "needs|Python object|as eager PyTorch runs|no file can have"),
    ],
    ids=["attribute", "hook", "autograd function", "module"],
)
def test_what_cannot_be_saved(function: Callable[..., Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="(?s)" + message):
        load_saved(Model(function), tmp_path, (X,))
    assert list(tmp_path.iterdir()) == []


def test_wrong_examples(tmp_path: Path) -> None:
    compiled = thunder.jit(Model(lambda m, x: m.linear(x)))
    with pytest.raises(OptionError, match=r"has no compiled program to save"):
        thunder.save(compiled, tmp_path / "model.thunder")
    with pytest.raises(OptionError, match=r"an example is a tuple of arguments or a dict"):
        thunder.save(compiled, tmp_path / "model.thunder", example=3)
    with pytest.raises(OptionError, match=r"was not returned by thunder.jit"):
        thunder.save(nn.Linear(2, 2), tmp_path / "model.thunder", example=X)


def test_saving_runs_nothing(tmp_path: Path) -> None:
    model = Model(writes)
    x = X.clone()
    loaded = load_saved(model, tmp_path, (x,))
    assert torch.equal(x, X)
    assert model.calls == 0
    assert loaded.calls == 0


def test_regions_of_executors_are_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("thunder_plugin_inductor")
    with pytest.raises(UnsupportedError, match=r"of the executor inductor, which has no portable form"):
        load_saved(Model(lambda m, x: torch.relu(x) * 2 + m.linear(x)), tmp_path, (X,), executors=["inductor"])


def test_functions_of_plugins(tmp_path: Path) -> None:
    pytest.importorskip("thunder_plugin_sdpa")
    q = torch.randn(1, 2, 8, 16)
    model = Model(lambda m, x: F.scaled_dot_product_attention(x, x, x, is_causal=True) * m.linear.weight.sum())
    thunder.save(thunder.jit(model, executors=["sdpa"]), tmp_path / "model.thunder", example=(q,))
    loaded = thunder.load(tmp_path / "model.thunder")
    compiled = thunder.jit(model, executors=["sdpa"])
    assert_like_eager(compiled, loaded, (q,), {})
