"""The function of a cache entry: it runs the computation and the epilogue, and reconstructs the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from thunder_core.checks.sizes import SizesGuard
from thunder_core.contract import Reconstruction, Recording
from thunder_core.ir.program import compile_source, compile_trace
from thunder_core.ir.result_checks import ResultChecks
from thunder_core.ir.switches import read_of_ops, set_of_ops
from thunder_core.passes.functionalize.result import (
    FromComputation,
    FromEpilogue,
    FromInput,
    Functionalized,
    ResultSource,
)
from thunder_core.passes.grouped_copies import with_grouped_copies
from thunder_core.pytorch_internals import DisableTorchFunctionSubclass, set_grad_enabled
from thunder_core.runtime.bridge import join
from thunder_core.runtime.own_state import without_autocast
from thunder_core.runtime.rollback import Rollback
from thunder_core.runtime.transform import ExecutableProgram
from thunder_core.tracing.tracebacks import free_frames, note


def run_function(
    recording: Recording,
    program: ExecutableProgram,
    sizes: SizesGuard | None,
    hints: Mapping[str, int],
    checks: ResultChecks,
    *,
    undoes: bool,
) -> Callable[..., Any]:
    """The function of an entry, ``run(inputs, args, kwargs)``.

    Args:
        recording, program: the recorded program and the result of its passes.
        sizes: the guard of the sizes that vary; None if all are constants.
        hints: the size symbols of the recording, with their values. The reconstruction names them even if the passes
            replaced them by constants.
        checks: the checks of results in the first run.
        undoes: whether the function undoes its effects when a guessed value differs.
    """
    symbols = () if sizes is None else tuple(sizes.symbols)
    defined = recording.defined_outputs
    epilogue = program.functional.epilogue
    run = _generated(
        _computation(recording, program, checks, symbols),
        None if epilogue is None else compile_trace(with_grouped_copies(epilogue), sizes=(*symbols, *defined)),
        program.functional,
        recording.result,
        plain=recording.calls_classes,
        sizes=hints,
        varying=bool(symbols),
        defined=defined,
        modes=_enters_modes(recording, program),
        grad_enabled=recording.trace.context.grad_enabled,
    )
    if not undoes:
        return run
    if program.as_recorded is None:
        return Rollback.of(program.final).around(run)
    return Rollback.of_recorded(recording.trace, recording.inputs).around(run)


def _computation(
    recording: Recording, program: ExecutableProgram, checks: ResultChecks, symbols: tuple[str, ...]
) -> Callable[..., Any]:
    if program.as_recorded is not None:
        return compile_trace(program.final, sizes=symbols)  # under the caller's autocast, as in eager
    if program.differentiated is not None:
        run = join(program.differentiated)
    else:
        run = compile_trace(program.final, costs=checks, sizes=symbols)
    return without_autocast(run) if recording.trace.context.autocast else run  # the same in each call: a guard


def _enters_modes(recording: Recording, program: ExecutableProgram) -> bool:
    """Whether a run enters modes other than the grad mode: `without_autocast`, or those of an op."""
    ambient = recording.trace.context
    contexts = {op.context for trace in program.final.programs() for op in trace.symbols}
    return bool(ambient.autocast) or any(
        replace(context, grad_enabled=ambient.grad_enabled, inference=ambient.inference) != ambient
        for context in contexts
        if context is not None
    )


def _generated(
    computation: Callable[..., Any],
    epilogue: Callable[..., Any] | None,
    functional: Functionalized,
    reconstruction: Reconstruction,
    *,
    plain: bool,
    sizes: Mapping[str, int],
    varying: bool,
    defined: Mapping[str, int],
    modes: bool,
    grad_enabled: bool,
) -> Callable[[tuple[Any, ...], tuple[Any, ...], dict[str, Any]], Any]:
    """The generated function: computation, epilogue, then the statements of the reconstruction.

    Args:
        plain: whether to disable ``__torch_function__`` of the classes of inputs: its calls have been recorded.
        sizes: the size symbols, with their values when the program was recorded.
        varying: whether these sizes vary; then they are the last inputs.
        defined: the symbols that ops of the computation define, each with its position among the results.
        modes: whether computation or epilogue enter modes of PyTorch other than the grad mode.
        grad_enabled: the grad mode of each call, which is a guard.
    """
    names = tuple(sizes)
    calls = ["values = computation(*inputs)"]
    calls += [f"{name} = {_result(functional.results[position])}" for name, position in defined.items()]
    if epilogue is not None:
        taken = (*(names if varying else ()), *defined)
        arguments = ", ".join([*[_result(argument) for argument in functional.epilogue_arguments], *taken])
        calls.append(f"after = epilogue({arguments})")
    lines = ["def run(inputs, args, kwargs):"]
    if sizes and varying:
        lines.append(f"    {', '.join(names)}, = inputs[{-len(names)}:]")
    elif sizes:
        lines.append(f"    {', '.join(names)}, = {tuple(sizes.values())}")
    if modes:
        lines.append("    modes = read_of_ops()")
    lines += ["    try:", *[f"        {call}" for call in calls], "    except BaseException as failure:"]
    # a signal handler may raise within a context manager, which then does not restore its mode
    lines.append("        free_frames(failure)")
    lines.append("        set_of_ops(modes)" if modes else f"        set_grad_enabled({grad_enabled})")
    if epilogue is not None or reconstruction.writes:  # these come last
        lines.append("        note(failure, 'a line of the compiled program raised it')")
    lines.append("        raise")
    if plain:
        lines[1:] = ["    with plain():", *[f"    {line}" for line in lines[1:]]]
    lines.extend(f"    o{index} = {_result(source)}" for index, source in enumerate(functional.results))
    lines.extend(f"    {line}" for line in reconstruction.statements)
    lines.append(f"    return {reconstruction.result}")
    namespace = {**reconstruction.namespace, "computation": computation, "epilogue": epilogue, "note": note}
    namespace |= {"read_of_ops": read_of_ops, "set_of_ops": set_of_ops, "set_grad_enabled": set_grad_enabled}
    namespace |= {"free_frames": free_frames, "plain": DisableTorchFunctionSubclass}
    return compile_source("\n".join(lines) + "\n", "run", namespace, title="run")


def _result(source: ResultSource) -> str:
    if isinstance(source, FromInput):
        return f"inputs[{source.index}]"
    if isinstance(source, FromComputation):
        return f"values[{source.index}]"
    if isinstance(source, FromEpilogue):
        return f"after[{source.index}]"
    return repr(source.value)
