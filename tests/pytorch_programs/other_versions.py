"""Names that test files of another version of PyTorch than the installed one import."""

from __future__ import annotations

import importlib
import unittest
from typing import Any, Final


def _unchanged(test: Any) -> Any:
    return test


def _skipped(test: Any) -> Any:
    return unittest.skip("needs a device")(test)


_TORCH_2_6: Final[dict[str, dict[str, Any]]] = {
    "functorch.experimental.control_flow": {
        "UnsupportedAliasMutationException": type("UnsupportedAliasMutationException", (Exception,), {})
    },
    "torch._dynamo.backends.onnxrt": {"has_onnxruntime": lambda: False},
    "torch._dynamo.exc": {"IncorrectUsage": type("IncorrectUsage", (Exception,), {})},
    "torch._dynamo.testing": {"requiresPy310": _unchanged, "unsupported": None},
    "torch._inductor.compile_fx": {"complex_memory_overlap": None},
    "torch.testing._internal.common_utils": {"disable_translation_validation_if_dynamic_shapes": _unchanged},
    "torch.testing._internal.inductor_utils": {"HAS_CUDA": False},
    "torch.testing._internal.triton_utils": {"HAS_CUDA": False, "requires_cuda": _skipped},
}


MODULES: Final = tuple(_TORCH_2_6)
"""The modules that get names."""


def provide() -> None:
    """Put these names where the installed PyTorch has none, in this process."""
    for module, names in _TORCH_2_6.items():
        found = importlib.import_module(module)
        for name, value in names.items():
            if not hasattr(found, name):
                setattr(found, name, value)
