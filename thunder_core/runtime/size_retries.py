"""The passes over a recording whose sizes vary, again with fewer symbols where a pass, an executor or PyTorch fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from thunder_core.contract import CONSTANT_SIZES, Recording, Retry
from thunder_core.executors.states import States
from thunder_core.passes.pass_manager import PassManager
from thunder_core.runtime.transform import ExecutableProgram, transform
from thunder_core.settings import Settings
from thunder_core.tracing.signal_handlers import of_signal_handler
from thunder_core.tracing.sizes import Sizes, compiling_with, why_constant


@dataclass(frozen=True)
class SizeAttempt:
    """A way to transform a recording with symbols.

    Attributes:
        change: how it differs from the attempt before, for the report.
        applies: whether it differs for these symbols.
        prepare: changes the symbols.
    """

    change: str
    applies: Callable[[Sizes], bool]
    prepare: Callable[[Sizes], None]


ATTEMPTS: Final = (
    SizeAttempt("", lambda sizes: True, lambda sizes: None),
    SizeAttempt(
        "conditions on data-dependent sizes have the results of this call",
        lambda sizes: bool(sizes.defined),
        Sizes.use_hints,
    ),
    SizeAttempt(
        "data-dependent sizes are constants", lambda sizes: bool(sizes.defined and sizes.hints), Sizes.fix_defined
    ),
)
"""The attempts with symbols, in order. After the last one all sizes are constants, and errors are raised."""


def transform_with_retries(
    recording: Recording, settings: Settings, states: States
) -> tuple[Recording, PassManager, ExecutableProgram]:
    """Run the passes over a recording.

    Returns:
        The recording of the attempt that succeeded, with its retries; the passes that ran; and the program.

    Raises:
        Exception: of the passes, with constant sizes.
    """
    sizes = recording.sizes.symbols
    if sizes is not None:
        attempts = [attempt for attempt in ATTEMPTS if attempt.applies(sizes)]
        for attempt, following in pairwise([*attempts, None]):
            assert attempt is not None
            try:
                attempt.prepare(sizes)
                with compiling_with(sizes):
                    return _transform_with_sizes(recording.with_sizes_as_found(), sizes, settings, states)
            except Exception as error:  # in the report; an error without symbols is raised below
                if of_signal_handler(error) is not None:
                    raise
                retry = Retry(CONSTANT_SIZES if following is None else following.change, why_constant(error))
                recording = replace(recording, retries=(*recording.retries, retry))
        recording = recording.with_constant_sizes(recording.retries[-1].reason)
    manager = PassManager()
    return recording, manager, transform(manager, recording, settings, states)


def _transform_with_sizes(
    recording: Recording, sizes: Sizes, settings: Settings, states: States
) -> tuple[Recording, PassManager, ExecutableProgram]:
    manager = PassManager()
    program = transform(manager, recording, settings, states)
    epilogue = program.functional.epilogue
    for trace in (*program.executed.values(), *(() if epilogue is None else (epilogue,))):
        trace.check_bodies()
    sizes.facts()  # raises for a fact that cannot be checked
    return recording, manager, program
