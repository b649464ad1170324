"""Regions that one process compiled, in another one; several regions compiled together."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder_core.executors.artifacts import ArtifactCache
from thunder_fusion import compiled_regions
from thunder_plugin_inductor import compilers
from thunder_plugin_inductor.executor import InductorExecutor
from thunder_plugin_inductor.options import InductorOptions
from thunder_testing.forked import run_forked

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
pytestmark = pytest.mark.skipif(
    compilers.missing_compiler("cpu") is not None, reason=str(compilers.missing_compiler("cpu"))
)

PROGRAM = """
import json, sys
import torch
from torch import nn
import thunder
from thunder_plugin_inductor.executor import InductorExecutor

layers, device = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(0)
kinds = (nn.LayerNorm, nn.BatchNorm1d)  # in training, the second writes its statistics
model = nn.Sequential(*[nn.Sequential(*[kind(8) for kind in kinds], nn.Linear(8, 8), nn.GELU()) for _ in range(layers)])
model.to(device)
for layer in model:
    layer[1].num_batches_tracked = None  # the counters of all layers would be one region
x = torch.randn(3, 8, device=device)
table = torch.tensor([0.5, 2.0], device=device)
executor = InductorExecutor()
compiled = thunder.jit(lambda x: model(x) * table.repeat(4) + 1, executors=[executor])
early = [name for name in ("torch._dynamo", "torch._inductor", "sympy", "triton") if name in sys.modules]
assert not early, early
parameters = [*model.parameters()]
expected = model(x) * table.repeat(4) + 1
of_expected = torch.autograd.grad(expected.sin().sum(), parameters)
actual = compiled(x)
torch.testing.assert_close(actual, expected)
torch.testing.assert_close(torch.autograd.grad(actual.sin().sum(), parameters), of_expected, rtol=1e-4, atol=1e-4)
entry = thunder.explain(compiled).entries[0]
report = entry.regions
assert "inductor" in entry.executors, entry.decisions
names = ("compile_fx", "lowering", "decomposition", "graph", "scheduler")
loaded = [name for name in names if f"torch._inductor.{name}" in sys.modules]
print(json.dumps([report.regions, report.compiled, report.read, list(report.notes), loaded]))
"""


def run(folder: Path, layers: int, device: str) -> list[Any]:
    """Numbers of regions, of those compiled and of those read; notes; what of Inductor's compiler was imported."""
    environment = {**os.environ, "THUNDER_CACHE_DIR": str(folder / "thunder"), "OMP_NUM_THREADS": "1"}
    if folder.joinpath("thunder").exists():
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")  # nothing is found there
    done = run_forked(PROGRAM, str(layers), device, environment=environment, preloaded=["torch"])
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.one_version
@pytest.mark.parametrize("device", DEVICES)
def test_other_processes_compile_nothing(tmp_path: Path, device: str) -> None:
    regions, compiled, read, notes, loaded = run(tmp_path, 3, device)
    assert (regions > compiled > 1, read, notes, len(loaded)) == (True, 0, [], 5)
    more, *rest = run(tmp_path, 4, device)
    assert more > regions
    assert rest == [0, compiled, [], []]  # and what compiles, or knows what can be compiled, is not even imported


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def report(executor: InductorExecutor, function: Any, *inputs: torch.Tensor) -> Any:
    compiled_regions._cache.clear()
    compiled = thunder.jit(function, executors=[executor])
    actual, expected = compiled(*inputs), function(*inputs)
    torch.testing.assert_close(actual, expected)
    leaves = [torch.utils._pytree.tree_leaves(value) for value in (actual, expected)]
    assert [value.stride() for value in leaves[0]] == [value.stride() for value in leaves[1]]
    return thunder.explain(compiled)


