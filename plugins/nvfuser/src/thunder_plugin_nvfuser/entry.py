"""The entry point of the executor. Importing it imports nvFuser, so that a broken installation raises here."""

from __future__ import annotations

from functools import lru_cache

from thunder_plugin_nvfuser.executor import NvfuserExecutor
from thunder_plugin_nvfuser.library import load_library
from thunder_plugin_nvfuser.options import NvfuserOptions

LIBRARY = load_library()


@lru_cache(maxsize=64)
def from_options(options: NvfuserOptions) -> NvfuserExecutor:
    """The executor for these options, the same object for equal options."""
    return NvfuserExecutor(options, LIBRARY)
