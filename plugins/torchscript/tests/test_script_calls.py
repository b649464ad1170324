"""Functions and modules in TorchScript that a compiled program calls."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder_core.errors import UnsupportedError

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.:FutureWarning"),
]


def scripted(function: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(function)


def traced(module: nn.Module, *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(module, args, check_trace=False)


def branch(x: torch.Tensor, scale: float = 2):
    if x.sum() > 0:
        y = x * scale
    else:
        y = x - 1
    return y


def sums(x: torch.Tensor):
    out: list[torch.Tensor] = []
    names: dict[str, int] = {}
    for i in range(x.size(0)):
        if i % 2 == 0:
            continue
        out.append(x[i] * i)
        names["row " + str(i)] = i
    while len(out) < 4:
        out.append(torch.zeros_like(x[0]))
    return torch.stack(out), names


def writes(x: torch.Tensor):
    y = x.clone()
    y[0] = 1
    y[:, 1:] += 2
    y.mul_(3)
    return y.view(-1)


def dtypes(x: torch.Tensor):
    if x.dtype == torch.float32 and x.device.type == "cpu":
        y = x.to(torch.float64)
    else:
        y = torch.zeros(3, dtype=torch.int64)
    return (
        y,
        torch.tensor([1, 2]),
        torch.tensor(1.5),
        torch.as_tensor(x, dtype=torch.float64),
        torch.empty_like(x, dtype=torch.int32).fill_(4),
        y.shape,
    )


def numbers(x: torch.Tensor):
    n, m = x.shape
    a = (n + 1) // 2 * m % 7 - n**2
    b = float(a) / 2 + round(2.5) + abs(-1.5) + max(1.0, 2.0)
    return x * b + a, a, b, f"{m} of {n}", not (a > b)


def drops(x: torch.Tensor):
    return nn.functional.dropout(x, 0.5, True) + torch.rand_like(x)


def without_gradients(x: torch.Tensor):
    with torch.no_grad():
        y = x * 3
    return y * x


def nested(x: torch.Tensor):
    pair = (x + 1, [x, x * 2])
    a, items = pair
    items.append(a)
    return items, len(items)


def reads(x: torch.Tensor):
    largest = int(x.abs().max())
    return x * largest + float(x.mean()), x.argmax().item()


def swish(x: torch.Tensor):
    return x.mul(torch.sigmoid(x))


def swish_backward(x: torch.Tensor, gradient: torch.Tensor):
    gate = torch.sigmoid(x)
    return gradient * (gate * (1 + x * (1 - gate)))


FUNCTIONS = [branch, sums, writes, dtypes, numbers, drops, without_gradients, nested, reads]


def comparable(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def outcomes(program: Callable[[torch.Tensor], Any], inputs: list[torch.Tensor]) -> list[Any]:
    results: list[Any] = []
    torch.manual_seed(4)
    for value in inputs:
        x = value.clone().requires_grad_()
        y = program(x)
        leaves, structure = torch.utils._pytree.tree_flatten(y)
        wanted = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        gradients = torch.autograd.grad([leaf.sum() for leaf in wanted], x) if wanted else ()
        results.append((structure, list(map(comparable, leaves)), gradients, [type(leaf) for leaf in leaves]))
    return results


def assert_same(found: Any, expected: Any) -> None:
    for (structure, leaves, gradients, kinds), (other, others, other_gradients, other_kinds) in zip(
        found, expected, strict=True
    ):
        assert structure == other
        assert kinds == other_kinds
        for one, two in zip(leaves, others, strict=True):
            if isinstance(two, torch.Tensor):
                torch.testing.assert_close(one, two, rtol=0, atol=0)
            else:
                assert one == two
        torch.testing.assert_close(gradients, other_gradients)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.slow
def test_scripted_function_gives_what_eager_gives(function: Any) -> None:
    script = scripted(function)

    def program(x: torch.Tensor) -> Any:
        return script(x * 1.5)

    first = torch.randn(3, 4)
    inputs = [first, -first.abs(), first.abs(), torch.randn(5, 4), torch.randn(6, 4)]
    # TorchScript optimizes gradients of dropout after some calls, and draws other random numbers then
    expected = outcomes((lambda x: drops(x * 1.5)) if function is drops else program, inputs)
    assert_same(outcomes(thunder.jit(program), inputs), expected)


def test_scripted_function_of_an_argument_itself() -> None:
    script = scripted(branch)
    compiled = thunder.jit(lambda x: script(x, 3))
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(compiled(x), script(x, 3))
    assert len(thunder.explain(compiled).entries) == 2


def test_outcomes_of_scripted_branch_compile_once_each() -> None:
    script = scripted(branch)
    compiled = thunder.jit(lambda x: script(x * 2).sum())
    for sign in (1, -1, 1, -1):
        x = torch.randn(4).abs() * sign
        torch.testing.assert_close(compiled(x), script(x * 2).sum())
    assert len(thunder.explain(compiled).entries) == 2


def test_replaced_scripted_function_is_another_program() -> None:
    holder = {"f": scripted(branch)}
    compiled = thunder.jit(lambda x: holder["f"](x))
    x = torch.ones(2, 3)
    torch.testing.assert_close(compiled(x), x * 2)
    holder["f"] = scripted(writes)
    torch.testing.assert_close(compiled(x), writes(x))


def test_argument_lists_are_copies() -> None:
    def appends(x: torch.Tensor, items: list[int]):
        items.append(3)
        return x * len(items)

    script = scripted(appends)

    def program(x: torch.Tensor) -> Any:
        items = [1]
        return script(x, items), items

    x = torch.ones(2)
    torch.testing.assert_close(thunder.jit(program)(x), program(x))


def test_wrong_arguments_raise_what_eager_raises() -> None:
    script = scripted(branch)
    x = torch.ones(2)
    for call in (lambda x: script(), lambda x: script(x, 1, 2), lambda x: script(x, scal=1), lambda x: script(3)):
        with pytest.raises(Exception) as eager:
            call(x)
        with pytest.raises(type(eager.value)) as compiled:
            thunder.jit(call)(x)
        assert str(compiled.value).partition("\n")[0] == str(eager.value).partition("\n")[0]


def test_scripted_assertion_raises() -> None:
    def checked(x: torch.Tensor):
        assert x.size(0) == 2, "two rows"
        return x

    script = scripted(checked)
    compiled = thunder.jit(lambda x: script(x * 2))
    torch.testing.assert_close(compiled(torch.ones(2)), torch.ones(2) * 2)
    with pytest.raises(torch.jit.Error, match="two rows"):
        compiled(torch.ones(3))


def test_is_scripting_stays_false() -> None:
    script = scripted(branch)

    def program(x: torch.Tensor) -> Any:
        return script(x) if torch.jit.is_scripting() else script(x) + 1

    x = torch.ones(2)
    torch.testing.assert_close(thunder.jit(program)(x), program(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 3))
        self.factor = 2
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layers(x) * self.factor


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.inner(x * 1.5))


def steps(program: Any, module: nn.Module) -> list[Any]:
    torch.manual_seed(5)
    results: list[Any] = []
    for rows in (2, 3, 5):
        x = torch.randn(rows, 4, requires_grad=True)
        y = program(x)
        module.zero_grad()
        y.square().sum().backward()
        results.append((y.detach(), x.grad, [p.grad.clone() for p in module.parameters()]))
        results.append([buffer.clone() for buffer in module.buffers()])
    module.eval()
    results.append(program(torch.ones(2, 4)).detach())
    return results


@pytest.mark.parametrize("how", ["scripted", "scripted inside", "traced", "traced inside"])
@pytest.mark.slow
def test_module_of_torchscript_trains_as_in_eager(how: str) -> None:
    def build() -> tuple[nn.Module, nn.Module]:
        torch.manual_seed(0)
        inner = scripted(Block()) if how.startswith("scripted") else traced(Block(), torch.randn(2, 4))
        return inner, Outer(inner) if how.endswith("inside") else inner

    inner, model = build()
    expected = steps(model if "inside" in how else lambda x: inner(x), model)
    inner, model = build()
    program = thunder.jit(model) if "inside" in how else thunder.jit(lambda x: inner(x))
    torch.testing.assert_close(steps(program, model), expected)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, 2, batch_first=True)
        self.gru = nn.GRU(5, 3)
        self.blocks = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
        self.attention = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
        self.factors = [1, 2]

    def forward(self, x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor] | None = None):
        y, (_, last) = self.lstm(x, state)
        z, _ = self.gru(y)
        for i, block in enumerate(self.blocks):
            z = block(z) + i * 0.5
        outs: list[torch.Tensor] = []
        for factor in self.factors:
            outs.append(z * factor)
        return self.attention(torch.cat(outs, -1)), last


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.slow
def test_scripted_recurrent_module(train: bool) -> None:
    module = scripted(Recurrent()).train(train)
    compiled = thunder.jit(lambda x: module(x)[0].sin().sum() + module(x * 2)[1].sum())
    x = torch.randn(2, 3, 4)
    loss = compiled(x)
    loss.backward()
    found = [p.grad for p in module.parameters()]
    module.zero_grad()
    expected = module(x)[0].sin().sum() + module(x * 2)[1].sum()
    expected.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(found, [p.grad for p in module.parameters()])
    module.factors = [1, 3]
    torch.testing.assert_close(compiled(x), module(x)[0].sin().sum() + module(x * 2)[1].sum())


def test_loaded_and_frozen_modules() -> None:
    module = scripted(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU()).eval())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        buffer = io.BytesIO()
        torch.jit.save(module, buffer)
        buffer.seek(0)
        modules = [torch.jit.load(buffer), torch.jit.freeze(module), torch.jit.optimize_for_inference(module)]
    x = torch.randn(3, 4)
    for other in modules:
        compiled = thunder.jit(lambda x, other=other: other(x * 2))
        torch.testing.assert_close(compiled(x), module(x * 2))
        torch.testing.assert_close(compiled(-x), module(-x * 2))


def test_scripted_functions_under_autocast() -> None:
    module = scripted(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 4)))

    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return module(x)

    x = torch.randn(3, 4)
    torch.testing.assert_close(thunder.jit(program)(x), program(x))


def test_scripted_functions_in_an_autograd_function() -> None:
    forward = scripted(swish)
    backward = scripted(swish_backward)

    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return backward(ctx.saved_tensors[0], gradient)

    x, other = (torch.linspace(-1, 1, 4).requires_grad_() for _ in range(2))
    thunder.jit(lambda x: Swish.apply(x * 2).sum())(x).backward()
    Swish.apply(other * 2).sum().backward()
    torch.testing.assert_close(x.grad, other.grad)


def test_scripted_functions_under_transformations() -> None:
    script = scripted(swish)
    x = torch.randn(3, 2)
    for program in (
        lambda x: torch.vmap(script)(x * 2),
        lambda x: torch.func.grad(lambda x: script(x).sum())(x),
    ):
        torch.testing.assert_close(thunder.jit(program)(x), program(x))
    torch.testing.assert_close(torch.vmap(thunder.jit(lambda x: script(x)))(x), script(x))


def test_scripted_module_that_changes_a_list_is_refused() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.counts = [0]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.counts.append(1)
            return x + len(self.counts)

    module = scripted(Counts())
    with pytest.raises(UnsupportedError, match="changes the attribute `counts`"):
        thunder.jit(lambda x: module(x))(torch.ones(2))


def test_changed_attributes_of_scripted_module_are_seen() -> None:
    module = scripted(nn.Linear(4, 4))
    compiled = thunder.jit(lambda x: module(x * 2))
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), module(x * 2))
    with torch.no_grad():
        module.weight.mul_(2)
    torch.testing.assert_close(compiled(x), module(x * 2))
    module.weight = nn.Parameter(torch.randn(4, 4))
    torch.testing.assert_close(compiled(x), module(x * 2))

    block = scripted(Block().eval())
    compiled = thunder.jit(lambda x: block(x))
    torch.testing.assert_close(compiled(x), block(x))
    block.factor = 5
    torch.testing.assert_close(compiled(x), block(x))


def test_state_of_scripted_module_in_the_program() -> None:
    module = scripted(nn.Linear(4, 4))
    compiled = thunder.jit(lambda x: x @ module.weight + module.bias)
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), x @ module.weight + module.bias)
    module.bias = nn.Parameter(torch.randn(4))
    torch.testing.assert_close(compiled(x), x @ module.weight + module.bias)


def test_assignment_to_scripted_module_is_refused() -> None:
    module = scripted(nn.Linear(4, 4))
    before = module.weight

    def program(x: torch.Tensor) -> Any:
        module.weight = nn.Parameter(x * 2)
        return module(x)

    with pytest.raises(UnsupportedError, match=r"assigns to the attribute `weight` of a ScriptModule"):
        thunder.jit(program)(torch.randn(4, 4))
    assert module.weight is before


def test_unrecorded_part_of_torchscript_is_refused() -> None:
    def shows(x: torch.Tensor):
        print(x)
        return x

    script = scripted(shows)
    with pytest.raises(UnsupportedError, match=r"TorchScript .*prim::Print"):
        thunder.jit(lambda x: script(x))(torch.ones(2))


def test_scripted_module_in_a_checkpoint() -> None:
    def build() -> Any:
        torch.manual_seed(0)
        return scripted(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))

    block, other = build(), build()

    def program(x: torch.Tensor) -> Any:
        y = torch.utils.checkpoint.checkpoint(lambda x: block(x), x, use_reentrant=False)
        return y.sum()

    x = torch.randn(3, 4)
    loss = thunder.jit(program)(x)
    loss.backward()
    expected = other(x).sum()
    expected.backward()
    torch.testing.assert_close(loss, expected)
    for one, two in zip(block.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)


def test_sizes_vary_in_scripted_function() -> None:
    def span(x: torch.Tensor, most: int):
        n = torch.tensor(min(x.size(0), most))
        return torch.arange(x.size(0)).to(x.dtype).unsqueeze(-1) * x, n

    script = scripted(span)

    def program(x: torch.Tensor, table: torch.Tensor) -> Any:
        y, n = script(x, 16)
        return y, table[16 - n : 16 + n].sum(0), n

    compiled = thunder.jit(program)
    table = torch.randn(32, 3)
    for rows in (3, 4, 5, 7, 9):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(compiled(x, table), program(x, table))
    assert len(thunder.explain(compiled).entries) == 2
