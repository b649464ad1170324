"""Rare forms of mutation: complex numbers, modes, overlapping arguments, gradients of several tensors in one memory."""

from __future__ import annotations

import pytest
import torch
import torch.utils.checkpoint

from tests.passes.programs import acquire_program, functionalize, run_functionalized
from tests.passes.test_functionalize import check, plain, with_gradients
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.functionalize import FromInput
from thunder_core.passes.functionalize.emitter import Emitter
from thunder_testing.hand_built import GRAD, RELU, tensor

INFERENCE = Context(grad_enabled=False, inference=True)


def complex_inputs():
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(3, 4, dtype=torch.complex64, generator=generator), torch.randn(3, 4, generator=generator)]


def real_part(x, y):
    z = x * 1
    z.real.add_(y)
    z.imag.mul_(2)
    return z, z.real + 0


def view_as_real(x, y):
    torch.view_as_real(x)[..., 0] = y
    return x, torch.view_as_real(x)


def conjugate(x, y):
    z = x * 1
    z.conj().mul_(2j)
    z[0] = x[1].conj()
    return z


def integer_view(x, y):
    z = y * 1
    z.view(torch.int32).bitwise_and_(~(1 << 31))
    return z, z.view(torch.int32)


@pytest.mark.parametrize("program", [real_part, view_as_real, conjugate, integer_view])
def test_other_element_types(program):
    check(program, complex_inputs)


def accumulate(x, y):
    x.index_put_((torch.tensor([0, 0]),), y[:2], accumulate=True)
    x.scatter_add_(1, torch.tensor([[0, 1, 1]]), y[:1, :3])
    x.index_add_(0, torch.tensor([2]), y[:1])
    x.put_(torch.tensor([1, 5]), y[0, :2])
    x.masked_scatter_(x > 1, y)
    return x.cumsum_(1)


def arithmetic(x, y):
    z = x * 1
    z.addcmul_(y, y, value=2).lerp_(y, 0.5).clamp_(-1, 1).pow_(2).fill_diagonal_(3.0)
    z.t().copy_(y.t())
    z.sub_(y[0]).div_(2.0).remainder_(1.5)
    return z, z.floor_()


def augmented(x, y):
    x += y
    x[0] -= 1
    y @= torch.eye(4)
    x **= 2
    return x, y


def logical(x, y):
    mask = x > 0
    mask |= y > 0
    mask.logical_not_()
    mask[0] = True
    x[mask] = 2
    return mask, x


@pytest.mark.parametrize("program", [accumulate, arithmetic, augmented, logical])
def test_methods(program):
    check(program)


def test_overlapping_move_through_a_copy():
    def program(x, _):
        x[1:] = x[:-1].clone()
        return x

    check(program)


def test_empty_and_scalar_tensors():
    def program(x, _):
        empty = x[:0]
        empty.add_(1)
        total = x.sum()
        total.add_(2).mul_(x[0, 0])
        x[1:1] = 5
        return empty, total

    check(program)


def test_number_results():
    def program(x, y):
        torch.equal(x, y)
        x.copy_(y)
        return x

    check(program)


def test_mode_regions():
    def program(x, w):
        with torch.no_grad():
            y = w * 1
            y.mul_(2)
            with torch.enable_grad():
                z = w * 3
                z.add_(y)
        z[0].mul_(2)
        return z, y

    check(program, with_gradients)


