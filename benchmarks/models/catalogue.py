"""Models by name: the suite's, LitGPT's configurations, small programs, and models of other libraries by their prefix.

A name is resolved to a library and a model of it without importing the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from benchmarks.models import diffusion, hugging_face, lit_gpt, small, suite, vision
from benchmarks.models.model import BenchmarkModel, UnknownModel, native_settings
from benchmarks.models.suite import Sizes

SMALL: dict[str, tuple[str, Mapping[str, Any]]] = {
    "small-llama": ("Llama-2-7b-hf", lit_gpt.SMALL_LLAMA),
    "small-bert": ("hf:bert", hugging_face.SMALL_BERT),
    "small-generator": ("hf:llama", hugging_face.SMALL_GENERATOR),
    "small-sliding-generator": ("hf:gemma3_text", hugging_face.SMALL_SLIDING_GENERATOR),
}
"""Names for a model with overrides, which use the common names of settings where there is one."""
NAMED = SMALL | {
    name: (sizes.model, sizes.overrides) for name, sizes in suite.variants().items() if name != sizes.model
}
"""`SMALL`, and the models of the suite that are not named as in their library."""


def make(name: str, overrides: Mapping[str, Any]) -> BenchmarkModel:
    """The model with random weights, on the default device.

    Raises:
        UnknownModel: there is no such model, or it has no such setting.
        MissingPackage: the package of the model is not installed.
    """
    name, sizes = _meaning(check(name))
    return _family(name).make(name, {**sizes, **overrides})


def check(name: str) -> str:
    """Return ``name`` if there is such a model that can be made on this machine.

    Raises:
        UnknownModel: there is no such model; the message has the nearest name.
        MissingPackage: the package of the model is not installed.
    """
    meaning, _ = _meaning(name)
    family = _family(meaning)
    # Without the imports of a library if possible. Names without prefix are LitGPT's, or misspelled ones of the suite.
    if name in NAMED or family is not lit_gpt:
        family.require_packages(name)
    if name in NAMED or name in small.MODELS:
        return name
    known = _accepted(name)
    if name not in known:
        # Imported here, because the import of Thunder is part of a measured first step.
        from thunder_core.errors import suggestion

        raise UnknownModel(f"no model {name!r}{suggestion(name, known)}; --list-models lists all models")
    return name


def check_setting(name: str, setting: str, value: Any) -> None:
    """Raise UnknownModel if the model has no such setting, or if the value has the wrong type."""
    name, _ = _meaning(name)
    defaults, words = _family(name).settings(name)
    native_settings({setting: value}, words, defaults, name)


def sizes_of(name: str) -> Sizes | None:
    """Batch size and sequence length of a model of the suite; None for others."""
    return suite.variants().get(name)


def has_sequences(name: str) -> bool:
    """Whether the workload's sequence length applies to a model."""
    meaning, _ = _meaning(name)
    return bool(_family(meaning).has_sequences(meaning))


def _meaning(name: str) -> tuple[str, Mapping[str, Any]]:
    """The name in its library, and overrides."""
    library_name, sizes = NAMED.get(name, (name, {}))
    if library_name in NAMED:
        library_name, more = NAMED[library_name]
        return library_name, {**more, **sizes}
    return library_name, sizes


def _family(name: str) -> ModuleType:
    if name in small.MODELS:
        return small
    if name.startswith(hugging_face.PREFIX):
        return hugging_face
    if name.startswith(vision.PREFIXES):
        return vision
    return diffusion if name.startswith(diffusion.PREFIX) else lit_gpt


def _accepted(name: str) -> list[str]:
    """The names of the models of a name's family; without a prefix, all that have none."""
    family = _family(name)
    if family is vision:
        return vision.accepted(name.partition(":")[0] + ":")
    if family is lit_gpt:
        return [*small_names(), *suite.variants(), *lit_gpt.names()]
    accepted: list[str] = family.accepted()
    return accepted


def small_names() -> list[str]:
    """The names of the small models."""
    return [*small.names(), *SMALL]


def listing() -> str:
    """All names by library, as text."""
    groups = {
        "the suite of report": list(suite.SUITE),
        f"the suite, small (on a CPU; {suite.SUFFIX} is added by report --small)": [
            name for name in suite.variants() if name.endswith(suite.SUFFIX)
        ],
        "small models": small_names(),
        "torchvision (any of its models for images), timm (any model), diffusers": [
            "torchvision:NAME",
            "timm:NAME",
            diffusion.NAME,
        ],
        "Hugging Face (tested; its other models for masked and causal language modeling, text to text and speech are "
        "accepted)": hugging_face.names(),
        "LitGPT": lit_gpt.names(),
    }
    return "\n\n".join(f"{title}:\n  {', '.join(names) or 'not installed'}" for title, names in groups.items())
