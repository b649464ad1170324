"""The choice of executors by measurement: ``thunder tune``.

- `tuning`: `tune` and its result.
- `search`: the order in which changes of the list of executors are tried, and which are kept.
- `candidates`, `executor_lists`: the executors to choose among, and changes of a list of them.
- `program`, `claims`: a compiled program with its inputs, and which executors run its operations.
- `clock`, `comparison`, `results`: the time of calls, in alternating blocks, and differences of results.
- `measurement`, `configuration`, `command`: outcomes, the configuration with comments, the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_plugin_tuning.clock import Clock
    from thunder_plugin_tuning.measurement import Measurement
    from thunder_plugin_tuning.tuning import Tuning, tune

__all__ = ["Clock", "Measurement", "Tuning", "tune"]

__getattr__ = lazy_imports(
    __name__, {"Clock": "clock", "Measurement": "measurement", "Tuning": "tuning", "tune": "tuning"}
)
