"""The hooks of the plugin. Importing this module imports neither PyTorch nor the front end."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, FrontEndSpec, hookimpl

_PACKAGE = "thunder_plugin_export"


@hookimpl
def thunder_front_ends() -> list[FrontEndSpec]:
    """The front end for an `ExportedProgram`, which `thunder.jit` selects by the class of the program."""
    return [
        FrontEndSpec(
            "export",
            f"{_PACKAGE}.front_end:front_end",
            "programs of torch.export",
            programs=(("torch.export.exported_program.ExportedProgram", f"{_PACKAGE}.program:module_of"),),
        )
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """A check of the private names of PyTorch that the plugin uses."""
    return [CheckSpec("private names of PyTorch", f"{_PACKAGE}.pytorch_internals:NAMES")]
