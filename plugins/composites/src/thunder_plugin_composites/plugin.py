"""The hooks of the plugin. Importing this module imports neither PyTorch nor the composites."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, SymbolsSpec, TransformSpec, hookimpl


@hookimpl
def thunder_symbols() -> list[SymbolsSpec]:
    """The composites. Importing them registers them, and their patterns, for executors that claim them."""
    return [SymbolsSpec("thunder_plugin_composites.symbols:ROWS")]


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """The transform that recognizes composites, which the preset ``default`` names."""
    return [
        TransformSpec(
            "recognize_composites",
            "thunder_plugin_composites.recognize_composites:RecognizeComposites.from_options",
            summary="replaces the operations of a composite by a call of it, if an executor claims that",
        )
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """A check that PyTorch has the private names that patterns use."""
    return [CheckSpec("private names of PyTorch", "thunder_plugin_composites.pytorch_internals:NAMES")]
