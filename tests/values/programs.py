"""Programs whose Python depends on values of tensors, for `test_programs`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

Program = Callable[..., Any]
PROGRAMS: list[Program] = []
"""Functions of one float tensor of shape ``(4,)``."""

POSITIVE = torch.tensor([0.5, 1.5, 2.5, 3.0])
NEGATIVE = torch.tensor([-0.5, -1.5, 2.0, -3.0])
SMALL = torch.tensor([0.01, -0.02, 0.03, 0.25])
CALLS = (POSITIVE, NEGATIVE, POSITIVE, SMALL, NEGATIVE, SMALL)


def program(function: Program) -> Program:
    """Add a program to the table."""
    PROGRAMS.append(function)
    return function


# ---- numbers ---------------------------------------------------------------------------------------------------------


@program
def branch(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


@program
def nested_branches(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x * 2 if x.max() > 1 else x * 3
    return x * 4 if x.min() < -1 else x * 5


@program
def scaled_by_item(x: torch.Tensor) -> torch.Tensor:
    return x * x.sum().item()


@program
def conversions(x: torch.Tensor) -> torch.Tensor:
    total = x.detach().sum()
    return x * float(total) + int(total) + complex(total).real + bool(total)


@program
def python_arithmetic(x: torch.Tensor) -> torch.Tensor:
    value = x.abs().max().item()
    return x / (math.sqrt(value) + math.floor(value) + max(value, 1.0) + round(value, 1))


@program
def any_and_all(x: torch.Tensor) -> torch.Tensor:
    if (x > 0).all():
        return x.exp()
    if (x < -2).any():
        return x.sin()
    return x.cos()


@program
def boolean_operators(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if (x[0] > 0 and not x[1] < 0) or x[3] < -2 else x * 3


@program
def of_a_list(x: torch.Tensor) -> torch.Tensor:
    return x * sum(value for value in x.tolist() if value > 0)


@program
def nested_list(x: torch.Tensor) -> torch.Tensor:
    rows = x.detach().reshape(2, 2).tolist()
    return x + rows[0][1] - rows[1][0]


@program
def maximum_of_python(x: torch.Tensor) -> torch.Tensor:
    return max(x[0], x[1], x[2]) * x + min(x[0], x[3])


@program
def sorted_by_python(x: torch.Tensor) -> torch.Tensor:
    return torch.stack(sorted([x[0], x[1], x[2], x[3]]))


@program
def membership(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if 1.5 in x else x * 3


@program
def equality(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.equal(x, x.abs()) else x * 3


@program
def equality_by_identity(x: torch.Tensor) -> torch.Tensor:
    def scale(same: bool) -> float:
        return 2.0 if same is True else 3.0

    return x * scale(torch.equal(x, x.abs()))


@program
def closeness(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.allclose(x, x.abs()) or not torch.allclose(x, x * 2, atol=1.0) else x * 3


@program
def returns_a_number(x: torch.Tensor) -> Any:
    return x * 2, x.sum().item(), x.argmax().item(), bool(x[0] > 0)


@program
def returns_a_comparison(x: torch.Tensor) -> Any:
    return x * 2, torch.equal(x, x.abs())


@program
def key_of_a_dictionary(x: torch.Tensor) -> torch.Tensor:
    names = {0: 2.0, 1: 3.0, 2: 4.0, 3: 5.0}
    return x * names[int(x.argmax())]


@program
def index_of_a_list(x: torch.Tensor) -> torch.Tensor:
    functions = [torch.sin, torch.cos, torch.exp, torch.tanh]
    return functions[x.argmin()](x)


@program
def number_of_rounds(x: torch.Tensor) -> torch.Tensor:
    for index in range(int(x.abs().max())):
        x = x * 2 + index
    return x


@program
def until_convergence(x: torch.Tensor) -> torch.Tensor:
    while x.abs().max() > 0.1:
        x = x / 2
    return x


@program
def leaves_a_loop(x: torch.Tensor) -> torch.Tensor:
    total = x * 0
    for value in x:
        if value < 0:
            break
        total = total + value
    return total


@program
def condition_of_an_expression(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([value * 2 if value > 0 else value * 3 for value in x])


@program
def is_nonzero(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.is_nonzero(x[0] > 0) else x


@program
def not_a_number(x: torch.Tensor) -> torch.Tensor:
    y = x.sqrt()
    if torch.isnan(y).any():
        y = torch.nan_to_num(y)
    return y * x


@program
def integer_arithmetic(x: torch.Tensor) -> torch.Tensor:
    count = (x > 0).sum().item()
    return x * (count // 2) + x.numel() - count


# ---- shapes ----------------------------------------------------------------------------------------------------------


@program
def mask(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0] * 2


@program
def mask_of_rows(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(2, 2)[x[:2] > 0].sum(0)


@program
def mask_that_is_written(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[y > 0] += 1
    y[y < 0] = 5.0
    return y


@program
def mask_with_values(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[y > 0] = y[y > 0].exp()
    return y


@program
def masked_select(x: torch.Tensor) -> torch.Tensor:
    return torch.masked_select(x, x > 0).sum() * x


@program
def nonzero(x: torch.Tensor) -> torch.Tensor:
    return x[torch.nonzero(x > 0).squeeze(1)].sum()


@program
def nonzero_as_tuple(x: torch.Tensor) -> torch.Tensor:
    (rows,) = torch.nonzero(x > 0, as_tuple=True)
    return x.index_select(0, rows) * 2


@program
def where_of_a_condition(x: torch.Tensor) -> torch.Tensor:
    return x[torch.where(x > 0)[0]] * 3


@program
def argwhere(x: torch.Tensor) -> torch.Tensor:
    return torch.argwhere(x > 0).sum() * x


@program
def unique(x: torch.Tensor) -> torch.Tensor:
    values, inverse, counts = torch.unique(x.detach().long(), return_inverse=True, return_counts=True)
    return x * values.float()[inverse] * counts[inverse]


@program
def unique_consecutive(x: torch.Tensor) -> torch.Tensor:
    return torch.unique_consecutive(x.detach().long()).float().sum() * x


@program
def repeat_interleave(x: torch.Tensor) -> torch.Tensor:
    return x.repeat_interleave((x > 0).long() + 1)


@program
def one_hot(x: torch.Tensor) -> torch.Tensor:
    return F.one_hot(x.detach().abs().long()).float().sum(0).sum() * x


@program
def bincount(x: torch.Tensor) -> torch.Tensor:
    return torch.bincount(x.detach().abs().long()).float().sum() * x


@program
def size_from_a_value(x: torch.Tensor) -> torch.Tensor:
    count = int((x > 0).sum())
    return torch.zeros(count + 1) + x[:1] + torch.arange(count + 1)


@program
def slice_to_a_value(x: torch.Tensor) -> torch.Tensor:
    return x[: (x > 0).sum()] * 2


@program
def slice_from_an_item(x: torch.Tensor) -> torch.Tensor:
    count = (x > 0).sum().item()
    return x[count:] * 2, x[-count:]


@program
def topk_of_a_value(x: torch.Tensor) -> torch.Tensor:
    return torch.topk(x, int((x > 0).sum())).values


@program
def split_by_values(x: torch.Tensor) -> torch.Tensor:
    count = int((x > 0).sum())
    first, second = torch.split(x, [count, 4 - count])
    return first.sum() * 2 + second.sum() * 3


@program
def range_between_values(x: torch.Tensor) -> torch.Tensor:
    first, last = x.detach().argmin(), x.detach().argmax()
    return torch.arange(first, torch.maximum(first, last)).float().sum() * x


@program
def element_at_a_value(x: torch.Tensor) -> torch.Tensor:
    return x[x.argmax()] * x


@program
def padding_by_a_value(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (0, int((x > 0).sum())))


@program
def narrowed(x: torch.Tensor) -> torch.Tensor:
    return x.narrow(0, 0, int((x > 0).sum())) * 2


@program
def reshaped(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, 2 if x[0] > 0 else 4).sum(0)


@program
def experts(x: torch.Tensor) -> torch.Tensor:
    result = torch.zeros_like(x)
    for expert in range(3):
        chosen = torch.where(x.detach().abs().long() == expert)[0]
        if chosen.numel():
            result.index_add_(0, chosen, x[chosen] * (expert + 1))
    return result


@program
def sections(x: torch.Tensor) -> Any:
    return torch.tensor_split(x, torch.tensor([1, 3])), torch.tensor_split(x, (x > 0).sum() + 1)


@program
def into_a_given_tensor(x: torch.Tensor) -> torch.Tensor:
    places = torch.empty(0, 1, dtype=torch.long)
    torch.nonzero(x > 0, out=places)
    return x[places[:, 0]] * 2


@program
def weights_of_an_update(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    torch._foreach_lerp_([y], [x * 2], x.detach().abs().max() / 4)
    return y


@program
def array_of_another_type(x: torch.Tensor) -> torch.Tensor:
    array = np.asarray(x.detach(), dtype=np.float64)
    return torch.from_numpy(array.copy()) * x + float(np.ones_like(x.detach()).sum())


@program
def array_of_a_tensor_with_gradients(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * float(x.numpy().sum())
    except RuntimeError:
        return x * 2


@program
def packed(x: torch.Tensor) -> torch.Tensor:
    lengths = (x.detach().reshape(2, 2) > 0).sum(1).tolist()
    return torch.cat([x.reshape(2, 2)[row, :length] for row, length in enumerate(lengths)])


# ---- writes, random numbers, objects ---------------------------------------------------------------------------------


@program
def writes_before_and_after(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.add_(1)
    if y.sum() > 4:
        y.mul_(2)
    y[0] = y.sum()
    return y


@program
def draws_decide(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rand(4) if torch.rand(()) < 0.5 else x + torch.rand(4)


@program
def dropout_before(x: torch.Tensor) -> torch.Tensor:
    y = F.dropout(x, 0.5)
    return y * 2 if y.sum() > 0 else y * torch.randn(4)


@program
def seeds(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(7)
    return x * torch.rand(4) if x.sum() > torch.rand(()) else x


@program
def list_of_results(x: torch.Tensor) -> Any:
    found = []
    for value in x:
        if value > 0:
            found.append(value * 2)
    return found


@program
def dictionary_of_results(x: torch.Tensor) -> Any:
    return {f"item {index}": value for index, value in enumerate(x.tolist()) if value > 0}, x * 2


@program
def raises_and_catches(x: torch.Tensor) -> torch.Tensor:
    try:
        if x.sum() < 0:
            raise ValueError("negative")
        return x * 2
    except ValueError:
        return x * 3


@program
def assertion(x: torch.Tensor) -> torch.Tensor:
    assert x.max() < 100, "too large"
    assert torch.isfinite(x).all()
    return x * 2


@program
def formatted(x: torch.Tensor) -> Any:
    return f"{x.sum():.2f} {x.detach()[0]}", x * 2


@program
def numpy_values(x: torch.Tensor) -> torch.Tensor:
    array = x.detach().numpy()
    return x * float(np.abs(array).max()) + torch.tensor(np.sort(array))


@program
def prints(x: torch.Tensor) -> torch.Tensor:
    print("sum", x.detach().sum())
    if x.sum() > 1:
        print("large", x.sum().item())
        return x * 2
    print("small")
    return x * 3


@program
def warns(x: torch.Tensor) -> torch.Tensor:
    if x.sum() < 0:
        warnings.warn("negative", stacklevel=2)
    return x * 2


class Rows(torch.nn.Module):
    """Depends on values, returns a known shape, and has a buffer and a counter."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        rows = (x > 0).nonzero().squeeze(1)
        return torch.zeros_like(x).index_add(0, rows, self.table[rows] * x[rows] * self.calls)


