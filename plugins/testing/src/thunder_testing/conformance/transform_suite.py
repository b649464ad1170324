"""`transform_suite`: the tests of a transform."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from thunder.config import settings_of
from thunder_core.passes.transform import Transform
from thunder_testing.conformance.case import Case, as_test, with_skips
from thunder_testing.conformance.failure import ConformanceError, as_failure
from thunder_testing.conformance.tolerance import Tolerance
from thunder_testing.conformance.transform_checks import (
    check_changes,
    check_inference,
    check_optimizer,
    check_repeatable,
    check_state_dict,
    check_training,
    check_unchanged,
)
from thunder_testing.conformance.transform_programs import TransformProgram, transform_programs
from thunder_testing.conformance.transform_run import TestedTransform
from thunder_testing.difference import Comparison

Check = Callable[[TestedTransform, TransformProgram], None]

_CHECKS: Final[Mapping[str, Check]] = {
    "inference": check_inference,
    "training": check_training,
    "repeatable": check_repeatable,
}
_MODULE_CHECKS: Final[Mapping[str, Check]] = {
    "optimizer": check_optimizer,
    "state_dict": check_state_dict,
}


def transform_suite(
    transform: str | Transform,
    *,
    options: Mapping[str, Any] | None = None,
    beside: Sequence[Any] = (),
    executors: Sequence[Any] = (),
    tolerance: Tolerance = (1.3e-6, 1e-5),
    gradient_tolerance: Tolerance = (1e-4, 1e-5),
    programs: Sequence[TransformProgram] = (),
    observes: bool = False,
    changes_results: bool = False,
    skip: Mapping[str, str] | None = None,
) -> Callable[..., None]:
    """The tests of a transform, for a module that pytest collects: ``test_conformance = transform_suite("my_pass")``.

    ``docs/conformance.md`` describes the tests.

    Args:
        transform: its name in a configuration, or the transform itself.
        options: options of a transform that is given by name.
        beside: other transforms that it requires, which are used with it and without it.
        executors: executors of the programs, for a transform that applies only if one of them fuses.
        tolerance: ``(rtol, atol)`` of values; ``(0, 0)`` for equality.
        gradient_tolerance: the same for gradients, parameters and losses of training.
        programs: programs to test with, in addition to those of the suite.
        observes: the transform changes no program, it counts operations for example: this is tested.
        changes_results: the transform changes what programs compute, it removes dropout for example. Programs that it
            changes are then compared with eager PyTorch in everything but values and random numbers; others completely.
        skip: reasons by pattern of test ids: ``{"dropping-*": "it draws other random numbers"}``.

    Returns:
        A function that pytest runs once per test, with ids like ``attention-training``.

    Raises:
        PluginError, ConfigError, TransformError: the transform cannot be used.
        ConformanceError: the suite cannot be created.
    """
    cases = transform_cases(
        transform, options=options, beside=beside, executors=executors, tolerance=tolerance,
        gradient_tolerance=gradient_tolerance, programs=programs, observes=observes, changes_results=changes_results,
        skip=skip,
    )  # fmt: skip
    return as_test(cases, f"Conformance of {transform if isinstance(transform, str) else transform.name}.")


def transform_cases(
    transform: str | Transform,
    *,
    options: Mapping[str, Any] | None = None,
    beside: Sequence[Any] = (),
    executors: Sequence[Any] = (),
    tolerance: Tolerance = (1.3e-6, 1e-5),
    gradient_tolerance: Tolerance = (1e-4, 1e-5),
    programs: Sequence[TransformProgram] = (),
    observes: bool = False,
    changes_results: bool = False,
    skip: Mapping[str, str] | None = None,
) -> list[Case]:
    """The tests of `transform_suite` as cases."""
    how = Comparison(*tolerance, gradient_rtol=gradient_tolerance[0], gradient_atol=gradient_tolerance[1])
    if observes and changes_results:
        raise ConformanceError(
            "observes=True and changes_results=True contradict each other",
            advice=("a transform that observes changes no program, and thus no result",),
        )
    tested = replace(_tested(transform, options, beside, executors, how), changes_results=changes_results)
    return with_skips(list(_cases(tested, [*transform_programs(), *programs], observes)), skip or {})


def check_transform(transform: str) -> None:
    """Raise the errors of `transform_cases` for this name, without creating tests."""
    _tested(transform, None, (), (), Comparison())


def _tested(
    transform: str | Transform,
    options: Mapping[str, Any] | None,
    beside: Sequence[Any],
    executors: Sequence[Any],
    how: Comparison,
) -> TestedTransform:
    if options and isinstance(transform, Transform):
        raise ConformanceError(
            f"options={dict(options)!r} are for transforms that are given by name",
            advice=("give the options to the transform itself",),
        )
    entry: Any = {transform: dict(options)} if options else transform
    settings = settings_of(executors=[*executors], transforms=[*beside, entry])
    name = transform.name if isinstance(transform, Transform) else transform.rpartition(".")[2]
    matching = [item for item in settings.transforms if item is transform or item.name == name]
    if len(matching) != 1:
        there = ", ".join(item.name for item in settings.transforms)
        raise ConformanceError(f"there is no transform {name!r} in the configuration with {entry!r}, but {there}")
    without = replace(settings, transforms=tuple([item for item in settings.transforms if item is not matching[0]]))
    return TestedTransform(matching[0], settings, without, how)


def _cases(tested: TestedTransform, programs: Sequence[TransformProgram], observes: bool) -> Iterator[Case]:
    name = tested.transform.name
    word, check_all = ("unchanged", check_unchanged) if observes else ("changes", check_changes)
    yield Case(f"all-{word}", partial(as_failure, name, partial(check_all, tested, programs)))
    for program in programs:
        checks = {**_CHECKS, **_MODULE_CHECKS} if program.is_module else _CHECKS
        for word, check in checks.items():
            title = f"{name}, {program.name}, {word}"
            yield Case(f"{program.name}-{word}", partial(as_failure, title, partial(check, tested, program)))