def test_autocast_region():
    def program(x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = x @ y.t()
            z.add_(1.5)
            x.addmm_(y[:, :3], y)
        return z, x

    check(program)


def test_inference_mode():
    def program(x, y):
        with torch.inference_mode():
            z = x * 2
            z[0].add_(y[0])
            z.mul_(3)
        return z + 0

    check(program)


def test_program_under_no_grad():
    def program(x, w):
        w[0] = 1.0
        y = w * x
        y.t()[1].sub_(1)
        w.mul_(2)
        return y, w, w[1]

    with torch.no_grad():
        functional = check(program, with_gradients)
        assert functional.results[1] == FromInput(functional.results[1].index)


def test_two_parameters_in_one_memory():
    """As flattened parameters are: the optimizer writes the whole, gradients go to the parts."""
    flat = torch.arange(1.0, 7.0)

    def inputs():
        memory = flat.clone()
        return [memory, memory[:2].detach().requires_grad_(), memory[2:].detach().requires_grad_()]

    def program(memory, one, other):
        with torch.no_grad():
            memory.mul_(2)
        return (one * 3).sum() + (other**2).sum()

    check(program, inputs)


def test_write_to_a_part_whose_memory_has_gradients():
    def program(x, w):
        y = w * 2
        part = y[1]
        part.mul_(x[0])
        y.sin_()
        part.add_(1)
        return part, y

    check(program, with_gradients)


def test_gradient_of_a_value_overwritten_under_no_grad():
    def program(x, w):
        y = w.tanh() * 1
        with torch.no_grad():
            y[0] = 5.0
            y.view(-1)[-1] = 7.0
        return (y * x).sum(), y[0]

    check(program, with_gradients)


def test_statistics_in_training_and_their_use():
    def program(x, w):
        mean = x.mean(0)
        with torch.no_grad():
            x.lerp_(w, 0.1)
        return (w - x).pow_(2), mean

    check(program, with_gradients)


def test_write_in_a_loop():
    def program(x, _):
        rows = torch.empty(3, 4)
        for index in range(3):
            rows[index] = x[index].cumsum(0)
            x[index] = rows[index] - 1
        return rows

    check(program)


def test_part_of_an_expanded_tensor():
    def program(x, _):
        y = x * 1
        y.expand(2, 3, 4).split(1)[0].add_(1)
        x.expand(2, 3, 4)[1, 1:].mul_(2)
        return y

    check(program)


def test_list_of_results_of_one_call():
    def program(x, y):
        first, second = torch.split(x * 1, 2)
        first.add_(1)
        second.mul_(first[:1])
        pieces = torch.chunk(y, 2, dim=1)
        pieces[1].zero_()
        return first, second, pieces[0], pieces[1]

    check(program)


def test_clones_of_written_values_are_independent():
    def program(x, _):
        y = x * 1
        copy = y.clone()
        y.add_(1)
        other = y.contiguous()
        y.add_(1)
        return y, copy, other

    check(program)


def test_names_and_storages_are_new():
    functional = functionalize(acquire_program(lambda x: (x * 1).add_(1)[0].mul_(2), *plain()[:1]).trace)
    names = [proxy.name for bound in functional.computation.symbols for proxy in bound.outputs()]
    assert len(set(names)) == len(names)


class AddInPlace(torch.autograd.Function):
    """Writes its argument."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        return x.add_(y)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient * 10


def fail_while_recording(emitter, modes):
    with modes:
        assert emitter.records_gradients
        raise LookupError


@pytest.mark.parametrize("before", [None, INFERENCE], ids=["of the trace", "its own"])
def test_errors_leave_the_emitter_as_it_was(before):
    line = BoundSymbol(RELU, (tensor("a", (3,), 0),), {}, tensor("b", (3,), 1), context=GRAD)
    emitter = Emitter(Trace("computation", line.inputs(), (line,), line.output, Stage.ACQUIRED, "test", INFERENCE))
    emitter.context = before
    for modes in (emitter.recording(), emitter.modes_of(line)):
        with pytest.raises(LookupError):
            fail_while_recording(emitter, modes)
        assert emitter.context is before
        assert not emitter.records_gradients


def test_autograd_function_that_writes():
    def program(x, w):
        y = x * 1
        result = AddInPlace.apply(y, w)
        return result, y

    check(program, with_gradients)


def test_body_that_writes():
    def program(x, w):
        def layer(value):
            x.mul_(0.5)
            return value * w

        return torch.utils.checkpoint.checkpoint(layer, w * 2, use_reentrant=False, preserve_rng_state=False)

    originals = with_gradients()
    acquired = acquire_program(program, *originals)
    functional = functionalize(acquired.trace)
    inputs = with_gradients()
    order = [next(i for i, tensor in enumerate(originals) if tensor is item) for item in acquired.inputs]
    expected = with_gradients()
    result = program(*expected)
    torch.testing.assert_close(run_functionalized(functional, [inputs[i] for i in order])[0], result)
    torch.testing.assert_close(inputs[0], expected[0])
