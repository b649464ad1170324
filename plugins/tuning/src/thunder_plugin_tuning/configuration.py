"""The chosen executors as a configuration in YAML, with what was measured as comments."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from thunder.config import resolve_config, to_yaml
from thunder.config.document import SUFFIXES
from thunder.config.entry import Entry
from thunder.config.yaml_text import write_text
from thunder.report.amounts import duration
from thunder_core._version import __version__
from thunder_core.plugins.lookup import find
from thunder_core.plugins.specs import ExecutorSpec
from thunder_plugin_tuning.measurement import Measurement, times_text

if TYPE_CHECKING:
    from thunder_plugin_tuning.tuning import Tuning

_MOST_KINDS: Final = 3  # of arguments of an operation, in a comment


@dataclass(frozen=True)
class Environment:
    """Where figures were measured.

    Attributes:
        date: the day, as ``2026-11-29``.
        hardware: names of the devices.
        versions: of the software, by name.
    """

    date: str
    hardware: tuple[str, ...]
    versions: dict[str, str]

    @classmethod
    def of(cls, tensors: Iterable[torch.Tensor], executors: Iterable[Entry]) -> Environment:
        """The environment of a program on these tensors with these executors."""
        devices = sorted({str(tensor.device): tensor.device for tensor in tensors}.items())
        plugins = [find(ExecutorSpec, entry.name).plugin for entry in executors]
        versions = {"Python": platform.python_version(), "torch": torch.__version__, "thunder-core": __version__}
        versions |= {plugin.distribution: plugin.version for plugin in plugins if plugin.version}
        names = tuple(dict.fromkeys(_device_name(device) for _, device in devices))
        return cls(datetime.date.today().isoformat(), names, versions)


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return str(device)
    threads = torch.get_num_threads()
    return f"{_processor()}, {threads} thread{'s' if threads > 1 else ''}"


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)$", path.read_text(), re.MULTILINE) if path.is_file() else None
    return found[1].strip() if found else platform.processor() or platform.machine()


def write_configuration(tuning: Tuning, folder: Path) -> str:
    """The configuration for a file in ``folder``."""
    others = [found for found in tuning.measurements if found.outcome != "faster"]
    lines = _comments(_head(tuning))
    lines += _base(tuning.base, folder)
    lines += _executors(tuning)
    lines += _comments(["", "Not chosen:", *[f"  {found}" for found in others]] if others else [])
    lines += _comments([f"  {name}: cannot be used here: {reason}" for name, reason in tuning.left_out.items()])
    return "\n".join(lines) + "\n"


def _head(tuning: Tuning) -> list[str]:
    environment, times = tuning.environment, tuning.times
    call = "A call with backward" if tuning.train else "A call"
    default = names_of(tuning.default)
    if times is None:
        result = f"No change of the default executors ({default}) is faster."
    else:
        result = f"{call} takes {duration(times.after)}, with the default ({default}) {duration(times.before)}: "
        result += f"{times.before / times.after:.2f} times as fast, median of {times.rounds} alternating rounds."
    versions = ", ".join(f"{name} {version}" for name, version in environment.versions.items())
    where = "; ".join([*environment.hardware, versions])
    return [
        f"The executors of {tuning.program}, chosen by `thunder tune`.",
        result,
        f"Measured on {environment.date} in {duration(tuning.seconds)}: {where}.",
    ]


def names_of(executors: Sequence[Entry]) -> str:
    """The names of the entries; ``PyTorch alone`` for none."""
    return ", ".join(entry.name for entry in executors) or "PyTorch alone"


def _base(base: Any, folder: Path) -> list[str]:
    """What the configuration is besides its executors."""
    if base is None:
        return []
    if not isinstance(base, str | os.PathLike):
        text = to_yaml(resolve_config(base, executors=[], tune=False))
        return [line for line in text.splitlines() if line != "executors: []"]
    extended = os.fspath(base)
    if isinstance(base, os.PathLike) or base.endswith(SUFFIXES) or os.sep in base:
        path = os.path.relpath(Path(base).expanduser().absolute(), folder.absolute())
        extended = path if os.sep in path else f".{os.sep}{path}"
    switch = {"tune": False} if resolve_config(base).tune else {}
    return write_text({"extends": extended, **switch}).splitlines()


def _executors(tuning: Tuning) -> list[str]:
    if not tuning.executors:
        return ["executors: []"]
    lines = ["executors:"]
    kept = [found for found in tuning.measurements if found.outcome == "faster"]
    for entry in tuning.executors:
        reasons = [found for found in kept if found.executor.rpartition(".")[2] == entry.item]
        lines += [f"  {line}" for line in _comments([_reason(found, tuning) for found in reasons])]
        lines += write_text({"executors": [entry.plain()]}).splitlines()[1:]
    removed = [found for found in kept if found.executor not in [entry.name for entry in tuning.executors]]
    return lines + [f"  {line}" for line in _comments([_reason(found, tuning) for found in removed])]


def _reason(found: Measurement, tuning: Tuning) -> str:
    """The change with its times; of an operation also the kinds of its arguments."""
    assert found.before is not None
    assert found.after is not None
    text = f"{found.change}: {times_text(found.before, found.after)}"
    kinds = [
        f"{calls} x ({site.arguments})" for site, calls in tuning.sites.items() if site.operation == found.operation
    ]
    more = [f"{len(kinds) - _MOST_KINDS} other kinds of arguments"] if len(kinds) > _MOST_KINDS else []
    return "; ".join([text, *kinds[:_MOST_KINDS], *more])


def _comments(lines: Iterable[str]) -> list[str]:
    return [f"# {' '.join(line.splitlines())}".rstrip() if line else "#" for line in lines]
