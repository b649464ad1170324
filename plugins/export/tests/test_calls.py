"""Calls of compiled exported programs: sizes, structure, constants, state, training, and other ways to call them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from comparison import compare, compiled_of
from exported_programs import PROGRAMS, Pair, Program, exported
from torch import Tensor, nn
from torch.export import Dim

import thunder
from thunder_core.errors import OptionError, UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec:FutureWarning")


def _dynamic() -> torch.export.ExportedProgram:
    batch = Dim("batch", min=2, max=8)
    program, args = Program(PROGRAMS["sizes"][0]), (torch.randn(3, 4),)
    return torch.export.export(program, args, dynamic_shapes={"args": ({0: batch},)})


def test_each_size_has_a_program_and_sizes_outside_of_the_range_are_the_errors_of_pytorch() -> None:
    program = _dynamic()
    expected, compiled = program.module(), thunder.jit(program, executors=[])
    for rows in (2, 5, 8, 5, 2):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), expected(x), rtol=0, atol=0)
    assert len(compiled_of(compiled).entries) == 3
    for shape in ((9, 4), (3, 5)):
        with pytest.raises((AssertionError, RuntimeError)) as wanted:
            expected(torch.randn(shape))
        with pytest.raises(type(wanted.value)) as raised:
            compiled(torch.randn(shape))
        assert str(raised.value) == str(wanted.value)
    assert len(compiled_of(compiled).entries) == 3


def test_a_program_without_examples_checks_the_range_in_a_hook() -> None:
    program = _dynamic()
    program.example_inputs = None
    compiled = thunder.jit(program, executors=[])
    x = torch.randn(4, 4)
    torch.testing.assert_close(compiled(x), program.module()(x), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match=r"Expected input at .*shape"):
        compiled(torch.randn(9, 4))


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2), {}), ((torch.ones(3, 4),), {"options": {}, "pair": None}), ((torch.ones(3, 4),), {"x": 1})],
)
def test_arguments_of_another_structure_are_the_errors_of_pytorch(args: Any, kwargs: Any) -> None:
    program, right_args, right_kwargs = exported("nested")
    compiled = thunder.jit(program, executors=[])
    compiled(*right_args, **right_kwargs)
    with pytest.raises((ValueError, TypeError)) as wanted:
        program.module()(*args, **kwargs)
    with pytest.raises(type(wanted.value)) as raised:
        compiled(*args, **kwargs)
    assert str(raised.value) == str(wanted.value)


def test_keyword_arguments_and_keys_may_have_another_order() -> None:
    def program(m: Any, *, a: Tensor, b: dict[str, Tensor]) -> Tensor:
        return a - b["first"] * b["second"]

    values = {"first": torch.randn(2), "second": torch.randn(2)}
    a = torch.randn(2)
    compiled = thunder.jit(torch.export.export(Program(program), (), {"a": a, "b": values}), executors=[])
    expected = a - values["first"] * values["second"]
    for given in ({"a": a, "b": values}, {"b": dict(reversed(values.items())), "a": a}):
        torch.testing.assert_close(compiled(**given), expected, rtol=0, atol=0)
    other = {"first": torch.randn(2), "second": torch.randn(2)}
    torch.testing.assert_close(compiled(a=a, b=other), a - other["first"] * other["second"], rtol=0, atol=0)


def test_other_constants_than_those_of_the_export_are_the_errors_of_pytorch() -> None:
    program, (x, scale), kwargs = exported("default_arguments")
    compiled = thunder.jit(program, executors=[])
    compiled(x, scale, **kwargs)
    with pytest.raises((AssertionError, RuntimeError)) as wanted:
        program.module()(x, 4.0, **kwargs)
    with pytest.raises(type(wanted.value)) as raised:
        compiled(x, 4.0, **kwargs)
    assert str(raised.value) == str(wanted.value)


def test_an_integer_that_varies() -> None:
    def program(m: Any, x: Tensor, times: int) -> Tensor:
        return x.repeat(times, 1) * times

    source = torch.export.export(Program(program), (torch.randn(2, 3), 4), dynamic_shapes={"args": (None, Dim.DYNAMIC)})
    compiled, x = thunder.jit(source, executors=[]), torch.randn(2, 3)
    for times in (4, 2, 4, 7):
        torch.testing.assert_close(compiled(x, times), source.module()(x, times), rtol=0, atol=0)
    assert len(compiled_of(compiled).entries) == 3


def test_tensors_that_are_the_same_or_share_storage() -> None:
    program, _, _ = exported("mutated_input")
    compiled, reference = thunder.jit(copy.deepcopy(program), executors=[]), copy.deepcopy(program).module()
    for create in (_apart, _same, _apart, _shifted, _same):
        given, wanted = create(), create()
        for one, other in zip(compiled(*given), reference(*wanted), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
        torch.testing.assert_close(given, wanted, rtol=0, atol=0)


def _apart() -> tuple[Tensor, Tensor]:
    return torch.arange(12.0).view(3, 4), torch.arange(12.0).view(3, 4)


def _same() -> tuple[Tensor, Tensor]:
    x = torch.arange(12.0).view(3, 4)
    return x, x


def _shifted() -> tuple[Tensor, Tensor]:
    x = torch.arange(16.0).view(4, 4)
    return x[:3], x[1:]


def test_training_updates_the_tensors_of_the_exported_program() -> None:
    program, (x,), _ = exported("batch_norm")
    other = copy.deepcopy(program)
    compiled, reference = thunder.jit(program, executors=[]), other.module()
    assert next(compiled.parameters()) is next(program.parameters())
    optimizers = [torch.optim.Adam(module.parameters(), lr=0.1) for module in (compiled, reference)]
    for _ in range(3):
        for module, optimizer in zip((compiled, reference), optimizers, strict=True):
            optimizer.zero_grad()
            module(x).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(dict(program.state_dict), dict(other.state_dict), rtol=0, atol=0)
    assert len(compiled_of(compiled).entries) == 1


@pytest.mark.parametrize("assign", [False, True])
def test_state_dict(assign: bool) -> None:
    program, (x,), _ = exported("mlp")
    compiled, reference = thunder.jit(program, executors=[]), copy.deepcopy(program).module()
    compiled(x)
    state = {name: torch.rand(value.shape).to(value.dtype) for name, value in reference.state_dict().items()}
    for module in (compiled, reference):
        module.load_state_dict(copy.deepcopy(state), assign=assign)
    torch.testing.assert_close(compiled(x), reference(x), rtol=0, atol=0)
    torch.testing.assert_close(dict(compiled.state_dict()), dict(reference.state_dict()), rtol=0, atol=0)
    assert len(compiled_of(compiled).entries) == 1


def test_train_and_eval_are_the_errors_of_pytorch() -> None:
    compiled = thunder.jit(exported("mlp")[0])
    with pytest.raises(NotImplementedError, match=r"train\(\) is not supported"):
        compiled.train()


class Scaled(nn.Module):
    """One operation of the graph, and one in the body of a higher-order operator."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            y = x * 2
        return x * 3 + y


