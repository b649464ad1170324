"""Thunder: a source-to-source compiler for PyTorch.

``model = thunder.jit(model)`` records the program as a readable trace, guards it, and runs it.
"""

import sys

if not (3, 11) <= sys.version_info < (3, 15):
    raise ImportError(
        f"Thunder needs Python 3.11 to 3.14, and this is {sys.version_info[0]}.{sys.version_info[1]}: guards "
        "read the bytecode of these versions. Create an environment with one of them: python3.13 -m venv FOLDER"
    )

from thunder._api import grad, jit, train_step, value_and_grad, vjp
from thunder._coverage import covers, warm_up
from thunder._inspection import (
    cache_hits,
    cache_misses,
    explain,
    last_backward_traces,
    last_epilogue_traces,
    last_prologue_traces,
    last_traces,
    load,
    load_trace,
    original,
    save,
    save_trace,
)
from thunder._materialization import materialize, precompile
from thunder_core._version import __version__
from thunder_core.errors import (
    AcquisitionError,
    CollectiveMismatchError,
    ConfigError,
    ConfigWarning,
    DataDependentError,
    DeclaredSizeError,
    ExecutorError,
    ExecutorWarning,
    LeakedTensorError,
    MemoryBudgetError,
    OptionError,
    PluginError,
    PluginWarning,
    RecompileError,
    RecompileWarning,
    SavedProgramError,
    ThunderError,
    TransformError,
    UncacheableError,
    UnsupportedError,
)

__all__ = [
    "AcquisitionError",
    "CollectiveMismatchError",
    "ConfigError",
    "ConfigWarning",
    "DataDependentError",
    "DeclaredSizeError",
    "ExecutorError",
    "ExecutorWarning",
    "LeakedTensorError",
    "MemoryBudgetError",
    "OptionError",
    "PluginError",
    "PluginWarning",
    "RecompileError",
    "RecompileWarning",
    "SavedProgramError",
    "ThunderError",
    "TransformError",
    "UncacheableError",
    "UnsupportedError",
    "__version__",
    "cache_hits",
    "cache_misses",
    "covers",
    "explain",
    "grad",
    "jit",
    "last_backward_traces",
    "last_epilogue_traces",
    "last_prologue_traces",
    "last_traces",
    "load",
    "load_trace",
    "materialize",
    "original",
    "precompile",
    "save",
    "save_trace",
    "train_step",
    "value_and_grad",
    "vjp",
    "warm_up",
]
