"""`tune`: the executors of a program, chosen by measurement."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import thunder
from thunder._inspection import compiled_program
from thunder.command_line.program import is_compiled
from thunder.config import resolve_config, settings_of
from thunder.config.api import VARIABLE
from thunder.config.model import ThunderConfig
from thunder.config.settings import ConfiguredSettings
from thunder.report.measured_gain import MeasuredGain, save_gain
from thunder_core.errors import OptionError
from thunder_core.pytorch_internals import accumulation_hooks_of, backward_hooks_of
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_plugin_tuning.candidates import executors_of, usable_executors
from thunder_plugin_tuning.claims import Site, sites_of
from thunder_plugin_tuning.clock import Clock, clock_for
from thunder_plugin_tuning.comparison import Comparison
from thunder_plugin_tuning.configuration import Environment, write_configuration
from thunder_plugin_tuning.executor_lists import Executors
from thunder_plugin_tuning.measurement import Measurement
from thunder_plugin_tuning.program import Program, kept, without_graphs
from thunder_plugin_tuning.search import Search


@dataclass(frozen=True)
class Tuning:
    """The chosen executors, and what was measured.

    Attributes:
        program: the name of the program.
        train: whether backward was measured, too.
        base: the configuration whose executors were chosen: a path, the name of a preset, a mapping, or None.
        default, executors: its executors, and the chosen ones, as entries of configurations.
        times: the times of both; None if the default was kept.
        measurements: the changes that were tried, in order.
        left_out: executors that cannot be used here, with the reasons.
        sites: the operations of the chosen program, with the number of their calls.
        seconds: the time of the search.
        environment: the hardware and the versions.
    """

    program: str
    train: bool
    base: Any
    default: Executors
    executors: Executors
    times: Comparison | None
    measurements: tuple[Measurement, ...]
    left_out: Mapping[str, str]
    sites: Mapping[Site, int]
    seconds: float
    environment: Environment
    _entries: tuple[CacheEntry, ...] = field(default=(), repr=False, compare=False)

    @property
    def config(self) -> ThunderConfig:
        """The complete configuration with the chosen executors, for `thunder.jit`."""
        return resolve_config(self.base, executors=list(self.executors), tune=False)

    def yaml(self, folder: str | os.PathLike[str] = ".") -> str:
        """The configuration as YAML with comments, for a file in ``folder``."""
        return write_configuration(self, Path(folder))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the configuration to a file, which reports of this program with its default executors then suggest.

        Raises:
            ConfigError: the configuration has a transform or another part that is a Python object.
            OSError: the file cannot be written.
        """
        path = Path(path)
        path.write_text(self.yaml(path.parent), encoding="utf-8")
        if self.times is not None:
            save_gain(self._entries, MeasuredGain(self.times.before, self.times.after, str(path.absolute())))

    def as_data(self) -> dict[str, Any]:
        """The attributes as plain data, for JSON."""
        return {
            "program": self.program,
            "train": self.train,
            "default": [entry.plain() for entry in self.default],
            "executors": [entry.plain() for entry in self.executors],
            "times": None if self.times is None else asdict(self.times),
            "measurements": [asdict(found) for found in self.measurements],
            "left_out": dict(self.left_out),
            "operations": [asdict(site) | {"calls": calls} for site, calls in self.sites.items()],
            "seconds": self.seconds,
            "environment": asdict(self.environment),
        }


def tune(
    program: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    train: bool = False,
    config: Any = None,
    executors: Sequence[str] | None = None,
    limit: float = 120.0,
    tolerance: float | None = None,
    name: str | None = None,
    clock: Clock | None = None,
    progress: Callable[[str], None] | None = None,
) -> Tuning:
    """Choose the executors of a program by measurement.

    The program is called many times. Afterwards, the buffers of a module, the tensors among the arguments, the
    gradients of parameters and arguments, and the random state of PyTorch are as before. Other tensors that it writes
    are as after two calls, and state that it has in Python is not restored.

    Args:
        program: a function or an `nn.Module`, compiled or not.
        args, kwargs: its inputs.
        train: run backward, too, from the sum of all floating-point outputs. A function may run backward itself.
        config: the configuration whose executors are chosen, as for `thunder.jit`; None for that of a compiled
            program, or the default.
        executors: names of the executors to choose among, besides those of the configuration; None for all that are
            installed.
        limit: seconds after which nothing new is compiled or timed.
        tolerance: the accepted error of results; None for `thunder_plugin_tuning.results.TOLERANCES`.
        name: of the program, for messages; None for its own.
        clock: measures the calls and the limit; None for CUDA events on a GPU, and `time.perf_counter` elsewhere.
        progress: called with a line of text for each step.

    Raises:
        OptionError: the program, the limit or the configuration is not valid, an executor is unknown or a Python
            object, or the program must not be called here.
        PluginError: no executor can be used, or one of ``executors`` cannot.
        ThunderError: the program cannot be compiled, or its results cannot be compared.
        Exception: of the program.
    """
    if not limit > 0:
        raise OptionError(f"the limit is {limit} seconds; it must be positive")
    called, config = _uncompiled(program, config)
    _check(called, train)
    name = name or getattr(called, "__qualname__", None) or type(called).__qualname__
    inputs = without_graphs((tuple(args), dict(kwargs or {})))
    subject = Program(name, called, inputs[0], inputs[1], train, config)
    pool, left_out = usable_executors(config, executors)
    report = progress or (lambda line: None)
    report("compiling the default")
    with kept(subject):
        base = subject.compiled(None)
        clock_of_limit = clock or Clock()
        start = clock_of_limit.now()
        base.compile()
        clock = clock or clock_for(base.inputs().values())
        default = executors_of(config, base.entries[-1])
        search = Search(subject, clock, start + limit, tolerance, report, (base, default))
        times = search.run(pool)
    best, chosen = search.best
    return Tuning(
        name, train, config, default, chosen, times, tuple(search.measurements), left_out,
        sites_of(best.entries), clock.now() - start, Environment.of(base.inputs().values(), [*default, *chosen]),
        base.entries,
    )  # fmt: skip


def _check(program: Any, train: bool) -> None:
    """Raise OptionError for a program that must not be called several times, or not here."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise OptionError(
            "each process of the group would choose executors of its own",
            advice=("tune the program in one process, and compile it with the file in all",),
        )
    parameters = program.named_parameters() if train and isinstance(program, torch.nn.Module) else ()
    for name, parameter in parameters:
        if backward_hooks_of(parameter) or accumulation_hooks_of(parameter):
            raise OptionError(
                f"backward would call the hooks of the parameter {name!r} many times",
                advice=("tune the module before the hooks are registered",),
            )


def _uncompiled(program: Any, config: Any) -> tuple[Any, Any]:
    """The program without compilation, and the configuration: by default its own, or that of the environment."""
    if not callable(program) or isinstance(program, type):
        raise OptionError("tune takes a function or an nn.Module, compiled or not")
    if is_compiled(program):
        settings = compiled_program(program).settings
        assert isinstance(settings, ConfiguredSettings)
        program = thunder.original(program)
        if config is None and settings.config != settings_of().config:
            config = settings.config
    return program, config if config is not None else os.environ.get(VARIABLE) or None
