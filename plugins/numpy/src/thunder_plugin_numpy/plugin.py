"""The hooks of the plugin. Importing this module imports neither PyTorch nor the front end."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, FrontEndSpec, hookimpl

_PACKAGE = "thunder_plugin_numpy"


@hookimpl
def thunder_front_ends() -> list[FrontEndSpec]:
    """The front end for functions on NumPy arrays, which `thunder.jit` selects by the classes of the arguments."""
    return [
        FrontEndSpec(
            "numpy",
            f"{_PACKAGE}.front_end:front_end",
            "functions on NumPy arrays",
            arguments=("numpy.ndarray",),
        )
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """A check of the private names of PyTorch that the plugin uses."""
    return [CheckSpec("private names of PyTorch", f"{_PACKAGE}.pytorch_internals:NAMES")]