@program
def module_that_is_created(x: torch.Tensor) -> torch.Tensor:
    rows = Rows(x.detach().abs()).to(x.device)
    return rows(rows(x))


@program
def module_without_tensors_that_is_created(x: torch.Tensor) -> torch.Tensor:
    rows = Rows(torch.empty(0))
    rows.table = torch.ones(4)
    return rows(rows(x))


@program
def new_generator_decides(x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    noise = torch.rand(4, generator=generator)
    return x * torch.rand(4, generator=generator) if x.sum() > noise.sum() else x + noise


@program
def assertions_of_pytorch(x: torch.Tensor) -> torch.Tensor:
    torch._assert(bool((x < 100).all()), "too large")
    torch._assert((x > -100).all(), "too small")
    torch._assert_async(torch.isfinite(x).all())
    torch._assert(x.shape[0], "empty")
    return x * 2 if x.sum() > 0 else x * 3


class AsksForGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        ctx.save_for_backward(y)
        return x * (2 if ctx.needs_input_grad[0] else 4), y * torch.rand(4), 7

    @staticmethod
    def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor, _: None) -> Any:
        return first * ctx.saved_tensors[0], None


@program
def autograd_function(x: torch.Tensor) -> torch.Tensor:
    y, noise, number = AsksForGradients.apply(x, x.detach())
    return y * number if y.sum() > 1 + noise.sum() else noise + y


