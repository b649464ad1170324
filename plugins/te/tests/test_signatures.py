"""The fake has the parameters of the library, as ``signatures.json`` has them from its sources.

``python test_signatures.py PATH`` writes that file anew, from the unpacked core wheel and the sources of the extension.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("signatures.json")

# What the plugin uses: where it is defined, below ``transformer_engine/pytorch``.
PYTHON = {
    "Float8Quantizer.__init__": "tensor/float8_tensor.py",
    "Float8CurrentScalingQuantizer.__init__": "tensor/float8_tensor.py",
    "Float8BlockQuantizer.__init__": "tensor/float8_blockwise_tensor.py",
    "Float8TensorStorage.__new__": "tensor/storage/float8_tensor_storage.py",
    "Float8BlockwiseQTensorStorage.__new__": "tensor/storage/float8_blockwise_tensor_storage.py",
    "general_gemm": "cpp_extensions/gemm.py",
}
ATTRIBUTES = {
    "Float8TensorStorage.__new__": ("_data", "_transpose", "_scale_inv"),
    "Float8BlockwiseQTensorStorage.__new__": (
        "_rowwise_data", "_rowwise_scale_inv", "_columnwise_data", "_columnwise_scale_inv",
    ),
}  # fmt: skip
EXTENSION = ("quantize", "fused_amax_and_scale_update_after_reduction")


def described(function: Any) -> list[str]:
    """Parameters with kind and default."""
    found = []
    for parameter in list(inspect.signature(function).parameters.values()):
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        found.append(f"{parameter.kind.name.lower()} {parameter.name}{default}")
    return found


def own(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def test_the_fake_has_the_librarys_parameters() -> None:
    import fake_transformer_engine as fake

    saved = json.loads(FILE.read_text())
    assert {name: described(own(fake, name)) for name in PYTHON} == saved["python"]
    assert [parameter.split()[1] for parameter in described(fake.quantize)] == saved["extension"]["quantize"]
    assert saved["extension"]["fused_amax_and_scale_update_after_reduction"] == 6
    for name, attributes in saved["attributes"].items():
        source = inspect.getsource(own(fake, name))
        assert all(f".{attribute}" in source for attribute in attributes)
    assert {member.name: int(member) for member in fake.DType}.items() <= saved["formats"].items()


def _stub(node: ast.FunctionDef) -> Any:
    """A function with these parameters; their annotations and its body are left out."""
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    node.body, node.returns, node.decorator_list = [ast.Pass()], None, []
    names: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(ast.Module([node], [])), node.name, "exec"), names)
    return names[node.name]


def written(root: Path) -> dict[str, Any]:
    """The contents of the file, of the sources."""
    python, attributes = {}, {}
    for name, path in PYTHON.items():
        (file,) = root.rglob(f"transformer_engine/pytorch/{path}")
        body = ast.parse(file.read_text()).body
        for part in name.split("."):
            (node,) = [one for one in body if getattr(one, "name", None) == part]
            body = getattr(node, "body", [])
        assert isinstance(node, ast.FunctionDef)
        source = ast.unparse(node)
        python[name] = described(_stub(node))
        if name in ATTRIBUTES:
            attributes[name] = [attribute for attribute in ATTRIBUTES[name] if f"instance.{attribute} =" in source]
    (bindings,) = root.rglob("csrc/extensions/pybind.cpp")
    text = bindings.read_text()
    call = re.search(r'm\.def\("quantize",.*?\);', text, re.DOTALL)
    (recipe,) = root.rglob("csrc/extensions/recipe.cpp")
    update = re.search(r"fused_amax_and_scale_update_after_reduction\((.*?)\) \{", recipe.read_text(), re.DOTALL)
    (header,) = root.rglob("include/transformer_engine/transformer_engine.h")
    formats = dict(re.findall(r"kNVTE(Float8E(?:4M3|5M2)) = (\d+)", header.read_text()))
    assert call
    assert update
    extension = {"quantize": re.findall(r'py::arg\("(\w+)"\)', call[0]), EXTENSION[1]: len(update[1].split(","))}
    return {
        "version": (next(root.rglob("build_tools/VERSION.txt"))).read_text().strip(),
        "python": python,
        "attributes": attributes,
        "extension": extension,
        "formats": {f"k{name}": int(value) for name, value in formats.items()},
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(written(Path(sys.argv[1])), indent=1) + "\n")
