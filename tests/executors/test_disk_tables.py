"""Answers about lines on disk: what is found again, what is not, and what happens to a damaged or unusable file."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from thunder_core.errors import CacheWarning
from thunder_core.executors import disk_tables
from thunder_core.executors.artifacts import ArtifactCache
from thunder_core.executors.disk_tables import DiskTable, disk_table, save_tables
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.tracing import lowering
from thunder_testing.forked import ForkedProgram, start_forked

ROOT = Path(__file__).resolve().parents[2]
PLAIN = Context(grad_enabled=False, inference=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path / "cache"))
    forget(monkeypatch)
    return tmp_path / "cache"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know what a process knows that has just started."""
    monkeypatch.setattr(disk_tables, "_tables", {})
    lowering._cache.clear()


def table(key: str = "key") -> DiskTable:
    found = disk_table(key)
    assert found is not None
    return found


def test_answers_are_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert table().get("question") is None
    table().put("question", b"answer")
    assert table().get("question") == b"answer"
    assert not folder.exists()
    assert save_tables() == []
    forget(monkeypatch)
    assert table().get("question") == b"answer"
    assert table("another key").get("question") is None
    assert table().get("another question") is None
    ((path, _),) = ArtifactCache(folder).files()
    written = path.stat().st_ino
    assert save_tables() == []
    assert path.stat().st_ino == written  # nothing was new


def test_nothing_is_kept_where_that_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_CACHE_DIR", "")
    assert disk_table("key") is None


class Runs:
    """An object whose unpickling runs code."""

    def __reduce__(self) -> Any:
        return exec, ("import os; os.environ['CODE_RAN'] = 'yes'",)


# Sealed files that are not tables.
NO_TABLES = {
    "a pickled list": pickle.dumps([]),
    "a pickled table": pickle.dumps({b"key": b"value"}),
    "code": pickle.dumps(Runs()),
    "a list": b"[]",
    "a number": b"1",
    "nothing": b"",
    "numbers": b'{"a": 1}',
    "lists": b'{"a": ["b"]}',
    "deep": b"[" * 100_000,
    "no Unicode": b'{"a": "\xff"}',
}


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", *NO_TABLES])
def test_damaged_files_are_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    table().put("question", b"answer")
    save_tables()
    ((path, _),) = ArtifactCache(folder).files()
    content = path.read_bytes()
    if damage in NO_TABLES:
        ArtifactCache(folder).put("key", NO_TABLES[damage])
    else:
        path.write_bytes({"cut": content[:-1], "changed": content[:-1] + b"?", "empty": b""}[damage])
    forget(monkeypatch)
    assert table().get("question") is None
    table().put("question", b"answer")
    (note,) = save_tables()
    assert note.startswith("results for ops on disk are computed again: ")
    assert path.read_bytes() == content
    assert save_tables() == []
    assert "CODE_RAN" not in os.environ


def test_an_entry_that_is_not_encoded_is_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table().put("question", b"answer")
    save_tables()
    key = next(iter(table()._known))
    for text in ("?", "A", "é"):
        ArtifactCache(folder).put("key", json.dumps({key: text, "other": "AAAA"}).encode())
        forget(monkeypatch)
        assert table().get("question") is None
        (note,) = save_tables()
        assert note.startswith("results for ops on disk are computed again: ")
        forget(monkeypatch)
        assert set(table()._known) == {"other"}


def test_what_another_process_wrote_stays(folder: Path) -> None:
    cache = ArtifactCache(folder)
    first, second = DiskTable(cache, "key"), DiskTable(cache, "key")
    first.put("one", b"1")
    second.put("two", b"2")
    assert first.save() == second.save() == []
    after = DiskTable(cache, "key")
    assert (after.get("one"), after.get("two")) == (b"1", b"2")


def test_what_is_not_asked_for_goes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_tables, "_MOST", 3)
    cache = ArtifactCache(folder)
    for number in range(3):
        own = DiskTable(cache, "key")
        own.put(str(number), b"")
        own.save()
    last = DiskTable(cache, "key")
    last.get("0")
    last.put("3", b"")
    last.save()
    after = DiskTable(cache, "key")
    assert [after.get(str(number)) is not None for number in range(4)] == [True, False, True, True]


def test_folders_that_cannot_be_written(folder: Path) -> None:
    folder.write_text("a file")
    table().put("question", b"answer")
    (note,) = save_tables()
    assert note.startswith(f"results for ops are not stored on disk, because {folder} cannot be written")


def test_folders_of_others_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table().put("question", b"answer")
    save_tables()
    folder.chmod(0o777)
    forget(monkeypatch)
    with pytest.warns(CacheWarning, match=f"others can write to {folder}"):
        assert table().get("question") is None
    table().put("question", b"answer")
    assert save_tables() == [f"results for ops are not stored on disk, because others can write to {folder}"]