@program
def autograd_function_in_a_checkpoint(x: torch.Tensor) -> torch.Tensor:
    def body(x: torch.Tensor) -> torch.Tensor:
        y, _, _ = AsksForGradients.apply(x, x.detach())
        return y * 2 if y.sum() > 0 else y * 3

    return checkpoint(body, x, use_reentrant=False)


# ---- modes -----------------------------------------------------------------------------------------------------------


@program
def without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = 2.0 if x.sum() > 0 else 3.0
    return x * scale


@program
def under_autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x.reshape(2, 2) @ x.reshape(2, 2)
        return y * 2 if y.sum() > 0 else y * 3


@program
def checkpointed(x: torch.Tensor) -> torch.Tensor:
    def body(x: torch.Tensor) -> torch.Tensor:
        return (x * 2 if x.sum() > 0 else x * 3).exp()

    return checkpoint(body, x, use_reentrant=False)


@program
def around_a_checkpoint(x: torch.Tensor) -> torch.Tensor:
    y = checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False)
    return y * 2 if y.sum() > 4 else checkpoint(lambda y: y.cos() * 3, y, use_reentrant=False)


@program
def gradient_inside(x: torch.Tensor) -> torch.Tensor:
    y = x.detach().requires_grad_()
    torch._assert((y < 100).all(), "too large")
    noise = torch.rand(4, generator=torch.Generator().manual_seed(3))
    (gradient,) = torch.autograd.grad((AsksForGradients.apply(y, noise)[0] * y**2).sum(), y)
    return gradient * 2 if gradient.norm() > 1 else gradient * 3


