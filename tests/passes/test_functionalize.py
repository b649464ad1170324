"""Single forms of mutation, looked at one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.passes.compare_runs import assert_same, observe
from tests.passes.programs import acquire_program, functionalize, run_functionalized
from thunder_core.errors import FunctionalizationError
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.functionalize import FromComputation, FromEpilogue, FromInput

Inputs = Callable[[], list[torch.Tensor]]


def plain() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(3, 4, generator=generator), torch.randn(3, 4, generator=generator)]


def with_gradients() -> list[torch.Tensor]:
    first, second = plain()
    return [first, second.requires_grad_()]


def check(program: Callable[..., Any], inputs: Inputs = plain) -> Any:
    """Eager and functional agree; returns the functional form."""

    def flat(*args: Any) -> tuple[Any, ...]:
        result = program(*args)
        return result if isinstance(result, tuple) else (result,)

    expected = observe(lambda args: flat(*args), inputs())
    originals = inputs()
    acquired = acquire_program(flat, *originals)
    places = {id(tensor): index for index, tensor in enumerate(originals)}
    functional = functionalize(acquired.trace)

    def run(args: list[Any]) -> tuple[Any, ...]:
        values = [args[places[id(item)]] if id(item) in places else item for item in acquired.inputs]
        return run_functionalized(functional, values)

    assert_same(expected, observe(run, inputs()), functional.computation)
    return functional


def lines(functional: Any) -> list[str]:
    return [bound.symbol.name for bound in without_dead_code(functional.computation).symbols]


# ---- writing through views ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "written_back"),
    [
        (lambda y: y[1], "torch.select_scatter"),
        (lambda y: y[:, 2], "torch.select_scatter"),
        (lambda y: y[1:], "torch.slice_scatter"),
        (lambda y: y[:, ::2], "torch.slice_scatter"),
        (lambda y: y.narrow(1, 1, 2), "torch.slice_scatter"),
        (lambda y: y.t(), "torch.permute"),
        (lambda y: y.transpose(0, 1), "torch.permute"),
        (lambda y: y.view(-1), "torch.reshape"),
        (lambda y: y.unsqueeze(0), "torch.reshape"),
        (lambda y: y.reshape(2, 6), "torch.reshape"),
        (lambda y: y[1:, 1], "thunder_core.symbols.setitem_copy"),
        (lambda y: y.diagonal(), "thunder_core.passes.operations.view_write"),
        (lambda y: y.split(2)[0], "torch.slice_scatter"),
        (lambda y: y.unbind(1)[3], "torch.select_scatter"),
        (lambda y: y.view(torch.int32), "thunder_core.passes.operations.view_write"),
        (lambda y: y.as_strided((2, 2), (5, 1), 1), "thunder_core.passes.operations.strided_write"),
        (lambda y: y.movedim(0, 1), "torch.permute"),
        (lambda y: y.view_as(y), None),
    ],
)
def test_write_through_a_view(view, written_back):
    def program(x, _):
        y = x * 2
        view(y).mul_(3)
        return y, view(y)

    functional = check(program)
    assert written_back is None or written_back in lines(functional)


def test_chain_of_views():
    def program(x, _):
        y = x * 2
        y.t()[1:].view(-1, 3)[:, 0].add_(1)
        return y

    check(program)


def test_older_and_newer_views_see_the_write():
    def program(x, _):
        y = x * 2
        row, column = y[0], y[:, 0]
        part = row[1:]
        column.add_(1)
        part.mul_(2)
        return row + 0, column + 0, part + 0, y.sum()

    check(program)


def test_view_of_a_view_of_unseen_memory():
    def inputs():
        whole = torch.arange(48.0).reshape(6, 8)
        return [whole[::2, 1:5], torch.ones(4)]

    def program(x, y):
        x[1].add_(y)
        x.t()[2:] *= 3
        return x, x[2], x.sum()

    functional = check(program, inputs)
    assert functional.results[0] == FromInput(0)
    assert isinstance(functional.results[1], FromEpilogue)


# ---- item assignment ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index",
    [
        0, -1, slice(1, None), slice(None, None, 2), None, Ellipsis, (Ellipsis, 0), (slice(None), 1), (0, 1), [0, 2],
        ([0, 1], [1, 2]), (None, 1), torch.tensor([2, 0]), torch.tensor([True, False, True]),
        (slice(None), torch.tensor([1])), True, (slice(0, 2), slice(1, 3)),
        (torch.tensor([[0], [1]]), torch.tensor([1, 2])),
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize(
    "value",
    [lambda y: 1, lambda y: 2.5, lambda y: True, lambda y: y.sum(), lambda y: torch.ones((), dtype=torch.int64)],
)
@pytest.mark.battery
def test_item_assignment(index, value):
    def program(x, y):
        x[index] = value(y)
        z = y * 1
        z[index] = value(x)
        return z

    try:
        program(*plain())
    except RuntimeError:
        pytest.skip("eager does not take it")
    check(program)


def test_item_assignment_of_itself():
    def program(x, _):
        y = x * 1
        y[0] = y[1]
        y[:, 1] = y[:, 2].clone()
        y[...] = y
        return y

    check(program)


def test_augmented_assignment_of_items():
    def program(x, y):
        x[1:] += y[1:]
        x[:, 0] *= 2
        return x

    check(program)


def test_broadcast_value():
    def program(x, y):
        x[:2] = y[0]
        x[:, :1] = y[:, :1]
        return x

    check(program)


# ---- calls ----------------------------------------------------------------------------------------------------------


def test_dtype_of_the_destination_stays():
    def program(x, y):
        z = (x * 4).to(torch.float16)
        z.add_(y)
        count = torch.zeros(3, 4, dtype=torch.int32)
        count += 2
        count[0] = 3.7
        return z, count

    check(program)


def test_out_argument():
    def program(x, y):
        z = torch.empty(3, 4)
        result = torch.add(x, y, out=z)
        torch.mul(x, y, out=x[:])
        return z, result, x

    functional = check(program)
    assert functional.results[0] == functional.results[1]


def test_out_arguments_that_are_parts_of_one_tensor():
    def program(x, _):
        values = torch.zeros(2, 3)
        torch.aminmax(x, dim=1, out=(values[0], values[1]))
        return values

    check(program)


def test_batch_norm_statistics():
    def inputs():
        return [torch.randn(8, 4, generator=torch.Generator().manual_seed(2)), torch.zeros(4), torch.ones(4)]

    def program(x, mean, variance):
        y = torch.nn.functional.batch_norm(x, mean, variance, training=True)
        return torch.nn.functional.batch_norm(y, mean, variance, training=True), mean + 0

    functional = check(program, inputs)
    assert functional.epilogue is not None
    assert len(functional.epilogue.symbols) == 2


def test_custom_operator():
    with torch.library._scoped_library("thunder_test_functionalize", "FRAGMENT") as library:
        library.define("accumulate(Tensor(a!) total, Tensor x) -> Tensor")

        def accumulate(total, x):
            total.add_(x)
            return x * 2

        library.impl("accumulate", accumulate, "CompositeExplicitAutograd")

        def program(x, y):
            doubled = torch.ops.thunder_test_functionalize.accumulate(x, y)
            part = x[0] * 1
            torch.ops.thunder_test_functionalize.accumulate(part, doubled[0])
            return doubled, part

        check(program)


def test_several_tensors_in_one_call():
    def program(x, y):
        a, b = x * 1, y * 1
        torch._foreach_add_([a, b], 2.0)
        torch._foreach_mul_([x, y], [a, b])
        return a, b

    check(program)


def test_random_numbers_are_those_of_eager():
    def program(x, _):
        y = x * 1
        y[0].normal_()
        y[1].uniform_(2, 3)
        torch.nn.functional.dropout(y, 0.5, inplace=True)
        x.bernoulli_(0.3)
        return y, torch.rand(2)

    check(program)


def test_in_place_change_of_shape():
    def program(x, _):
        y = x * 2
        first = y[0]
        y.t_()
        y.unsqueeze_(1)
        y[0].add_(1)
        y.squeeze_(1)
        return y, first

    check(program)


# ---- inputs, identity, aliasing -------------------------------------------------------------------------------------


def test_written_input_is_returned_as_itself():
    functional = check(lambda x, y: (x.add_(y), x, y))
    assert functional.results == (FromInput(0), FromInput(0), FromInput(1))


def test_view_of_a_written_input_shares_its_memory():
    functional = check(lambda x, y: (x.add_(y)[0], x.t(), x.view(-1)[2:].view(2, 5)))
    assert all(isinstance(source, FromEpilogue) for source in functional.results)


def test_results_that_share_memory():
    def program(x, _):
        y = x * 2
        row = y[0]
        row.add_(1)
        return y, row, y.t(), y.view_as(y)

    functional = check(program)
    assert functional.epilogue is None
    assert len({source.index for source in functional.results}) == 4


def test_detached_view_is_an_object_of_its_own():
    def program(x, _):
        y = x * 2
        same = y.detach()
        same.add_(1)
        return y, same

    check(program)


def test_program_that_writes_nothing_is_unchanged():
    program = acquire_program(lambda x: (x, x + 1, 3, None), torch.ones(3))
    functional = functionalize(program.trace)
    assert functional.epilogue is None
    assert not functional.mutations
    assert functional.computation.symbols == program.trace.symbols
    assert functional.results[1] == FromComputation(0)


def test_inputs_that_share_memory():
    def inputs():
        whole = torch.arange(12.0).reshape(3, 4)
        return [whole[1:], whole]

    def program(part, whole):
        part.mul_(2)
        total = whole.sum()
        whole[1, 0] = 7
        return total, part + 0, part

    check(program, inputs)


def test_disjoint_parts_of_one_memory():
    def inputs():
        cache = torch.zeros(4, 2, 3)
        return [cache[:, 0], cache[:, 1]]

    def program(keys, values):
        keys[1] = 1
        values.add_(2)
        keys.add_(values)
        return keys.sum(), values[0]

    check(program, inputs)


def test_overlapping_inputs_of_which_none_shows_all():
    def inputs():
        whole = torch.arange(8.0)
        return [whole[:5], whole[3:]]

    def program(x, y):
        return x.add_(1).sum() + y.sum()

    with pytest.raises(FunctionalizationError, match="overlap"):
        check(program, inputs)


def test_expanded_view():
    with pytest.raises((FunctionalizationError, RuntimeError)):
        check(lambda x, y: (y.expand(2, 3, 4).view_as(y.expand(2, 3, 4)).copy_(x), y))


# ---- autograd -------------------------------------------------------------------------------------------------------


def in_place(x, w):
    y = w * 2
    y.mul_(w).add_(x)
    return y


def in_place_view(x, w):
    y = x * 2
    y[1].mul_(w[0])
    y[:, 1:] += w[:, 1:]
    return y, y[1].sum()


def in_place_on_input(x, w):
    x.mul_(w)
    x[0].sin_()
    return x, x.exp()


def under_no_grad(x, w):
    y = w * 2
    with torch.no_grad():
        y.add_(1)
        y[0].mul_(3)
    return y * x


def parameter_under_no_grad(x, w):
    with torch.no_grad():
        w.mul_(0.5)
    result = (w * x).sum()
    with torch.no_grad():
        w.sub_(1.0)
    return result, (w * x).sum()


def through_detach(x, w):
    y = w.sin()
    y.detach().add_(1)
    return y * x, y


def through_data(x, w):
    w.data.mul_(2)
    return w * x


def detached_with_gradient(x, w):
    y = x * 1
    z = y.detach()
    z.mul_(w)
    y.add_(1)
    return z, y


def detached_input_with_gradient(x, w):
    z = x.detach()
    z.mul_(w)
    return z


def overwritten(x, w):
    y = w.exp() * 2
    y.copy_(x)
    y[0] = w[0]
    return y


def item_values(x, w):
    y = torch.zeros(3, 4)
    y[1] = w[2]
    y[torch.tensor([0, 2])] = w[:2]
    y[x > 0] = w.sum()
    return y


def mixed_modes(x, w):
    y = w * 3
    with torch.no_grad():
        view = y[0]
        view.zero_()
    y.mul_(w)
    with torch.no_grad():
        y.clamp_(max=1.0)
    return y.sum(), y


@pytest.mark.parametrize(
    "program",
    [
        in_place, in_place_view, in_place_on_input, under_no_grad, parameter_under_no_grad, through_detach,
        through_data, detached_with_gradient, detached_input_with_gradient, overwritten, item_values, mixed_modes,
    ],
    ids=lambda program: program.__name__,
)  # fmt: skip
def test_gradients(program):
    check(program, with_gradients)


def test_every_stage_verifies_and_locates():
    functional = check(in_place_view, with_gradients)
    assert all(bound.location is not None for bound in functional.computation.symbols)
    assert "test_functionalize" in functional.computation.python()


def test_a_tensor_is_taken_out_of_autograd_once():
    def program(w):
        part = w[0]
        with torch.no_grad():
            part.mul_(2)
        return w * 2

    functional = functionalize(acquire_program(program, torch.ones(2, 3, requires_grad=True)).trace)
    names = [bound.symbol.name for bound in functional.computation.symbols]
    assert names.count("torch.detach") == 1