@pytest.mark.parametrize("body", [False, True])
def test_a_graph_that_is_edited_is_recorded_again(body: bool) -> None:
    program = torch.export.export(Scaled(), (torch.ones(2, requires_grad=True),))
    compiled, reference = thunder.jit(program, executors=[]), program.module()
    x = torch.ones(2, requires_grad=True)
    torch.testing.assert_close(compiled(x), reference(x), rtol=0, atol=0)
    for module in (compiled, reference):
        parts = [part for part in module.modules() if isinstance(part, torch.fx.GraphModule)]
        edited = [part for part in parts if any("mul" in str(node.target) for node in part.graph.nodes)][
            -1 if body else 0
        ]
        node = next(node for node in edited.graph.nodes if "mul" in str(node.target))
        node.args = (node.args[0], 100.0)
        edited.recompile()
    expected = reference(x)
    torch.testing.assert_close(compiled(x), expected, rtol=0, atol=0)
    assert expected[0] > 100


def test_forward_and_copies() -> None:
    program, (x,), _ = exported("mlp")
    compiled = thunder.jit(program, executors=[])
    expected = program.module()(x)
    torch.testing.assert_close(compiled.forward(x), expected, rtol=0, atol=0)
    copied = copy.deepcopy(compiled)
    torch.testing.assert_close(copied(x), expected, rtol=0, atol=0)
    assert next(copied.parameters()) is not next(compiled.parameters())


def test_forward_takes_keyword_arguments_by_position() -> None:
    program, args, kwargs = exported("nested")
    compiled, expected = thunder.jit(program, executors=[]), program.module()
    given = (*args, *kwargs.values())
    torch.testing.assert_close(compiled.forward(*given)["out"][0], expected.forward(*given)["out"][0], rtol=0, atol=0)
    with pytest.raises(TypeError, match="missing a required argument"):
        compiled.forward(*args)


