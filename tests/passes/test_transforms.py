"""Transforms: their places, their order, what they may change, and what they are refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.errors import VerificationError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.transform import Phase, Place, Transform, TransformContext, ordered
from thunder_core.symbols.registry import registry


@dataclass(frozen=True, eq=False)
class Watch(Transform):
    """Notes what it is given."""

    name: ClassVar[str] = "watch"
    place: ClassVar[Place] = Place.LAST
    seen: list[tuple[Phase, Stage, int]] = field(default_factory=list)

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        self.seen.append((context.phase, trace.stage, len(trace.symbols)))
        return trace


def watch(at: Place, **attributes: Any) -> Watch:
    """A `Watch` of another class."""
    kind = type("Watch", (Watch,), {"name": f"watch {at.value}", **attributes, "place": at})
    return kind()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))


@pytest.mark.parametrize("training", [False, True])
def test_places(training: bool) -> None:
    transforms = {place: watch(place) for place in Place}
    program = thunder.jit(model().requires_grad_(training), transforms=list(transforms.values()))
    output = program(torch.randn(3, 4))
    if training:
        output.sum().backward()
    phases = {place: [(phase, stage) for phase, stage, _ in found.seen] for place, found in transforms.items()}
    late = [Phase.FORWARD, Phase.BACKWARD] if training else [Phase.INFERENCE]
    assert phases == {
        Place.ACQUIRED: [(Phase.INFERENCE, Stage.ACQUIRED)],
        Place.BEFORE_CLAIMS: [(Phase.INFERENCE, Stage.FUNCTIONAL)],
        Place.BEFORE_DIFFERENTIATION: [(Phase.INFERENCE, Stage.FUNCTIONAL)],
        Place.AFTER_DIFFERENTIATION: [(Phase.JOINT if training else Phase.INFERENCE, Stage.FUNCTIONAL)],
        Place.PARTITIONED: [(phase, Stage.FUNCTIONAL) for phase in late],
        Place.CLAIMED: [(phase, Stage.EXECUTABLE) for phase in late],
        Place.LAST: [(phase, Stage.EXECUTABLE) for phase in late],
    }
    names = [stage.name for stage in thunder.explain(program).entries[0].stages]
    assert [name for name in names if name.startswith("watch")][:4] == [
        "watch acquired",
        "watch before claims",
        "watch before differentiation",
        "watch after differentiation",
    ]


def test_one_transform_at_several_places() -> None:
    places: list[Place | None] = []

    @dataclass(frozen=True)
    class Twice(Transform):
        name: ClassVar[str] = "twice"
        place: ClassVar[Place] = Place.LAST
        also: ClassVar[tuple[Place, ...]] = (Place.AFTER_DIFFERENTIATION,)

        def run(self, trace: Trace, context: TransformContext) -> Trace:
            places.append(context.place)
            return trace

    thunder.jit(model(), transforms=[Twice()])(torch.randn(3, 4))
    assert places == [Place.AFTER_DIFFERENTIATION, Place.LAST, Place.LAST]


@dataclass(frozen=True)
class SinToCos(Transform):
    """A change that everybody can see."""

    name: ClassVar[str] = "sin_to_cos"
    place: ClassVar[Place] = Place.BEFORE_DIFFERENTIATION

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        sin, cos = registry.symbol_of(torch.sin), registry.symbol_of(torch.cos)
        lines = [replace(bound, symbol=cos) if bound.symbol is sin else bound for bound in trace.symbols]
        return trace.with_symbols(lines, self.name)


def test_a_change_before_differentiation_has_its_own_gradient() -> None:
    x = torch.randn(3, requires_grad=True)
    output = thunder.jit(lambda x: torch.sin(x) * 2, transforms=[SinToCos()])(x)
    torch.testing.assert_close(output, torch.cos(x) * 2)
    torch.testing.assert_close(torch.autograd.grad(output.sum(), x)[0], -torch.sin(x) * 2)


@dataclass(frozen=True)
class AddConstant(Transform):
    name: ClassVar[str] = "add_constant"
    place: ClassVar[Place] = Place.BEFORE_DIFFERENTIATION

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        (line,) = trace.symbols
        constant = TensorProxy("three", (), (), torch.float32, torch.device("cpu"), False, 77)
        context.constants["three"] = torch.tensor(3.0)
        changed = replace(line, args=(line.args[0], constant))
        return replace(trace.with_symbols([changed], self.name), inputs=(*trace.inputs, constant))


def test_constants() -> None:
    program = thunder.jit(lambda x: torch.mul(x, 2.0), transforms=[AddConstant()])
    torch.testing.assert_close(program(torch.ones(2)), torch.full((2,), 3.0))


def test_constants_of_other_transforms_stay() -> None:
    @dataclass(frozen=True)
    class Replace(Transform):
        name: ClassVar[str] = "replace"
        place: ClassVar[Place] = Place.AFTER_DIFFERENTIATION

        def run(self, trace: Trace, context: TransformContext) -> Trace:
            context.constants["three"] = torch.tensor(4.0)
            return trace

    program = thunder.jit(lambda x: torch.mul(x, 2.0), transforms=[AddConstant(), Replace()])
    with pytest.raises(thunder.TransformError, match="'replace' changed constants of others"):
        program(torch.ones(2))


def broken(at: Place, change: Any) -> Transform:
    kind = type(
        "Broken", (Transform,), {"name": "broken", "place": at, "run": lambda self, trace, context: change(trace)}
    )
    return kind()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda trace: None, "returned None"),
        (lambda trace: trace.symbols, "an object of type tuple"),
        (
            lambda trace: 1 / 0,
            r"failed at its place .* program, at .*test_transforms\.py:\d+: ZeroDivisionError: division by zero",
        ),
        (
            lambda trace: setattr(trace, "symbols", ()),
            r"failed at .* FrozenInstanceError: (?s:.*) ops are immutable; trace\.with_symbols",
        ),
        (lambda trace: torch.cos(trace.inputs[0]), "failed at .* not TensorProxy\n(?s:.*) insert an op"),
        (lambda trace: replace(trace, inputs=()), "changed the inputs"),
        (lambda trace: replace(trace, stage=Stage.ACQUIRED), "a trace of stage acquired"),
        (
            lambda trace: replace(trace, output=()),
            r"changed the outputs .* instead of .*2. torch.float32 cpu",
        ),
    ],
    ids=["nothing", "ops", "error", "assignment", "call", "inputs", "stage", "outputs"],
)
def test_mistakes(change: Any, words: str) -> None:
    with pytest.raises(
        thunder.TransformError, match=f"the transform 'broken' {words}|the transform 'broken' returned {words}"
    ):
        thunder.jit(lambda x: x * 2, transforms=[broken(Place.BEFORE_DIFFERENTIATION, change)])(torch.ones(2))


def test_a_broken_trace_is_told_with_its_transform_and_line() -> None:
    breaks = broken(Place.BEFORE_DIFFERENTIATION, lambda trace: replace(trace, symbols=trace.symbols[1:]))
    place = "the transform 'broken' at its place 'before differentiation' in the inference program"
    with pytest.raises(VerificationError, match=rf"produced by {place}, at symbols\[0\]: it uses 't0'") as caught:
        thunder.jit(lambda x: torch.cos(torch.sin(x)), transforms=[breaks])(torch.ones(2))
    assert "-->     t1 = torch.cos(t0)" in str(caught.value)
    assert "leave 'broken' out" in str(caught.value)


def dropping(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.dropout(torch.cos(x), 0.5) * 2


def in_place_of_dropout(change: Callable[[BoundSymbol], BoundSymbol], at: Place) -> Transform:
    """A transform that replaces dropout by what ``change`` returns."""
    dropout = registry.symbol_of(nn.functional.dropout)
    return broken(
        at, lambda trace: trace.with_symbols([change(op) if op.symbol is dropout else op for op in trace.symbols], "")
    )


def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[BoundSymbol], BoundSymbol]:
    """Changes an op to a call of another function, whose first argument is that of the op."""
    return lambda op: replace(op, symbol=registry.symbol_of(function), args=(op.args[0], *args), kwargs=kwargs)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda op: replace(op, args=op.args[:1]), r"dropout\(\) missing 2 required positional"),
        (called(nn.functional.dropout, 0.5, True, rate=1), "unexpected keyword argument 'rate'"),
        (called(torch.transpose, 0, 7), "torch.transpose does not accept these arguments: IndexError: Dimension out"),
        (called(torch.sum), r"torch.sum returns shape \(\) instead of \(2, 4\) for t1"),
        (called(torch.Tensor.to, torch.float64), "returns dtype torch.float64 instead of torch.float32 for t1"),
        (called(torch.Tensor.add_, 1), "a functional trace mutates t0"),
        (lambda op: replace(op, symbol=Symbol("f", lambda x: x)), "does not accept these arguments: too many"),
        (lambda op: replace(op, symbol=Symbol("f", 3)), "has the target 3, which is not a function"),
        (lambda op: replace(op, symbol=torch.clone), "not a Symbol"),
        (lambda op: replace(op, args=op.args[0]), "must be a tuple and a dict"),
    ],
)
def test_a_malformed_op_is_reported_with_its_transform_and_line(change: Any, words: str) -> None:
    program = thunder.jit(dropping, transforms=[in_place_of_dropout(change, Place.BEFORE_DIFFERENTIATION)])
    with pytest.raises(VerificationError, match=words) as caught:
        program(torch.ones(2, 4))
    assert "produced by the transform 'broken'" in str(caught.value)
    assert caught.value.location is not None
    assert caught.value.location.text.startswith("return nn.functional.dropout")


@pytest.mark.parametrize(
    ("change", "effects", "at"),
    [
        (called(torch.clone), Effects(), Place.ACQUIRED),
        (called(torch.clone), Effects(), Place.AFTER_DIFFERENTIATION),
        (called(nn.functional.dropout, 0.5, False), Effects(), Place.BEFORE_DIFFERENTIATION),
        (called(nn.functional.dropout, 0.1, True), Effects(random=True), Place.BEFORE_DIFFERENTIATION),
        (
            lambda op: replace(called(torch.clone)(op), effects=Effects(external=True)),
            Effects(external=True),
            Place.BEFORE_DIFFERENTIATION,
        ),
    ],
    ids=["acquired", "clone", "evaluation", "training", "declared"],
)
def test_effects_of_a_replaced_op_are_computed_anew(change: Any, effects: Effects, at: Place) -> None:
    program, x = thunder.jit(dropping, transforms=[in_place_of_dropout(change, at)]), torch.randn(2, 4)
    state = torch.get_rng_state()
    output = program(x)
    assert torch.equal(torch.get_rng_state(), state) is not effects.random
    if not effects.random:
        torch.testing.assert_close(output, torch.cos(x) * 2)
    assert effects in [op.effects for op in thunder.last_traces(program)[-1].symbols]
    assert effects.random or not any(op.effects.random for op in thunder.last_traces(program)[-1].symbols)


def test_views_in_place_of_copies_share_storage() -> None:
    def write(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.cos(x)
        z = nn.functional.dropout(y, 0.5)
        z[1:].add_(1)
        return y, z

    view = in_place_of_dropout(called(torch.Tensor.view, 2, 4), Place.ACQUIRED)
    y, z = thunder.jit(write, transforms=[view])(torch.zeros(2, 4))
    torch.testing.assert_close(y, torch.tensor([[1.0], [2.0]]).expand(2, 4))
    torch.testing.assert_close(z, y)
    identity = in_place_of_dropout(called(nn.functional.dropout, 0.5, False), Place.BEFORE_DIFFERENTIATION)
    for function in (lambda x: nn.functional.dropout(x), lambda x: nn.functional.dropout(x).t().exp()):
        x = torch.randn(2, 4, requires_grad=True)
        expected = x if function(x).shape == x.shape else x.t().exp()
        output = thunder.jit(function, transforms=[identity])(x)
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(torch.autograd.grad(output.sum(), x), torch.autograd.grad(expected.sum(), x))


@dataclass(frozen=True)
class NoDropout(Transform):
    """Removes dropout, and redirects its uses."""

    name: ClassVar[str] = "no_dropout"
    place: ClassVar[Place] = Place.BEFORE_DIFFERENTIATION

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        dropout = registry.symbol_of(nn.functional.dropout)
        redirected: dict[str, Any] = {}

        def value(leaf: Any) -> Any:
            if isinstance(leaf, Trace):
                return self.run(leaf, context)
            return redirected.get(leaf.name, leaf) if isinstance(leaf, TensorProxy) else leaf

        ops = []
        for op in trace.symbols:
            op = op.map_arguments(value)
            if op.symbol is dropout:
                redirected[op.output.name] = op.args[0]
            else:
                ops.append(op)
        return replace(trace.with_symbols(ops, self.name), output=map_leaves(value, trace.output))


class AcquiredNoDropout(NoDropout):
    place: ClassVar[Place] = Place.ACQUIRED


@pytest.mark.parametrize("transform", [NoDropout(), AcquiredNoDropout()], ids=["functional", "acquired"])
def test_redirected_values_are_written_viewed_and_returned(transform: Transform) -> None:
    def function(x: torch.Tensor, dropout: Any) -> Any:
        y = dropout(torch.cos(x))
        y.add_(1)
        z = checkpoint(lambda y: dropout(y).sin(), y, use_reentrant=False)
        w = dropout(z)
        return y, w.t(), w, dropout(x)

    compiled = thunder.jit(lambda x: function(x, nn.functional.dropout), transforms=[transform])
    x = torch.randn(3, 4, requires_grad=True)
    found, expected = compiled(x), function(x, lambda x: x)
    torch.testing.assert_close(found, expected)
    assert found[1].data_ptr() == found[2].data_ptr()
    gradients = [torch.autograd.grad(results[1].sum() + results[3].sum(), x) for results in (found, expected)]
    torch.testing.assert_close(*gradients)
    assert not any(op.effects.random for op in thunder.last_traces(compiled)[-1].symbols)


def test_writes_of_a_replaced_op_are_computed_anew() -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * y

    exchange = broken(
        Place.ACQUIRED,
        lambda trace: trace.with_symbols(
            [called(torch.Tensor.mul_, 3)(op) if op.effects.mutates else op for op in trace.symbols], ""
        ),
    )
    x, y = torch.randn(3), torch.randn(3)
    expected = x * 3
    torch.testing.assert_close(thunder.jit(write, transforms=[exchange])(x, y), expected * y)
    torch.testing.assert_close(x, expected)


def named(name: str, **attributes: Any) -> Transform:
    return type(name, (Transform,), {"name": name, "place": Place.LAST, **attributes})()


def names(*transforms: Transform) -> list[str]:
    return [transform.name for transform in ordered(transforms)]


def test_order() -> None:
    assert names(named("a"), named("b"), named("c")) == ["a", "b", "c"]
    assert names(named("a"), named("b"), named("c", before=("a",))) == ["b", "c", "a"]
    assert names(named("a", after=("c",)), named("b"), named("c")) == ["b", "c", "a"]
    assert names(named("a", before=("absent",), conflicts=("absent",))) == ["a"]


@pytest.mark.parametrize(
    ("transforms", "words"),
    [
        ((named("a"), named("a")), "'a' is listed twice"),
        ((named("a", place=None),), "'a' has no place"),
        (
            (named("a", requires=("bee",)), named("be")),
            r"'a' requires 'bee', which is not in the list; did you mean 'be'\?",
        ),
        ((named("a", conflicts=("b",)), named("b")), "'a' conflicts with 'b'"),
        ((named("a", before=("b",)), named("b", before=("a",))), "cannot be put in order: (a before b|b before a)"),
    ],
    ids=["twice", "place", "requires", "conflicts", "circle"],
)
def test_contradictions(transforms: Any, words: str) -> None:
    with pytest.raises(thunder.TransformError, match=words):
        ordered(transforms)


@dataclass(frozen=True, eq=False)
class Doubled(Transform):
    """Keeps weights doubled, and gives and takes them as they were."""

    name: ClassVar[str] = "doubled"
    place: ClassVar[Place] = Place.ACQUIRED
    modules: list[nn.Module] = field(default_factory=list)

    def on_module(self, module: nn.Module) -> None:
        self.modules.append(module)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(2)

    def on_state_dict(self, state: dict[str, Any]) -> dict[str, Any]:
        return {name: value / 2 for name, value in state.items()}

    def on_load_state_dict(self, state: Any) -> Any:
        return {name: value * 2 for name, value in state.items()}


def test_module_and_state_dict_hooks() -> None:
    original = model()
    before = {name: value.clone() for name, value in original.state_dict().items()}
    transform = Doubled()
    compiled = thunder.jit(original, transforms=[transform])
    x = torch.randn(3, 4)
    first = compiled(x)
    assert transform.modules == [original]
    torch.testing.assert_close(original[0].weight, before["0.weight"] * 2)
    torch.testing.assert_close(compiled.state_dict(), before)
    compiled.load_state_dict({name: torch.zeros_like(value) for name, value in before.items()})
    torch.testing.assert_close(compiled(x), torch.zeros(3, 2))
    compiled.load_state_dict(before)
    torch.testing.assert_close(compiled(x), first)
    assert thunder.cache_misses(compiled) == 1


@dataclass(frozen=True)
class OfCopies(Transform):
    """Compiles a copy of the module, without its first parameter's values."""

    name: ClassVar[str] = "of_copies"
    place: ClassVar[Place] = Place.ACQUIRED
    of_modules: ClassVar[bool] = True

    def on_module(self, module: nn.Module) -> nn.Module:
        copied = copy.deepcopy(module)
        nn.init.zeros_(next(copied.parameters()))
        return copied

    def module_notes(self, module: nn.Module) -> list[str]:
        return [f"of_copies: {next(module.parameters()).count_nonzero()} values"]


