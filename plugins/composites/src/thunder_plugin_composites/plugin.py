"""What the plugin offers. Importing this imports neither PyTorch nor the composites."""

from __future__ import annotations

from thunder_core.plugins import Check, SymbolsSpec, hookimpl

_SYMBOLS = "thunder_plugin_composites.symbols"


@hookimpl
def thunder_symbols() -> list[SymbolsSpec]:
    """The composites, and how models spell them out. Importing them adds them too, for executors that claim them."""
    return [SymbolsSpec(f"{_SYMBOLS}:ROWS", f"{_SYMBOLS}:PATTERNS")]


@hookimpl
def thunder_doctor() -> list[Check]:
    """Whether PyTorch has the private names that patterns call."""
    return [Check("private names of PyTorch", "thunder_plugin_composites.pytorch_internals:NAMES")]
