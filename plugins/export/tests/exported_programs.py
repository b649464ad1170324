"""Programs that are exported and compiled, each with arguments."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Pair = namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass
class Batch:
    """A class that is registered as a pytree."""

    values: Tensor
    mask: Tensor
    label: str = "train"


torch.export.register_dataclass(Batch, serialized_type_name="exported_programs.Batch")


@torch.library.custom_op("exported_programs::scaled", mutates_args=())
def scaled(x: Tensor, factor: float) -> Tensor:
    return x * factor


scaled.register_fake(lambda x, factor: torch.empty_like(x))
scaled.register_autograd(
    lambda ctx, grad: (grad * ctx.factor, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
)


@torch.library.custom_op("exported_programs::add_to", mutates_args=("x",))
def add_to(x: Tensor, y: Tensor) -> None:
    x.add_(y)


class Program(nn.Module):
    """A module whose forward is a function of the module and the arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("cache", torch.zeros(3, 4), persistent=False)
        self.constant = torch.arange(4.0)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


def mlp(m: Any, x: Tensor) -> Tensor:
    return F.gelu(m.linear(x)).square().sum(-1)


def attention(m: Any, x: Tensor) -> Tensor:
    h = F.layer_norm(m.linear(x), (4,))[None]
    return F.scaled_dot_product_attention(h, h, h, is_causal=True).softmax(-1)


def batch_norm(m: Any, x: Tensor) -> Tensor:
    return m.norm(x).relu()


def mutated_buffers(m: Any, x: Tensor) -> Tensor:
    m.count.add_(1)
    m.cache[1:].mul_(0.5)
    m.cache[0] = x.detach()[0]
    return x * m.count + m.cache[: x.shape[0]]


def mutated_input(m: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    y.mul_(2)
    y[0].add_(x.detach()[0])
    return y, m.linear(x) + y


def view_then_write(m: Any, x: Tensor) -> Tensor:
    h = torch.zeros(3, 4)
    row = h[0]
    h.copy_(m.linear(x))
    return row * 2 + h.sum(0)


def constants(m: Any, x: Tensor) -> Tensor:
    return x * m.constant + torch.tensor([1.0, 2.0, 3.0, 4.0])


def no_grad(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        scale = m.linear(x).abs().amax()
        with torch.enable_grad():
            inner = m.linear(x).sum()
    return m.linear(x) / scale + inner


def detached(m: Any, x: Tensor) -> Tensor:
    h = m.linear(x)
    return h * h.detach()


def autocast(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = m.linear(x)
        with torch.autocast("cpu", enabled=False):
            plain = m.linear(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        second = m.linear(first)
    return first + second, plain


def nested(m: Any, x: Tensor, *, options: dict[str, Any], pair: Any) -> dict[str, Any]:
    first, (second, factor) = options["inputs"]
    h = m.linear(x) * factor + first + second + pair.first
    return {"out": [h, None, 3, "text"], "pair": Pair(pair.second, (h.sum(),)), "ordered": OrderedDict(a=h, b=x)}


def registered_class(m: Any, batch: Batch) -> Batch:
    return Batch(m.linear(batch.values) * batch.mask, batch.mask, batch.label)


def aliased(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    h = m.linear(x)
    return x, h, h.view(-1), h


def parameter_output(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return m.linear.weight, x + 1


def dropout(m: Any, x: Tensor) -> Tensor:
    return F.dropout(m.linear(x), 0.5) + torch.randn_like(x) + torch.rand(4)


def default_arguments(m: Any, x: Tensor, scale: float = 2.0, flag: bool = True, name: Any = None) -> Tensor:
    return m.linear(x) * scale if flag and name is None else x


def custom_operator(m: Any, x: Tensor) -> Tensor:
    return torch.ops.exported_programs.scaled(m.linear(x), 3.0)


def custom_write(m: Any, x: Tensor) -> Tensor:
    h = x.detach().clone()
    torch.ops.exported_programs.add_to(h, x.detach())
    return m.linear(h)


def sizes(m: Any, x: Tensor) -> Tensor:
    rows = x.shape[0]
    return torch.cat([m.linear(x), torch.arange(rows * 4).view(rows, 4)]) / rows


def integers(m: Any, x: Tensor) -> Any:
    return (x > 0).sum(-1), x.argmax(-1), x.topk(2).values


def convolution(m: Any, x: Tensor) -> Tensor:
    return F.max_pool1d(F.conv1d(x.t()[None], m.linear.weight[None], padding=1).repeat(1, 2, 1), 2)


def loss(m: Any, x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(m.linear(x), target, label_smoothing=0.1)


def _x() -> Tensor:
    return torch.randn(3, 4)


def _nested() -> tuple[Any, Any]:
    options = {"inputs": [torch.ones(4), (torch.full((3, 4), 2.0), 0.5)]}
    return (_x(),), {"options": options, "pair": Pair(torch.randn(4), torch.zeros(2))}


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, Any]]]] = {
    "mlp": (mlp, lambda: ((_x(),), {})),
    "attention": (attention, lambda: ((_x(),), {})),
    "batch_norm": (batch_norm, lambda: ((_x(),), {})),
    "mutated_buffers": (mutated_buffers, lambda: ((_x(),), {})),
    "mutated_input": (mutated_input, lambda: ((_x(), _x()), {})),
    "view_then_write": (view_then_write, lambda: ((_x(),), {})),
    "constants": (constants, lambda: ((_x(),), {})),
    "no_grad": (no_grad, lambda: ((_x(),), {})),
    "detached": (detached, lambda: ((_x(),), {})),
    "autocast": (autocast, lambda: ((_x(),), {})),
    "nested": (nested, _nested),
    "registered_class": (registered_class, lambda: ((Batch(_x(), torch.ones(3, 1)),), {})),
    "aliased": (aliased, lambda: ((_x(),), {})),
    "parameter_output": (parameter_output, lambda: ((_x(),), {})),
    "dropout": (dropout, lambda: ((_x(),), {})),
    "default_arguments": (default_arguments, lambda: ((_x(), 3.0), {"name": None})),
    "custom_operator": (custom_operator, lambda: ((_x(),), {})),
    "custom_write": (custom_write, lambda: ((_x(),), {})),
    "sizes": (sizes, lambda: ((_x(),), {})),
    "integers": (integers, lambda: ((_x(),), {})),
    "convolution": (convolution, lambda: ((_x(),), {})),
    "loss": (loss, lambda: ((_x(), torch.tensor([0, 2, 1])), {})),
}
"""By name: the program, and a function that creates positional and keyword arguments."""


def exported(name: str) -> tuple[torch.export.ExportedProgram, tuple[Any, ...], dict[str, Any]]:
    """A program, exported with its arguments, and these arguments."""
    torch.manual_seed(0)
    function, create = PROGRAMS[name]
    args, kwargs = create()
    return torch.export.export(Program(function), args, kwargs), args, kwargs
