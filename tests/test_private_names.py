"""Names that the installed PyTorch lacks: imports work, what needs them is refused, and `thunder doctor` reports it."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.utils.checkpoint

from thunder_core.errors import PrivateNameError
from thunder_core.private_names import Kind, Missing, Name, PrivateNames, is_missing, resolve
from thunder_testing.conformance.failure import ConformanceError, ConformanceFailure, NotApplicable
from thunder_testing.forked import LIBRARIES, run_forked
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

def hooked():
    layer = torch.nn.Linear(3, 3)
    layer.register_full_backward_hook(lambda *_: None)
    thunder.jit(layer)(x)

x = torch.randn(3, 3, requires_grad=True)
assert torch.equal(thunder.jit(lambda x: x.sin() * 2)(x), x.sin() * 2)
thunder.jit(torch.nn.Linear(3, 3))(x).sum().backward()
for refused in (
    hooked,
    lambda: thunder.grad(lambda x: x.sin().sum())(x),
    lambda: thunder.jit(lambda x: checkpoint(torch.sin, x, use_reentrant=False))(x),
):
    try:
        refused()
    except PrivateNameError as error:
        print(" ".join(str(error).split()))
    else:
        raise AssertionError("nothing is refused")
"""

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
import torch
torch.get_float32_matmul_precision = torch._C._get_float32_matmul_precision
torch.are_deterministic_algorithms_enabled = torch._C._get_deterministic_algorithms
"""
SMALL = "import thunder; f = thunder.jit(lambda x: x * 2); assert f(torch.ones(2)).sum() == 4"
HOOK = "torch.nn.modules.module.BackwardHook"
GRAD = "torch._functorch.eager_transforms._slice_argnums"
CHECKPOINT = "_checkpoint_without_reentrant_generator_impl"


def _run(code: str) -> str:
    ended = run_forked(code, preloaded=LIBRARIES)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_what_needs_a_missing_name_is_refused_and_all_else_works():
    refusals = _run(OTHER.format(paths=[HOOK, GRAD]) + RENAMED_CHECKPOINT + PROGRAM).splitlines()
    for refusal, names in zip(
        refusals,
        [
            (HOOK, "backward hooks of modules"),
            (GRAD, "thunder.grad"),
            (CHECKPOINT, "torch.utils.checkpoint in compiled programs"),
        ],
        strict=True,
    ):
        assert not [name for name in (*names, "2.99.0") if name not in refusal], refusal


@pytest.mark.slow
def test_programs_work_without_names_that_have_public_ones_or_that_they_do_not_need():
    replaced = ["torch._C._get_float32_matmul_precision", "torch._C._get_deterministic_algorithms"]
    not_needed = ["torch.nn.modules.transformer._detect_is_causal_mask", "torch._nested_tensor_from_mask"]
    _run(RENAMED_SETTINGS + OTHER.format(paths=[*replaced, *not_needed]) + SMALL)


DOCTOR = """
import sys
from thunder.command_line.main import main
sys.exit(main(["doctor", "--json"]))
"""


def _checks(paths: list[str]) -> dict[tuple[str, str], dict[str, str]]:
    """The output of doctor without these names, by plugin and check."""
    ended = run_forked(
        OTHER.format(paths=paths) + DOCTOR,
        environment=os.environ | {"THUNDER_PLUGINS": "core,cudagraphs"},
        preloaded=LIBRARIES,
    )
    checks = json.loads(ended.stdout)["checks"]
    assert ended.returncode == (0 if all(item["ok"] for item in checks) else 1)
    return {(item["plugin"], item["check"]): item for item in checks}


@pytest.mark.slow
def test_doctor_works_with_an_unknown_version():
    checks = _checks([])
    version = checks["core", "PyTorch"]
    assert version["ok"]
    assert version["text"].startswith("version 2.99.0, newer than all versions that Thunder is tested with: 2.11.0, ")
    assert checks["core", "compile on cpu"]["ok"]
    # 2.99 should have what 2.14 has
    known = hasattr(torch.utils.checkpoint, CHECKPOINT)
    names = checks["core", "private names of PyTorch"]
    assert names["ok"] is known
    assert known or "refused: torch.utils.checkpoint" in names["text"]
    assert checks["cudagraphs", "private names of PyTorch"]["ok"]


@pytest.mark.slow
def test_doctor_lists_missing_names_with_what_they_cost():
    of_cudagraphs = ["torch._foreach_copy_", "torch._C._construct_storage_from_data_pointer"]
    checks = _checks([GRAD, HOOK, *of_cudagraphs])
    names = checks["core", "private names of PyTorch"]
    assert not names["ok"]
    assert GRAD in names["text"]
    assert "refused: thunder.grad and thunder.value_and_grad" in names["text"]
    assert "refused: backward hooks of modules in compiled programs" in names["text"]
    assert checks["core", "compile on cpu"]["ok"]
    names = checks["cudagraphs", "private names of PyTorch"]
    assert not names["ok"]
    assert "refused: copies of many inputs at once" in names["text"]
    assert "torch._C._construct_storage_from_data_pointer (torch._C has no attribute" in names["text"]


PACKAGES = sorted(Path(__file__).parents[1].glob("plugins/*/src/thunder_plugin_*"))
TABLES = [package / "pytorch_internals.py" for package in PACKAGES if (package / "pytorch_internals.py").exists()]
WITHOUT_TABLE = [package for package in PACKAGES if package / "pytorch_internals.py" not in TABLES]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.parent.name)
def test_each_plugin_asks_doctor_for_its_table(table):
    plugin = importlib.import_module(f"{table.parent.name}.plugin")
    assert f"{table.parent.name}.pytorch_internals:NAMES" in [check.load for check in plugin.thunder_doctor()]


@pytest.mark.parametrize("package", WITHOUT_TABLE, ids=lambda package: package.name)
@pytest.mark.slow
def test_plugins_without_a_table_use_no_private_names(package):
    assert list(private_uses(PrivateNames(f"{package.name}.pytorch_internals", ()), package)) == []


# --- tables


@pytest.fixture
def table(monkeypatch):
    """Makes a table that is the module ``table``."""

    def make(*rows: Name) -> PrivateNames:
        monkeypatch.setitem(sys.modules, "table", ModuleType("table"))
        return PrivateNames("table", rows)

    return make


def test_names_are_bound_once(table):
    names = table(Name("json.decoder._x", "reading", otherwise=("json.JSONDecoder",)))
    assert names.bind("x") is json.JSONDecoder is sys.modules["table"].x
    with pytest.raises(AttributeError, match="'table' has no attribute 'y'"):
        names.bind("y")


def test_kinds(table):
    names = table(
        Name("collections.OrderedDict._missing", "order", kind=Kind.ATTRIBUTE, example="collections.OrderedDict()"),
        Name("fractions.Fraction._numerator", "fractions", kind=Kind.ATTRIBUTE),
        Name("json._default_encoder", "writing", kind=Kind.ENTRY_POINT),
        Name("json._absent", "writing", kind=Kind.ENTRY_POINT),
    )
    from fractions import Fraction

    assert names.bind("numerator")(Fraction(3, 4)) == 3
    assert names.bind("default_encoder").value is json._default_encoder
    assert [missing.row.name for missing in names.missing()] == ["missing", "absent"]


def _placeholder(table):
    return table(Name("json._absent", "writing")).bind("absent")


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
    with pytest.raises(PrivateNameError, match=r"writing: requires json\._absent, which json 2.0.9 lacks"):
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
    row = Name("json._absent", "writing", since="3")
    assert isinstance(resolve(row), Missing)
    assert not table(row).missing()
    assert table(Name("json._absent", "writing", since="2")).missing()
    assert not table(Name("json._absent", "writing", until="2")).missing()


def test_rows_for_some_builds(table, tmp_path):
    absent = Name("json._absent", "writing", only_with="json.encoder.ESCAPE.pattern.isdigit()")
    assert not table(absent).missing()
    case, _ = private_names_cases(table(absent), {"absent": print}, folders=[tmp_path])
    with pytest.raises(NotApplicable, match=r"not in this build, 2\.0\.9: json\.encoder.*isdigit\(\) is False"):
        case.check()
    assert table(Name("json._absent", "writing", only_with="json.encoder.ESCAPE.pattern")).missing()


def test_two_rows_of_one_name(table):
    with pytest.raises(ValueError, match="two rows for x"):
        table(Name("json._x", ""), Name("json.decoder._x", ""))


# --- the suite for tables


def _fails(names: PrivateNames, checks, folder, case: str) -> str:
    (found,) = [one for one in private_names_cases(names, checks, folders=[folder]) if one.id == case]
    with pytest.raises(ConformanceFailure) as error:
        found.check()
    return str(error.value)


def test_suite_names_the_row_that_fails(table, tmp_path):
    names = table(Name("json._absent", "writing"), Name("json._default_encoder", "encoding"))
    checks = {"absent": print, "default_encoder": lambda value: value.no_method()}
    assert "json._absent, for writing" in _fails(names, checks, tmp_path, "json._absent")
    said = _fails(names, checks, tmp_path, "json._default_encoder")
    assert said.startswith("json._default_encoder, for encoding, behaves otherwise in version 2.0.9: AttributeError")
    with pytest.raises(ConformanceError, match=r"rows without a check: \['absent'\]"):
        private_names_cases(names, {"default_encoder": print}, folders=[tmp_path])
    with pytest.raises(ConformanceError, match=r"checks without a row: \['other'\]"):
        private_names_cases(names, {**checks, "other": print}, folders=[tmp_path])


def test_suite_leaves_out_rows_for_other_versions(table, tmp_path):
    (case, _) = private_names_cases(table(Name("json._absent", "", since="3")), {"absent": print}, folders=[tmp_path])
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
        Name("json.decoder._attribute", "", kind=Kind.ATTRIBUTE),
        Name("json.listed._text", ""),
        Name("json._spelled", "", kind=Kind.NAME_ONLY),
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