CASES: dict[str, Any] = {
    "several kernels": lambda x: (x.softmax(0) * 2, x.softmax(1).t() + 1),
    "transposed": lambda x: (x.t() * 2 + 1, (x.t() * 2).sum(0)),
    "constant": lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0]) + x.exp(),
    "gather": lambda x: (x * 2)[torch.tensor([2, 0])] + 1,
    "copies": lambda x: torch.cat([x * 2, x + 1]).flip(0) * 3,
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_loaded_regions_are_the_same(folder: Path, name: str) -> None:
    x = torch.randn(4, 4)
    first = report(InductorExecutor(), CASES[name], x).entries[0].regions
    again = report(InductorExecutor(), CASES[name], x).entries[0].regions
    assert (first.read, again.compiled, again.read, again.notes) == (0, 0, first.compiled, ())


def test_other_options_are_other_artifacts(folder: Path) -> None:
    x = torch.randn(4, 4)
    first = report(InductorExecutor(), CASES["transposed"], x).entries[0].regions
    other = InductorExecutor(InductorOptions(inductor_config={"epilogue_fusion": False}))
    found = report(other, CASES["transposed"], x).entries[0].regions
    assert (found.compiled, found.read) == (first.compiled, 0)
    assert first.compiled


class _Runs:
    """An object whose unpickling runs code."""

    def __reduce__(self) -> Any:
        return exec, ("import os; os.environ['CODE_RAN'] = 'yes'",)


def _with(**fields: Any) -> Any:
    return lambda content: json.dumps({**json.loads(content), **fields}).encode()


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode()


def _saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


# Contents of files that are sealed, and what they are recognized by.
CRAFTED: dict[str, tuple[Any, str]] = {
    "a pickled list": (lambda content: pickle.dumps(["another thing"]), "Invalid JSON"),
    "a pickle with code": (lambda content: pickle.dumps(_Runs()), "Invalid JSON"),
    "nothing": (lambda content: b"", "Invalid JSON"),
    "deep": (lambda content: b"[" * 100_000, "Invalid JSON"),
    "no source": (_with(source=None), "source"),
    "another field": (_with(more=1), "more"),
    "numbers as text": (_with(checked=["1"]), "checked"),
    "launchers with code": (_with(launchers=[_text(pickle.dumps([_Runs()]))]), "builtins.exec"),
    "launchers that are none": (_with(launchers=[_text(pickle.dumps({}))]), "not a list of launchers"),
    "constants with code": (_with(constants=_text(_saved({"c": _Runs()}))), "weights_only|Weights only"),
    "constants that are none": (_with(constants=_text(b"PK")), ""),
    "files outside of the cache": (_with(kernels=[["../../kernel", 0, {"a.json": ""}]]), "not the name of a file"),
    "a file outside of its folder": (_with(kernels=[["kernel", 0, {"../a.json": ""}]]), "not the name of a file"),
    "a source without a function": (_with(source="x = 1"), "KeyError"),
}


@pytest.mark.parametrize("name", CRAFTED)
@pytest.mark.slow
def test_a_file_that_is_no_region(folder: Path, name: str) -> None:
    change, reason = CRAFTED[name]
    function = CASES["transposed"]
    first = report(InductorExecutor(), function, torch.randn(4, 4)).entries[0].regions
    cache = ArtifactCache(folder)
    sealed = len(b"thunder artifact 1\n") + 32
    contents = {}
    for path, _ in cache.files():
        contents[path] = content = path.read_bytes()
        if b'"source"' in content:
            data = change(content[sealed:])
            path.write_bytes(content[: sealed - 32] + hashlib.sha256(data).digest() + data)
    found = report(InductorExecutor(), function, torch.randn(4, 4)).entries[0].regions
    assert (found.compiled, found.read) == (first.compiled, 0)
    assert found.notes
    for note in found.notes:
        assert note.startswith("an artifact on disk was recompiled: inductor cannot load it: ")
        assert re.search(reason, note)
    assert "CODE_RAN" not in os.environ
    again = report(InductorExecutor(), function, torch.randn(4, 4)).entries[0].regions
    assert (again.compiled, again.read, again.notes) == (0, first.compiled, ())


