"""The hooks of the plugin. Importing this module imports neither PyTorch nor the composites."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from thunder_core.plugins import CheckSpec, SymbolsSpec, TransformOptions, TransformSpec, hookimpl


class ConstantMasksOptions(TransformOptions):
    """Options of the transform ``constant_masks``."""

    # This module is imported whenever a program is compiled: see `thunder_core.plugins.options`.
    model_config = ConfigDict(use_attribute_docstrings=False)

    limit: int = Field(
        default=1 << 28,
        ge=0,
        description="The largest mask, and value that it is computed from, which is evaluated, in bytes.",
    )


@hookimpl
def thunder_symbols() -> list[SymbolsSpec]:
    """The composites. Importing them registers them, and their patterns, for executors that claim them."""
    return [SymbolsSpec("thunder_plugin_composites.symbols:ROWS")]


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """The transforms. The preset ``default`` names both."""
    return [
        TransformSpec(
            "constant_masks",
            "thunder_plugin_composites.constant_masks:ConstantMasks.from_options",
            ConstantMasksOptions,
            "removes masks of attention that mask nothing, and replaces constant causal ones by is_causal",
        ),
        TransformSpec(
            "recognize_composites",
            "thunder_plugin_composites.recognize_composites:RecognizeComposites.from_options",
            summary="replaces the operations of a composite by a call of it, if an executor claims that",
        ),
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """A check that PyTorch has the private names that patterns use."""
    return [CheckSpec("private names of PyTorch", "thunder_plugin_composites.pytorch_internals:NAMES")]
