"""Names that the installed PyTorch lacks: imports work, what needs them is refused, and `thunder doctor` says so."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.utils.checkpoint

from thunder_core.errors import PrivateNameError
from thunder_core.private_names import Kind, Missing, PrivateNames, Row, is_missing, resolve
from thunder_testing.conformance.failure import ConformanceError, ConformanceFailure, NotApplicable
from thunder_testing.private_names import private_names_cases, private_uses

# Another PyTorch than the installed one, as seen by everything that is imported after it.
OTHER = """
import torch
import torch.nn.modules.transformer
import torch.utils.checkpoint
torch.__version__ = "2.99.0"
for path in {paths!r}:
    owner, _, name = path.rpartition(".")
    owner = eval(owner)
    delattr(owner, name)
"""

PROGRAM = """
import thunder
from thunder_core.errors import PrivateNameError
from torch.utils.checkpoint import checkpoint

x = torch.randn(3, 3, requires_grad=True)
assert torch.equal(thunder.jit(lambda x: x.sin() * 2)(x), x.sin() * 2)
thunder.jit(torch.nn.Linear(3, 3))(x).sum().backward()
try:
    {refused}
except PrivateNameError as error:
    print(error)
else:
    raise AssertionError("nothing is refused")
"""


def _run(code: str) -> str:
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


# PyTorch calls these itself: they are renamed, not removed.
RENAMED_CHECKPOINT = """
import torch.distributed.fsdp
import inspect
source = inspect.getsource(torch.utils.checkpoint)
for name in ("_checkpoint_without_reentrant_generator_impl", "_checkpoint_without_reentrant_generator"):
    vars(torch.utils.checkpoint).pop(name, None)