def test_kernels_and_launchers_of_triton() -> None:
    from torch.utils._ordered_set import OrderedSet

    from thunder_plugin_inductor import artifacts
    from thunder_plugin_inductor.pytorch_internals import TritonKernelArtifact, TritonKernelArtifacts

    kernel = TritonKernelArtifacts("ABC", 1, [TritonKernelArtifact("__grp__a.json", bytes(range(256)))])
    launchers = [[], [OrderedSet([1, 2])], [os.system], [functools.partial(print)]]
    stored = artifacts._Stored(
        source="",
        libraries=((bytes(range(256)), "kernel"),),
        kernels=(artifacts._kernel_files(kernel),),
        launchers=tuple([artifacts._launchers(some) for some in launchers]),
        constants=b"",
        checked=(1, 2),
    )
    again = artifacts._Stored.model_validate_json(stored.model_dump_json())
    assert again == stored
    assert artifacts._as_artifact(again.kernels[0]) == kernel
    assert [artifacts._read_launchers(some) for some in again.launchers] == [[], [OrderedSet([1, 2])], [], []]


@pytest.mark.one_version
@pytest.mark.slow
def test_one_refused_region_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are compiled all the same, and each reason is its own."""
    from thunder_plugin_inductor import compilation

    compile_fx_inner = compilation.compile_fx_inner

    def refuse(graph: Any, inputs: Any) -> Any:
        if graph.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default):
            raise NotImplementedError("no sines today")
        return compile_fx_inner(graph, inputs)

    monkeypatch.setattr(compilation, "compile_fx_inner", refuse)
    x = torch.rand(4, 4) / 2  # small: the sine of a large sum differs between orders of summation
    function = lambda x: ((((x.exp() * 3) @ x).sin() + 1) @ x).cos() * 2  # noqa: E731
    decisions = report(InductorExecutor(), function, x).decisions
    by_symbol = {line.symbol: line for line in decisions}
    assert by_symbol["torch.exp"].executor == by_symbol["torch.cos"].executor == "inductor"
    reason = "Inductor rejects its region: NotImplementedError: no sines today"
    assert by_symbol["torch.sin"].declined == (("inductor", reason),)


def test_a_kernel_that_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    from thunder_plugin_inductor.kernels import Kernels

    def fail(self: Kernels) -> None:
        raise RuntimeError("the compiler crashed")

    monkeypatch.setattr(Kernels, "wait", fail)
    (first, *_) = report(InductorExecutor(), lambda x: x.exp() * 3 + 11, torch.randn(3)).decisions
    assert first.declined == (("inductor", "Inductor rejects its region: RuntimeError: the compiler crashed"),)


@pytest.mark.one_version
@pytest.mark.slow
def test_together_as_one_by_one() -> None:
    model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU())
    x = torch.randn(3, 8)

    class OneByOne(InductorExecutor):
        def fuse_all(self, regions: Any) -> Any:
            return [super(OneByOne, self).fuse_all([region])[0] for region in regions]

    found = []
    for executor in (InductorExecutor(), OneByOne(InductorOptions())):
        compiled_regions._cache.clear()
        output = thunder.jit(model, executors=[executor])(x)
        found.append([output, *torch.autograd.grad(output.square().sum(), [*model.parameters()])])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


class _Pass:
    """A pass of the user; with ``uuid`` as Inductor's custom passes have it."""

    def __init__(self, name: str | None) -> None:
        if name is not None:
            self.uuid = lambda: name


def test_settings_are_part_of_keys() -> None:
    from torch._inductor import config

    from thunder_plugin_inductor.settings import settings_text

    plain = settings_text()
    for changes, same in (
        ({"compile_threads": 7, "trace.enabled": True}, True),
        ({"epilogue_fusion": not config.epilogue_fusion}, False),
        ({"post_grad_custom_pre_pass": _Pass("a")}, False),
    ):
        with config.patch(changes):
            assert (settings_text() == plain) == same, changes
    keys = []
    for name in ("a", "a", "b", None, None):
        with config.patch({"post_grad_custom_pre_pass": _Pass(name)}):
            keys.append(settings_text())
    assert keys[0] == keys[1] != keys[2]
    assert keys[3] not in keys[:3]