def test_the_settings_are_pickled_with_the_front_end() -> None:
    compiled = thunder.jit(exported("mlp")[0], executors=[])
    settings = pickle.loads(pickle.dumps(compiled_of(compiled).settings))
    assert type(settings.front_end).__name__ == "ExportFrontEnd"
    assert settings.config.front_end == "export.export"


def test_a_program_inside_of_a_module_that_is_compiled() -> None:
    program, (x,), _ = exported("mlp")
    outer = nn.Sequential(nn.Linear(4, 4), program.module())
    torch.testing.assert_close(thunder.jit(outer, executors=[])(x), outer(x))


def test_a_call_under_other_modes_has_another_program() -> None:
    program, (x,), _ = exported("mlp")
    compiled, reference = thunder.jit(program, executors=[]), program.module()
    for context in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16)):
        with context:
            torch.testing.assert_close(compiled(x), reference(x), rtol=0, atol=0)
    assert len(compiled_of(compiled).entries) == 3
    assert compiled(x).requires_grad


def test_source_lines_are_those_of_the_exported_module() -> None:
    program, (x,), _ = exported("mlp")
    compiled = thunder.jit(program, executors=[])
    compiled(x)
    text = str(thunder.last_traces(compiled)[0])
    assert "exported_programs.py:" in text
    assert "in forward: return self.function(self, *args, **kwargs)" in text
    assert "torch.nn.functional.gelu(" in text
    assert "torch.nn.functional.linear(args_0, module_linear_weight, module_linear_bias)" in text


class _Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


class _Loop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch._higher_order_ops.while_loop(lambda x: x.sum() < 10, lambda x: (x + 1,), (x,))[0]


class _Item(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        n = x.sum().int().item()
        torch._check(n >= 0)
        return x * n


class _Nonzero(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0] * 2


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (_Branch(), "the higher-order operator 'cond'"),
        (_Loop(), "the higher-order operator 'while_loop'"),
        (_Item(), "needs the values of tensors"),
        (_Nonzero(), "needs the values of tensors"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_programs_that_depend_on_values_are_refused(module: nn.Module, message: str) -> None:
    program = torch.export.export(module, (torch.ones(3),))
    with pytest.raises(UnsupportedError, match=message) as raised:
        thunder.jit(program)(torch.ones(3))
    assert "in forward" in str(raised.value)
    assert "What to do" in str(raised.value)


def test_a_branch_that_a_size_chooses() -> None:
    class Module(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.shape[0] > 4, lambda x: x + 1, lambda x: x - 1, (x,))

    program = torch.export.export(Module(), (torch.ones(3),), dynamic_shapes={"x": {0: Dim("n", min=2, max=9)}})
    compiled = thunder.jit(program, executors=[])
    for size in (3, 6):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), program.module()(x), rtol=0, atol=0)


@pytest.mark.parametrize("hook", ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"])
def test_hooks_are_refused_also_after_a_call(hook: str) -> None:
    program, (x,), _ = exported("mlp")
    compiled = thunder.jit(program, executors=[])
    compiled(x)
    getattr(compiled, hook)(lambda *_: None)
    with pytest.raises(UnsupportedError, match="a hook is registered"):
        compiled(x)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.randn(3, 4).to_sparse(), "layout torch.sparse_coo"),
        (torch.randn(3, 4, dtype=torch.complex64).conj().imag, "lazily conjugated or negated"),
        (torch.randn(3, 4).as_subclass(type("Mine", (Tensor,), {})), "of the class Mine"),
    ],
)
def test_tensors_that_are_refused(value: Tensor, message: str) -> None:
    program, _, _ = exported("mlp")
    with pytest.raises(UnsupportedError, match=message):
        thunder.jit(program)(value)


def test_options_that_contradict_the_program() -> None:
    program, _, _ = exported("mlp")
    with pytest.raises(OptionError, match=r"recorded by the front end 'export\.export', not by 'dynamo'"):
        thunder.jit(program, front_end="dynamo")
    with pytest.raises(OptionError, match="takes no declarations of sizes"):
        thunder.jit(program, dynamic={"x": {0: Dim("n")}})
    with pytest.raises(OptionError, match=r"records programs of torch\.export, not function"):
        thunder.jit(lambda x: x, front_end="export")(torch.ones(1))


def test_named_tuples_are_guarded() -> None:
    program, args, kwargs = exported("nested")
    compiled = compare(program, args, kwargs)
    with pytest.raises(ValueError, match="tree spec"):
        compiled(*args, **{**kwargs, "pair": tuple(kwargs["pair"])})
    assert isinstance(compiled(*args, **kwargs)["pair"], Pair)