def ops_of(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[BoundSymbol, ...]:
    program = thunder.jit(function, executors=[])
    program(*inputs)
    recorded, *_ = traces = thunder.last_traces(program)
    functional = [trace.symbols for trace in traces if "functional_call" in str(trace)]
    return functional[0] if functional else recorded.symbols


STATISTICS = (torch.zeros(4), torch.ones(4))

CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "composite": (lambda x: torch.nn.functional.layer_norm(x, (4,)), (3, 4)),
    "several results": (lambda x: torch.var_mean(x, 0), (3, 4)),
    "views": (lambda x: x.split(2, 1), (3, 4)),
    "random": (lambda x: torch.nn.functional.dropout(x, 0.5), (3, 4)),
    "constants": (lambda x: x.clamp(-float("inf"), float("nan")), (3, 4)),
    "a function that writes": (lambda x: torch.native_batch_norm(x, None, None, *STATISTICS, True, 0.1, 1e-5), (3, 4)),
    "itself": (lambda x: torch.ops.aten.mm.default(x, x), (4, 4)),
    "method": (lambda x: x.to(torch.float64).unflatten(0, (1, 3)), (3, 4)),
}


@pytest.mark.parametrize("case", CASES)
def test_forms_are_read_as_they_were_made(folder: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    function, shape = CASES[case]
    ops = ops_of(function, torch.randn(shape))
    forms = [disk_tables.lowered_form(op, PLAIN) for op in ops]
    save_tables()
    forget(monkeypatch)

    def traced(*args: Any) -> Any:
        raise AssertionError("it is on disk")

    monkeypatch.setattr(lowering, "trace_call", traced)
    for op, form in zip(ops, forms, strict=True):
        read = disk_tables.lowered_form(_renamed(op), PLAIN)
        assert repr(read) == repr(form)  # a NaN does not equal itself
        assert [op.symbol for op in read.symbols] == [op.symbol for op in form.symbols]


def _renamed(op: BoundSymbol) -> BoundSymbol:
    def rename(leaf: Any) -> Any:
        return replace(leaf, name=f"other_{leaf.name}") if isinstance(leaf, TensorProxy) else leaf

    return replace(op.map_arguments(rename), output=map_leaves(rename, op.output))


def count_traced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    trace = lowering._lowered

    def traced(bound: BoundSymbol, context: Context) -> Any:
        found.append(bound.symbol.name)
        return trace(bound, context)

    monkeypatch.setattr(lowering, "_lowered", traced)
    return found


def test_other_versions_make_their_own_forms(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (op,) = ops_of(lambda x: x.softmax(0), torch.randn(3))
    traced = count_traced(monkeypatch)
    for versions in ("these", "those", "these"):
        monkeypatch.setattr(disk_tables, "software", lambda versions=versions: versions)
        disk_tables.lowered_form(op, PLAIN)
        save_tables()
        forget(monkeypatch)
    assert len(traced) == 2


def test_what_others_may_define_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of packages that are not PyTorch can change under their names."""
    (op,) = ops_of(lambda x: x.softmax(0), torch.randn(3))
    own = replace(op.symbol, decomposition=_softmax)
    disk_tables.lowered_form(replace(op, symbol=own), PLAIN)
    save_tables()
    assert not ArtifactCache(folder).files()


def _softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.exp() / x.exp().sum(dim, keepdim=True)


def test_operators_that_are_gone_are_traced_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (op,) = ops_of(lambda x: x.softmax(0), torch.randn(3))
    disk_tables.lowered_form(op, PLAIN)
    save_tables()
    forget(monkeypatch)
    traced = count_traced(monkeypatch)
    named = disk_tables.registry.symbol_named

    def gone(name: str, *style: Any) -> Any:
        if sys._getframe(1).f_code.co_name == "persistent_load":
            raise LookupError(name)
        return named(name, *style)

    monkeypatch.setattr(disk_tables.registry, "symbol_named", gone, raising=False)
    disk_tables.lowered_form(op, PLAIN)
    assert traced == ["torch.softmax"]


def _names(name: str) -> Any:
    """An object whose pickle has the symbol of this name."""
    return _Named(name)


class _Named:
    def __init__(self, name: str) -> None:
        self.name = name


class _Crafting(pickle.Pickler):
    def persistent_id(self, value: Any) -> str | None:
        return value.name if isinstance(value, _Named) else None


def _crafted(value: Any) -> bytes:
    file = io.BytesIO()
    _Crafting(file).dump(value)
    return file.getvalue()


FORM = ((), {}, None)
# Entries of the table of core-ATen forms: what a file may have in place of one.
ENTRIES: dict[str, Any] = {
    "code": lambda: _crafted(Runs()),
    "code in a form": lambda: _crafted((*FORM, Runs())),
    "a function": lambda: _crafted((*FORM, os.system)),
    "a function of PyTorch": lambda: _crafted((*FORM, torch.load)),
    "a class": lambda: _crafted((*FORM, torch.nn.Linear)),
    "a module's attribute": lambda: b"ctorch\nos.system\n.",
    "getattr": lambda: b"cbuiltins\ngetattr\n.",
    "a call of getattr": lambda: b"cbuiltins\ngetattr\n(cbuiltins\nobject\nS'__subclasses__'\ntR.",
    "a name that is imported": lambda: _crafted((*FORM, _names("FUNCTION marked_by_a_table.run"))),
    "a name of a module": lambda: _crafted((*FORM, _names("FUNCTION torch.os.system"))),
    "torch.load": lambda: _crafted((*FORM, _names("FUNCTION torch.load"))),
    "a method": lambda: _crafted((*FORM, _names("METHOD __reduce_ex__"))),
    "another style": lambda: _crafted((*FORM, _names("STYLE torch.sin"))),
    "a derivative": lambda: _crafted((*FORM, ([], {}))),
    "another value": lambda: _crafted((*FORM, 3)),
    "a form with other parts": lambda: _crafted(
        (*FORM, Trace("call", (1,), (2,), None, Stage.ACQUIRED, "tracer", PLAIN))
    ),
    "three": lambda: _crafted(FORM),
    "a dict": lambda: _crafted({}),
    "arguments that are a list": lambda: _crafted(([], {}, None, None)),
    "nothing": lambda: b"",
    "text": lambda: b"text",
    "cut": lambda: _crafted((*FORM, 3))[:-1],
    "a changed class": lambda: b"cthunder_core.ir.trace\nTrace\n(N}S'python'\nI1\nstb.",
}


@pytest.mark.parametrize("name", ENTRIES)
def test_entries_that_are_not_forms_are_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (folder.parent / "marked_by_a_table.py").write_text("import os\nos.environ['CODE_RAN'] = 'imported'\n")
    monkeypatch.syspath_prepend(folder.parent)
    (op,) = ops_of(lambda x: x.softmax(0), torch.randn(3))
    expected = disk_tables.lowered_form(op, PLAIN)
    save_tables()
    cache = ArtifactCache(folder)
    key = f"core-ATen forms 4\n{disk_tables.software()}"
    entries = json.loads(cache.get(key) or b"")
    crafted = base64.b64encode(ENTRIES[name]()).decode()
    assert cache.put(key, json.dumps(dict.fromkeys(entries, crafted)).encode()) is None
    forget(monkeypatch)
    traced = count_traced(monkeypatch)
    assert repr(disk_tables.lowered_form(op, PLAIN)) == repr(expected)
    assert traced == ["torch.softmax"]
    assert "CODE_RAN" not in os.environ
    save_tables()
    forget(monkeypatch)
    assert repr(disk_tables.lowered_form(op, PLAIN)) == repr(expected)
    assert traced == ["torch.softmax"]  # the entry is good again


PROGRAM = """
import sys
import torch
import thunder
from thunder_core.autodiff.derivatives import derive
from thunder_core.executors.disk_tables import disk_table
from thunder_core.tracing import lowering
from thunder_testing.pointwise import Pointwise

traced = []
trace = lowering._lowered
lowering._lowered = lambda bound, context: traced.append(bound.symbol.name) or trace(bound, context)
for way in ("derive_by_rule", "derive_by_autograd"):
    own = getattr(derive, way)
    setattr(derive, way, lambda query, own=own: traced.append("d" + query.bound.symbol.name) or own(query))
softplus = torch.nn.functional.softplus
program = thunder.jit(lambda x: softplus(x @ x) * softplus(x) * int(sys.argv[1]), executors=[Pointwise()])
x = torch.randn(3, 3, requires_grad=True)
expected = softplus(x @ x) * softplus(x) * int(sys.argv[1])
torch.testing.assert_close(program(x), expected)
gradients = [torch.autograd.grad(result.sum(), x)[0] for result in (program(x), expected)]
torch.testing.assert_close(*gradients)
traced += [name for name in sys.modules if name == "scipy.sparse"]
assert thunder.explain(program).entries[0].regions.notes == (), thunder.explain(program).entries[0].regions.notes
print(*traced)
"""


def start(folder: Path, number: int) -> ForkedProgram:
    environment = {**os.environ, "THUNDER_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    return start_forked(PROGRAM, str(number), environment=environment, directory=ROOT)


def ends(*programs: ForkedProgram) -> list[list[str]]:
    ended = [one.wait() for one in programs]
    assert [one.returncode for one in ended] == [0] * len(ended), [one.stderr for one in ended]
    return [one.stdout.split() for one in ended]


@pytest.mark.slow
def test_other_processes_trace_nothing(folder: Path) -> None:
    """Each process checks again which parts are fused; derivatives and partitions come from the disk."""
    first, second = ends(start(folder, 1), start(folder, 2))  # at the same time; either may find what the other kept
    assert {"torch.matmul", "dtorch.nn.functional.softplus", "scipy.sparse"} <= {*first, *second}
    # A product with another number is derived anew: it has no rule, so autograd derives it.
    assert ends(start(folder, 3)) == [["dtorch.mul", "dtorch.mul"]]