exec(source.replace("_checkpoint_without_reentrant", "_another_name"), vars(torch.utils.checkpoint))
"""
RENAMED_SETTINGS = """
torch.get_float32_matmul_precision = torch._C._get_float32_matmul_precision
torch.are_deterministic_algorithms_enabled = torch._C._get_deterministic_algorithms
"""
SMALL = "import thunder; f = thunder.jit(lambda x: x * 2); assert f(torch.ones(2)).sum() == 4"


@pytest.mark.parametrize(
    ("paths", "more", "refused", "names"),
    [
        (
            ["torch.nn.modules.module.BackwardHook"],
            "",
            "layer = torch.nn.Linear(3, 3); layer.register_full_backward_hook(lambda *_: None); thunder.jit(layer)(x)",
            ["torch.nn.modules.module.BackwardHook", "backward hooks of modules", "2.99.0"],
        ),
        (
            ["torch._functorch.eager_transforms._slice_argnums"],
            "",
            "thunder.grad(lambda x: x.sin().sum())(x)",
            ["torch._functorch.eager_transforms._slice_argnums", "thunder.grad", "2.99.0"],
        ),
        (
            [],
            RENAMED_CHECKPOINT,
            "thunder.jit(lambda x: checkpoint(torch.sin, x, use_reentrant=False))(x)",
            ["_checkpoint_without_reentrant_generator_impl", "torch.utils.checkpoint in compiled programs", "2.99.0"],
        ),
    ],
    ids=["module hooks", "thunder.grad", "checkpoint"],
)
def test_what_needs_a_missing_name_is_refused_and_all_else_works(paths, more, refused, names):
    said = _run(OTHER.format(paths=paths) + more + PROGRAM.format(refused=refused))
    assert not [name for name in names if name not in said], said


def test_public_functions_take_the_place_of_missing_names():
    paths = [
        "torch._C._get_float32_matmul_precision",
        "torch._C._get_deterministic_algorithms",
    ]
    _run("import torch\n" + RENAMED_SETTINGS + OTHER.format(paths=paths) + SMALL)


def test_other_entry_points_may_be_missing_where_no_program_needs_them():
    paths = ["torch.nn.modules.transformer._detect_is_causal_mask", "torch._nested_tensor_from_mask"]
    _run(OTHER.format(paths=paths) + SMALL)


DOCTOR = """
import sys
from thunder.command_line.main import main
sys.exit(main(["doctor", "--json"]))
"""


def _checks(paths: list[str], *, plugins: str = "core", by: str = "core") -> dict[str, dict[str, str]]:
    start = f"import os; os.environ['THUNDER_PLUGINS'] = {plugins!r}\n"
    ended = subprocess.run(
        [sys.executable, "-c", start + OTHER.format(paths=paths) + DOCTOR], capture_output=True, text=True, check=False
    )
    checks = json.loads(ended.stdout)["checks"]
    assert ended.returncode == (0 if all(item["ok"] for item in checks) else 1)
    return {item["check"]: item for item in checks if item["plugin"] == by}


def test_doctor_works_with_an_unknown_version():
    found = _checks([])
    assert found["PyTorch"]["ok"]
    assert found["PyTorch"]["text"].startswith("version 2.99.0, newer than all that Thunder is tested with: 2.11.0, ")
    assert found["compile on cpu"]["ok"]
    # 2.99 should have what 2.14 has
    known = hasattr(torch.utils.checkpoint, "_checkpoint_without_reentrant_generator_impl")
    assert found["private names of PyTorch"]["ok"] is known
    assert known or "refused: torch.utils.checkpoint" in found["private names of PyTorch"]["text"]


def test_doctor_lists_missing_names_with_what_they_cost():
    found = _checks(["torch._functorch.eager_transforms._slice_argnums", "torch.nn.modules.module.BackwardHook"])
    said = found["private names of PyTorch"]
    assert not said["ok"]
    assert "torch._functorch.eager_transforms._slice_argnums" in said["text"]
    assert "refused: thunder.grad and thunder.value_and_grad" in said["text"]
    assert "refused: backward hooks of modules in compiled programs" in said["text"]
    assert found["compile on cpu"]["ok"]


PACKAGES = sorted(Path(__file__).parents[1].glob("plugins/*/src/thunder_plugin_*"))
TABLES = [package / "pytorch_internals.py" for package in PACKAGES if (package / "pytorch_internals.py").exists()]
WITHOUT_TABLE = [package for package in PACKAGES if package / "pytorch_internals.py" not in TABLES]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.parent.name)
def test_each_plugin_asks_doctor_for_its_table(table):
    plugin = importlib.import_module(f"{table.parent.name}.plugin")
    assert f"{table.parent.name}.pytorch_internals:NAMES" in [check.load for check in plugin.thunder_doctor()]


@pytest.mark.parametrize("package", WITHOUT_TABLE, ids=lambda package: package.name)
def test_plugins_without_a_table_use_no_private_names(package):
    assert list(private_uses(PrivateNames(f"{package.name}.pytorch_internals", ()), package)) == []


def test_doctor_lists_what_plugins_miss():
    paths = ["torch._foreach_copy_", "torch._C._construct_storage_from_data_pointer"]
    found = _checks(paths, plugins="core,cudagraphs", by="cudagraphs")["private names of PyTorch"]
    assert not found["ok"]
    assert "refused: copies of many inputs at once" in found["text"]
    assert "torch._C._construct_storage_from_data_pointer (torch._C has no attribute" in found["text"]
    assert _checks([], plugins="core,cudagraphs", by="cudagraphs")["private names of PyTorch"]["ok"]


# --- tables


@pytest.fixture
def table(monkeypatch):
    """Makes a table that is the module ``table``."""

    def make(*rows: Row) -> PrivateNames:
        monkeypatch.setitem(sys.modules, "table", ModuleType("table"))
        return PrivateNames("table", rows)

    return make


def test_names_are_bound_once(table):
    names = table(Row("json.decoder._x", "reading", otherwise=("json.JSONDecoder",)))
    assert names.bind("x") is json.JSONDecoder is sys.modules["table"].x
    with pytest.raises(AttributeError, match="'table' has no attribute 'y'"):
        names.bind("y")


def test_kinds(table):
    names = table(
        Row("collections.OrderedDict._missing", "order", kind=Kind.ATTRIBUTE, example="collections.OrderedDict()"),
        Row("fractions.Fraction._numerator", "fractions", kind=Kind.ATTRIBUTE),
        Row("json._default_encoder", "writing", kind=Kind.ENTRY_POINT),
        Row("json._absent", "writing", kind=Kind.ENTRY_POINT),
    )
    from fractions import Fraction

    assert names.bind("numerator")(Fraction(3, 4)) == 3
    assert names.bind("default_encoder").value is json._default_encoder
    assert [missing.row.name for missing in names.missing()] == ["missing", "absent"]


def _placeholder(table):
    return table(Row("json._absent", "writing")).bind("absent")


@pytest.mark.parametrize(
    "use",
    [
        lambda it: it(),
        lambda it: it.attribute,
        lambda it: isinstance(1, it),
        lambda it: isinstance(1, it | int),
        lambda it: issubclass(int, it),
        lambda it: it["item"],
        lambda it: list(it),
        lambda it: 1 in it,
        lambda it: type("Derived", (it,), {})(),
    ],
)
def test_a_placeholder_is_refused_at_use(table, use):
    with pytest.raises(PrivateNameError, match=r"writing: this needs json\._absent, which json 2.0.9 lacks"):
        use(_placeholder(table))


def _catching(absent):
    try:
        int("ten")
    except absent:
        raise AssertionError from None


def test_a_placeholder_is_harmless_at_import(table):
    absent = _placeholder(table)
    assert is_missing(absent)
    assert {absent: 1}[absent] == 1
    assert is_missing(type("Derived", (absent,), {}))
    with pytest.raises(ValueError, match="'ten'"):
        _catching(absent)


def test_rows_for_other_versions(table):
    row = Row("json._absent", "writing", since="3")
    assert isinstance(resolve(row), Missing)
    assert not table(row).missing()
    assert table(Row("json._absent", "writing", since="2")).missing()
    assert not table(Row("json._absent", "writing", until="2")).missing()


def test_rows_for_some_builds(table, tmp_path):
    absent = Row("json._absent", "writing", only_with="json.encoder.ESCAPE.pattern.isdigit()")
    assert not table(absent).missing()
    case, _ = private_names_cases(table(absent), {"absent": print}, folders=[tmp_path])
    with pytest.raises(NotApplicable, match=r"not in this build, 2\.0\.9: json\.encoder.*isdigit\(\) is False"):
        case.check()
    assert table(Row("json._absent", "writing", only_with="json.encoder.ESCAPE.pattern")).missing()


def test_two_rows_of_one_name(table):
    with pytest.raises(ValueError, match="two rows for x"):
        table(Row("json._x", ""), Row("json.decoder._x", ""))


# --- the suite for tables


def _fails(names: PrivateNames, checks, folder, case: str) -> str:
    (found,) = [one for one in private_names_cases(names, checks, folders=[folder]) if one.id == case]
    with pytest.raises(ConformanceFailure) as error:
        found.check()
    return str(error.value)


def test_suite_names_the_row_that_fails(table, tmp_path):
    names = table(Row("json._absent", "writing"), Row("json._default_encoder", "encoding"))
    checks = {"absent": print, "default_encoder": lambda value: value.no_method()}
    assert "json._absent, for writing" in _fails(names, checks, tmp_path, "json._absent")
    said = _fails(names, checks, tmp_path, "json._default_encoder")
    assert said.startswith("json._default_encoder, for encoding, behaves otherwise in version 2.0.9: AttributeError")
    with pytest.raises(ConformanceError, match=r"rows without a check: \['absent'\]"):
        private_names_cases(names, {"default_encoder": print}, folders=[tmp_path])
    with pytest.raises(ConformanceError, match=r"checks without a row: \['other'\]"):
        private_names_cases(names, {**checks, "other": print}, folders=[tmp_path])


def test_suite_leaves_out_rows_for_other_versions(table, tmp_path):
    (case, _) = private_names_cases(table(Row("json._absent", "", since="3")), {"absent": print}, folders=[tmp_path])
    with pytest.raises(NotApplicable):
        case.check()


USES = """
import json
import sys
import json._private
import json as encoding
from json import decoder, _inner
from json.decoder import scanner