@program
def mapped(x: torch.Tensor) -> torch.Tensor:
    y = torch.vmap(lambda row: row * 2)(x.reshape(2, 2))
    return y * 2 if y.sum() > 0 else y * 3


@program
def conditional_after(x: torch.Tensor) -> torch.Tensor:
    y = torch.where(x > 0, x, -x)
    return y.cumsum(0) if y[0] > 0.1 else y.flip(0)


@program
def list_after_no_parts(x: torch.Tensor) -> Any:
    return x[:0].unbind(), x.tolist()


LSTM = torch.nn.LSTM(1, 2, num_layers=2, batch_first=True, bidirectional=True).requires_grad_(False)


@program
def packed_sequence(x: torch.Tensor) -> Any:
    lengths = (x > 0).sum().clamp(1, 2).cpu() * torch.tensor([1, 1]) + torch.tensor([0, 1])
    packed = pack_padded_sequence(x.repeat(2, 1).unsqueeze(-1), lengths, batch_first=True, enforce_sorted=False)
    output, (hidden, _) = LSTM(packed)
    return pad_packed_sequence(output, batch_first=True), hidden, packed.data


@program
def switches_before(x: torch.Tensor) -> Any:
    """A switch of PyTorch that is set before a value is read has its old value if the run is abandoned."""
    with torch.backends.cudnn.flags(enabled=False):
        y = x * 2
    torch.set_default_dtype(torch.float64)
    try:
        total = y.sum().item()
        z = torch.ones(4) * (y.flip(0) if total > 0 else y.cumsum(0))
    finally:
        torch.set_default_dtype(torch.float32)
    return z, torch.ones(1), z[z > 1]


@program
def losses_of_sequences(x: torch.Tensor) -> torch.Tensor:
    """As the models of Hugging Face for speech."""
    labels = torch.tensor([[1, 2], [2, -100]])
    lengths = (labels >= 0).sum(-1)
    with torch.backends.cudnn.flags(enabled=False):
        scores = x.reshape(1, 1, 4).repeat(5, 2, 1).log_softmax(-1)
        return F.ctc_loss(scores, labels.masked_select(labels >= 0), torch.tensor([5, 4]), lengths * (1 + (x[0] > 9)))
