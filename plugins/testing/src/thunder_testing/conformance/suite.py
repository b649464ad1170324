"""`executor_suite`: the tests of an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from thunder.config import settings_of
from thunder_core.executors import Executor, OperatorExecutor
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_testing.conformance.case import Case, as_test, with_skips
from thunder_testing.conformance.executor_cases import ExecutorCases
from thunder_testing.conformance.failure import ConformanceError
from thunder_testing.conformance.fused_programs import OPERATIONS, program_subjects
from thunder_testing.conformance.plan import Plan
from thunder_testing.conformance.sampler import Sampler
from thunder_testing.conformance.subject import Samples, Subject, operation, subjects_of, symbol_of
from thunder_testing.conformance.tested import Tested
from thunder_testing.conformance.tolerance import Tolerance, Tolerances


def executor_suite(
    executor: str | Executor,
    *,
    options: Mapping[str, Any] | None = None,
    devices: Sequence[str] = ("cpu",),
    dtypes: Sequence[torch.dtype] | None = None,
    tolerances: Mapping[Any, Tolerance] | None = None,
    samples: Mapping[Any, Samples] | None = None,
    operations: Iterable[Callable[..., Any] | str] = (),
    skip: Mapping[str, str] | None = None,
    limit: int = 8,
) -> Callable[..., None]:
    """The tests of an executor, for a module that pytest collects: ``test_conformance = executor_suite("my_kernels")``.

    ``docs/conformance.md`` describes the tests.

    Args:
        executor: its name in a configuration, or the executor itself.
        options: options of an executor that is given by name.
        devices: the devices to test on, as for `torch.device`.
        dtypes: the dtypes that get all checks. None: those of the samples, with all checks for the first that are
            claimed.
        tolerances: ``(rtol, atol)`` by name of a symbol, by dtype, or by a pair of both; the defaults are those of
            `torch.testing.assert_close`.
        samples: by operation, a callable ``(device, dtype)`` that yields pairs ``(args, kwargs)``: for operations that
            are not in PyTorch's OpInfo database, and as further samples of others.
        operations: for executors without a table of claims, further operations to test with.
        skip: reasons by pattern of test ids: ``{"*-gradient-bfloat16-*": "sums in bfloat16"}``.
        limit: number of samples of each operation, device and dtype, chosen to differ.

    Returns:
        A function that pytest runs once per test, with ids like ``torch.nn.functional.silu-forward-float32-0``.

    Raises:
        PluginError, ConfigError: the executor cannot be used.
        ConformanceError: the suite cannot be created, or a device is not available.
    """
    cases = executor_cases(
        executor, options=options, devices=devices, dtypes=dtypes, tolerances=tolerances, samples=samples,
        operations=operations, skip=skip, limit=limit,
    )  # fmt: skip
    return as_test(cases, f"Conformance of {executor if isinstance(executor, str) else executor.name}.")


def executor_cases(
    executor: str | Executor,
    *,
    options: Mapping[str, Any] | None = None,
    devices: Sequence[str] = ("cpu",),
    dtypes: Sequence[torch.dtype] | None = None,
    tolerances: Mapping[Any, Tolerance] | None = None,
    samples: Mapping[Any, Samples] | None = None,
    operations: Iterable[Callable[..., Any] | str] = (),
    skip: Mapping[str, str] | None = None,
    limit: int = 8,
) -> list[Case]:
    """The tests of `executor_suite` as cases."""
    check_devices(devices)
    tested = _tested(executor, options, Tolerances(tolerances or {}))
    sampler = Sampler(1 if tested.executor.fuses else limit)
    plan = Plan(tested, tuple(devices), None if dtypes is None else tuple(dtypes), sampler)
    plain = tested.plain
    if isinstance(plain, OperatorExecutor):
        cases = ExecutorCases(plan, subjects_of(plain, samples or {}), table=True)
    else:
        cases = ExecutorCases(plan, _subjects(plan, samples or {}, operations), table=False)
    return with_skips(list(cases), skip or {})


def check_executor(executor: str, devices: Sequence[str]) -> None:
    """Raise the errors of `executor_cases` for this name and these devices, without creating tests."""
    check_devices(devices)
    _tested(executor, None, Tolerances({}))


def _tested(executor: str | Executor, options: Mapping[str, Any] | None, tolerances: Tolerances) -> Tested:
    if options and isinstance(executor, Executor):
        raise ConformanceError(
            f"options={dict(options)!r} are for executors that are given by name",
            advice=("give the options to the executor itself",),
        )
    entry: Any = {executor: dict(options)} if options else executor
    settings = settings_of(executors=[entry])
    if len(settings.executors) != 1:
        raise ConformanceError(f"{entry!r} stands for {len(settings.executors)} executors, and a suite tests one")
    selected = settings.executors[0]
    plain = selected.executor if isinstance(selected, ConfiguredExecutor) else selected
    spelled = None if isinstance(executor, Executor) else repr([entry])
    return Tested(selected, plain, settings, spelled, tolerances)


def _subjects(plan: Plan, samples: Mapping[Any, Samples], operations: Iterable[Any]) -> list[Subject]:
    """The subjects for executors without a table of claims: operations of which they claim a sample, and programs."""
    given = {symbol_of(key): value for key, value in samples.items()}
    names = [*dict.fromkeys([*map(symbol_of, operations), *given, *map(symbol_of, OPERATIONS)])]
    subjects = [operation(symbol, given) for symbol in names]
    if plan.tested.executor.fuses:  # the executor may run parts of an operation that it declines
        return [*subjects, *program_subjects()]
    claimed = [
        subject for subject in subjects if any(plan.is_claimed(subject, *kind) for kind in _kinds(plan, subject))
    ]
    return [*claimed, *program_subjects()]


def _kinds(plan: Plan, subject: Subject) -> list[tuple[str, torch.dtype]]:
    return [(device, dtype) for device in plan.devices for dtype in plan.words(subject, device)]


def check_devices(devices: Iterable[str]) -> None:
    """Raise ConformanceError for the first device on which PyTorch cannot create a tensor."""
    for device in devices:
        try:
            torch.empty((), device=device)
        except Exception as error:  # PyTorch raises AssertionError, RuntimeError and others
            reason = str(error).partition("\n")[0]
            raise ConformanceError(
                f"PyTorch cannot use the device {device!r} here: {reason}",
                advice=(
                    f"name a device that it can use here: {', '.join(_usable())}",
                    "`thunder doctor` says which GPUs there are, and what is missing to use them",
                ),
            ) from error


def _usable() -> list[str]:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return ["cpu", *([] if accelerator is None else [accelerator.type])]
