"""What the plugin offers. Importing this imports neither PyTorch nor the composites."""

from __future__ import annotations

from thunder_core.plugins import Check, SymbolsSpec, TransformSpec, hookimpl


@hookimpl
def thunder_symbols() -> list[SymbolsSpec]:
    """The composites. Importing them adds them, and their patterns, too, for executors that claim them."""
    return [SymbolsSpec("thunder_plugin_composites.symbols:ROWS")]


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """What finds them in programs. The preset ``default`` names it; it runs if an executor claims a composite."""
    return [
        TransformSpec(
            "recognize_composites",
            "thunder_plugin_composites.recognize_composites:RecognizeComposites.from_options",
            summary="replaces lines that spell a composite out by a call of it, where an executor claims that",
        )
    ]


@hookimpl
def thunder_doctor() -> list[Check]:
    """Whether PyTorch has the private names that patterns call."""
    return [Check("private names of PyTorch", "thunder_plugin_composites.pytorch_internals:NAMES")]
