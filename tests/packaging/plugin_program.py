"""Compile a program with everything that a plugin offers, and compare its results and gradients with eager.

    python plugin_program.py PLUGIN,... [ABSENT ...]

``ABSENT`` are top-level packages that cannot be imported, and distributions that are not found, as if not installed.
``scripts/release`` runs this file in an environment without the checkout, so it imports nothing from there.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

import thunder
from thunder_core.plugins import ExecutorSpec, InterceptionsSpec, TensorClassesSpec, TransformSpec
from thunder_core.plugins.distributions import Installed
from thunder_core.plugins.host import host
from thunder_core.plugins.states import Offered, PluginRecord

KINDS = (("executors", ExecutorSpec), ("transforms", TransformSpec), ("tensor_classes", TensorClassesSpec))


class Absent:
    """An importer that refuses packages."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, module: str, path: Any = None, target: Any = None) -> None:
        if module.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {module!r}, which is none of the dependencies", name=module)


def hide(absent: set[str]) -> None:
    """Refuse to import packages, and do not discover the plugins in distributions of these names."""
    sys.meta_path.insert(0, Absent(absent))
    with_plugins = Installed.with_plugins
    Installed.with_plugins = lambda self: [  # type: ignore[method-assign]
        one for one in with_plugins(self) if one.name.replace("-", "_") not in absent
    ]


def enabled(name: str, spec: Any) -> dict[str, Any]:
    """The entry of a configuration; an option that must be given gets the first example of its field."""
    required = {key: field.examples[0] for key, field in spec.options.model_fields.items() if field.is_required()}
    return {f"{name}.{spec.name}": {"optional": True, **required}}


def changes_modules(plugin: PluginRecord, spec: Any) -> bool:
    """Whether a transform is for modules only."""
    offered = host().import_object(Offered(plugin, spec))
    return getattr(getattr(offered, "__self__", None), "of_modules", False)


def program(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.relu(torch.nn.functional.linear(x, weight, bias) + 1).float().mean()


def check(name: str) -> None:
    """Raises AssertionError, or what loading the plugin or compiling raises."""
    plugin = host().load(name)
    of_modules = [spec for spec in plugin.of(TransformSpec) if changes_modules(plugin, spec)]
    if of_modules:
        module, x = torch.nn.Sequential(torch.nn.Linear(32, 32)), torch.randn(4, 32)
        compiled = thunder.jit(module, transforms=[enabled(name, of_modules[0])])
        torch.testing.assert_close(compiled(x), module(x), rtol=0.1, atol=0.1)
        assert thunder.explain(compiled).module_notes
    parts: dict[str, list[Any]] = {
        kind: [enabled(name, spec) for spec in plugin.of(spec_kind) if spec not in of_modules]
        for kind, spec_kind in KINDS
    }
    if not any(parts.values()) and plugin.of(InterceptionsSpec):  # the plugin's name selects its only table
        parts["interceptions"] = [name]
    parts = {kind: entries for kind, entries in parts.items() if entries}

    arguments = [torch.randn(size, requires_grad=True) for size in ((4, 8), (8, 8), (8,))]
    compiled = thunder.jit(program, **parts)
    result, expected = compiled(*arguments), program(*arguments)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(torch.autograd.grad(result, arguments), torch.autograd.grad(expected, arguments))
    report = thunder.explain(compiled)
    assert not [line for line in report.details().splitlines() if "none of the dependencies" in line], report.details()
    used = [f"{kind.replace('_', ' ')}: {len(entries)}" for kind, entries in parts.items()]
    print("; ".join([f"{name}: loaded, results and gradients as in eager", *used]), flush=True)


if __name__ == "__main__":
    hide(set(sys.argv[2:]))
    for plugin_name in sys.argv[1].split(","):
        check(plugin_name)