def test_what_is_no_module_is_refused() -> None:
    @dataclass(frozen=True)
    class Weights(OfCopies):
        def on_module(self, module: nn.Module) -> Any:
            return module.state_dict()

    with pytest.raises(thunder.TransformError, match=r"'of_copies' returned an object of type OrderedDict, not a mod"):
        thunder.jit(model(), transforms=[Weights()])


def test_transforms_that_return_another_module() -> None:
    original, x = model(), torch.randn(3, 4)
    compiled = thunder.jit(original, transforms=[OfCopies()])
    copied = thunder.original(compiled)
    assert copied is not original
    assert original[0].weight.count_nonzero() > 0
    torch.testing.assert_close(compiled(x), copied(x), rtol=0, atol=0)
    assert compiled[0].weight is copied[0].weight
    report = thunder.explain(compiled)
    assert report.module_notes == ("of_copies: 0 values",)
    assert "\nof_copies: 0 values\n" in str(report)
    for program in (torch.relu, thunder.jit(torch.relu)):
        with pytest.raises(thunder.OptionError, match="'of_copies' changes modules, and relu is not a module"):
            thunder.jit(program, transforms=[OfCopies()])


def test_state_dict_hooks_inside_another_module() -> None:
    compiled = thunder.jit(model(), transforms=[Doubled()])
    around = nn.Sequential(compiled, nn.ReLU())
    plain = nn.Sequential(model(), nn.ReLU())
    torch.testing.assert_close(dict(around.state_dict()), dict(plain.state_dict()))
    assert around.state_dict()._metadata == plain.state_dict()._metadata
    around.load_state_dict({name: value + 1 for name, value in plain.state_dict().items()})
    torch.testing.assert_close(compiled[0].weight, (plain[0][0].weight + 1) * 2)
