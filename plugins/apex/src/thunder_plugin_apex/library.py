"""Checks of the extension modules of NVIDIA Apex, and of the signatures of the functions that this plugin calls.

Apex has no usable version (0.1 since 2018) and builds modules on request, so the modules themselves are inspected.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from thunder_core.plugins import CheckResult

NORMS: Final = "fused_layer_norm_cuda"
"""``csrc/layer_norm_cuda.cpp`` of Apex."""
CROSS_ENTROPY: Final = "xentropy_cuda"
"""``apex/contrib/csrc/xentropy/interface.cpp`` of Apex."""

FLAGS: Final = {NORMS: "APEX_CUDA_EXT=1", CROSS_ENTROPY: "APEX_XENTROPY=1"}
"""The build flag of each module."""
BUILD: Final = "in a clone of https://github.com/NVIDIA/apex: APEX_CPP_EXT=1 {} pip install -v --no-build-isolation ."

SIGNATURES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    NORMS: {
        "forward": ("input", "normalized_shape", "eps"),
        "forward_affine": ("input", "normalized_shape", "weight", "bias", "eps"),
        "backward": ("grad_output", "mean", "invvar", "input_or_output", "normalized_shape", "eps", "memory_efficient"),
        "backward_affine": (
            *("grad_output", "mean", "invvar", "input_or_output", "normalized_shape"),
            *("weight", "bias", "eps", "memory_efficient"),
        ),
        "rms_forward": ("input", "normalized_shape", "eps"),
        "rms_forward_affine": ("input", "normalized_shape", "weight", "eps"),
        "rms_backward": ("grad_output", "invvar", "input_or_output", "normalized_shape", "eps", "memory_efficient"),
        "rms_backward_affine": (
            *("grad_output", "invvar", "input_or_output", "normalized_shape"),
            *("weight", "eps", "memory_efficient"),
        ),
    },
    CROSS_ENTROPY: {
        "forward": ("input", "labels", "smoothing", "half_to_float"),
        "backward": ("grad_loss", "logits", "max_log_sum_exp", "labels", "smoothing"),
    },
}
"""The called functions by module, and their parameters, which are positional and have no names in Apex."""


def extension(name: str) -> Any:
    """The module. It is imported in each call, so that traces, which call this function, can be saved and loaded."""
    return importlib.import_module(name)


def problem(name: str) -> str | None:
    """The reason why the module cannot be used, with advice; None if it can."""
    advice = f"build it with {FLAGS[name]} ({BUILD.format(' '.join(FLAGS.values()))})"
    try:
        module = extension(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            return f"Apex was built without {name}; {advice}"
        return f"{name} of Apex cannot be imported: {error}"
    except ImportError as error:  # for example, built for another PyTorch
        return f"{name} of Apex cannot be imported: {error}; {advice}"
    for function, parameters in SIGNATURES[name].items():
        attribute = getattr(module, function, None)
        if attribute is None:
            return f"{name} of Apex has no {function}; {advice}, from its newest sources"
        count = _number_of_arguments(attribute)
        if count not in (None, len(parameters)):
            return f"{name}.{function} of Apex takes {count} arguments, not {len(parameters)}; {advice} again"
    return None


def check() -> CheckResult:
    """A check for ``thunder doctor``."""
    problems = [reason for name in SIGNATURES if (reason := problem(name))]
    if not problems:
        return CheckResult(True, f"{' and '.join(SIGNATURES)} of Apex can be used")
    return CheckResult(False, "; ".join(problems), BUILD.format(" ".join(FLAGS.values())))


def _number_of_arguments(function: Callable[..., Any]) -> int | None:
    """The number of arguments of a pybind11 function, from its docstring; None if it is not documented."""
    names = re.findall(r"\b(arg\d+):", (function.__doc__ or "").partition("->")[0])
    return len(names) or None
