"""Checks of a transform: programs behave the same with it and without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from thunder import explain
from thunder_core.checks.originals import ORIGINAL
from thunder_core.errors import VerificationError
from thunder_core.pytorch_internals import tree_leaves
from thunder_core.settings import Settings
from thunder_testing.compare import Arguments, BehaviourMismatch, assert_same_behaviour
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.conformance.running import quietly
from thunder_testing.conformance.transform_programs import TransformProgram
from thunder_testing.conformance.transform_run import (
    TestedTransform,
    arguments_of,
    called,
    changed_lines,
    compiled,
    difference,
    text_of,
    verified,
)
from thunder_testing.difference import Comparison


def _original(compiled_: Any) -> Any:
    return getattr(compiled_, ORIGINAL)


def check_inference(tested: TestedTransform, program: TransformProgram) -> None:
    """Compare results, writes to arguments and buffers, and random numbers, without gradients."""
    with torch.no_grad():
        _compare(tested, program, tested.comparison_of(program, gradients=False))


def check_training(tested: TestedTransform, program: TransformProgram) -> None:
    """The same with gradients of arguments and of parameters."""
    _compare(tested, program, tested.comparison_of(program, gradients=True), training=True)


def check_optimizer(tested: TestedTransform, program: TransformProgram) -> None:
    """Check that three optimizer steps give the same losses and parameters; finite ones if these may differ."""
    expected = _train(program, lambda module: module)
    actual = _train(program, lambda module: compiled(module, tested.settings))
    may_differ = tested.may_differ(program)
    for step, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        for name, value in theirs.items():
            if may_differ:
                if not bool(torch.isfinite(ours[name]).all()):
                    raise Breach("finite training", f"{name} after step {step + 1} is not finite")
                continue
            _must_be_close(tested, f"{name} after step {step + 1}", ours[name], value)


def check_state_dict(tested: TestedTransform, program: TransformProgram) -> None:
    """Check that state dicts of a compiled module and of the plain module can be loaded into a compiled module."""
    source = compiled(program.make(), tested.settings)
    _disturb(_original(source))
    with quietly(), torch.no_grad():
        source(*arguments_of(program).args)  # some transforms act in the first call
    plain_state = _original(source).state_dict()
    copies = {name: value.clone() for name, value in plain_state.items() if isinstance(value, torch.Tensor)}
    given = dict(source.state_dict())
    for name, value in copies.items():
        _must_be_close(tested, f"{name} after state_dict()", _original(source).state_dict()[name], value)
    target = compiled(program.make(), tested.settings)
    target.load_state_dict(given)
    loaded = _original(target).state_dict()
    if loaded.keys() != plain_state.keys():
        raise Breach("state dict", f"after loading, the module has {sorted(loaded)} instead of {sorted(plain_state)}")
    for name, value in copies.items():
        _must_be_close(tested, f"{name} after load_state_dict(state_dict())", loaded[name], value)


def check_repeatable(tested: TestedTransform, program: TransformProgram) -> None:
    """Check that compiling a program twice gives the same program."""
    first, second = (text_of(called(program, tested.settings)) for _ in range(2))
    if first != second:
        raise Breach("repeatable", f"compiled twice, the program differs:\n{difference(first, second)}")


def check_changes(tested: TestedTransform, programs: Sequence[TransformProgram]) -> None:
    """Check that the transform changes a compiled program, or the state of a module; else nothing is tested."""
    if any(tested.changes(program) for program in programs):
        return
    raise Breach(
        "changes something",
        f"it changes none of the {len(programs)} programs of the suite, so nothing was tested; give the suite "
        "programs=[TransformProgram(...)] that it changes",
    )


def check_unchanged(tested: TestedTransform, programs: Sequence[TransformProgram]) -> None:
    """Check that the transform runs, and that it changes neither a compiled program nor the state of a module."""
    changed = next((program for program in programs if tested.changes(program)), None)
    if changed is not None:
        raise Breach("changes nothing", f"it changes {changed.name}\n{changed_lines(tested, changed)}")
    stages = [explain(called(program, tested.settings)).entries[-1].stages for program in programs]
    if not any(stage.name == tested.transform.name for of_program in stages for stage in of_program):
        raise Breach("runs", f"it runs for none of the {len(programs)} programs of the suite, so nothing was tested")


def _compare(
    tested: TestedTransform, program: TransformProgram, comparison: Comparison, *, training: bool = False
) -> None:
    problem = _problem(program, tested.settings, comparison, training)
    if problem is None:
        return
    if _problem(program, tested.without, comparison, training) is not None:
        raise NotApplicable(f"the program does not work without the transform either: {problem}")
    mismatch = isinstance(problem, BehaviourMismatch)
    rule, text = ("same behaviour", str(problem)) if mismatch else ("runs", f"{type(problem).__name__}: {problem}")
    rule = "valid traces" if isinstance(problem, VerificationError) else rule
    raise Breach(rule, f"{text}\n{changed_lines(tested, program)}") from problem


def _problem(program: TransformProgram, settings: Settings, comparison: Comparison, training: bool) -> Exception | None:
    __tracebackhide__ = True

    def make() -> Callable[..., Any]:
        compiled_ = program.make()
        return compiled_.train(training) if isinstance(compiled_, nn.Module) else compiled_

    def arguments() -> Arguments:
        given = arguments_of(program)
        leaves = [value for value in given.args if isinstance(value, torch.Tensor)] if training else []
        for value in leaves:
            value.requires_grad_(value.is_floating_point())
        return given

    try:
        with quietly(), verified():
            assert_same_behaviour(make(), arguments, lambda copy: compiled(copy, settings), comparison=comparison)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is what is looked for
        return error
    return None


def _train(program: TransformProgram, compile: Callable[[Any], Any]) -> list[dict[str, torch.Tensor]]:
    """Losses and parameters after each of three steps."""
    with quietly(), verified():
        module: Any = program.make()
        model = compile(module)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        seen = []
        for _ in range(3):
            optimizer.zero_grad()
            results = tree_leaves(model(*arguments_of(program).args))
            loss = torch.stack([leaf.square().mean() for leaf in results if leaf.requires_grad]).sum()
            loss.backward()
            optimizer.step()
            state = {name: value.detach().clone() for name, value in module.state_dict().items()}
            seen.append({"the loss": loss.detach(), **state})
    return seen


def _must_be_close(tested: TestedTransform, name: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
    how = tested.comparison
    rtol, atol = max(how.rtol, how.gradient_rtol), max(how.atol, how.gradient_atol)
    try:
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        raise Breach("same behaviour", f"{name}: {' '.join(str(error).split())}") from None


def _disturb(module: nn.Module) -> None:
    """Change the values of a new module."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1.5).add_(0.25)