a = json._default
b = encoding.decoder._x.y
c = decoder._z
d = anything._attribute
e = self._attribute
f = "json._text(...)"
g = "json.listed._text"
h = json.public
i = "sentences about json._text"
j = thing._spelled
k = getattr(thing, "_asked_for", None)
inner: object = decoder.scanner
l = inner._of_a_variable.m
n = thing._own, thing._asdict(), sys._getframe()
o = self.part._of_a_part
_own = 3
"""


def test_suite_finds_private_names_elsewhere(table, tmp_path):
    names = table(
        Row("json.decoder._attribute", "", kind=Kind.ATTRIBUTE),
        Row("json.listed._text", ""),
        Row("json._spelled", "", kind=Kind.SPELLED),
    )
    (tmp_path / "table.py").write_text("import json\njson._default\n")
    (tmp_path / "uses.py").write_text(USES)
    found = [line.rpartition("uses.py:")[2] for line in private_uses(names, tmp_path)]
    assert found == [
        "4: json._private",
        "6: json._inner",
        "14: json._text(...)",
        "9: json._default",
        "10: json.decoder._x.y",
        "11: json.decoder._z",
        "12: _attribute",
        "19: _asked_for",
        "21: json.decoder.scanner._of_a_variable.m",
        "23: _of_a_part",
    ]
    assert "uses.py:9: json._default" in _fails(
        names, {"attribute": print, "text": print, "spelled": print}, tmp_path, "spelled nowhere else"
    )
