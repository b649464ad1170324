"""Thunder's core: traces, passes, executors, guards and the runtime."""

from typing import Final

PACKAGES: Final = ("thunder", "thunder_core", "thunder_frontend")
"""The packages of the distribution."""
