"""Files of programs: damaged, foreign and changed ones are refused, nothing of theirs runs, and loading is light."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder.command_line.main import main
from thunder_core.errors import SavedProgramError, ThunderError, TraceSyntaxError
from thunder_testing.forked import run_forked

X = torch.randn(3, 4)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("saved") / "model.thunder"
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    thunder.save(thunder.jit(model), path, example=(X,))
    return path


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def rewritten(saved: Path, path: Path, change: Callable[[dict[str, bytes]], None], *, hashes: bool = True) -> Path:
    """The file with other members, and valid hashes, as someone else may write it."""
    members = contents(saved)
    change(members)
    if hashes:
        lines = [
            f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in members.items() if name != "hashes.txt"
        ]
        members["hashes.txt"] = "".join(lines).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def replaced(member: str, old: str, new: str) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        text = members[member].decode()
        assert old in text
        members[member] = text.replace(old, new, 1).encode()

    return change


def changed_manifest(change: Callable[[Any], None]) -> Callable[[dict[str, bytes]], None]:
    def apply(members: dict[str, bytes]) -> None:
        manifest = json.loads(members["manifest.json"])
        change(manifest)
        members["manifest.json"] = json.dumps(manifest).encode()

    return apply


def test_content_is_text_and_tensors(saved: Path) -> None:
    members = contents(saved)
    names = {"manifest.json", "state.safetensors", "hashes.txt", "programs/0/forward.py", "programs/0/backward.py"}
    assert members.keys() == names | {"programs/0/run.py"}
    assert "def forward(" in members["programs/0/forward.py"].decode()
    assert "in test_program_files.py" not in members["programs/0/forward.py"].decode()


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_damaged_and_truncated_files(part: float, saved: Path, tmp_path: Path) -> None:
    data = bytearray(saved.read_bytes())
    position = int(len(data) * part)
    (tmp_path / "cut").write_bytes(data[:position])
    with pytest.raises(SavedProgramError, match=r"is damaged, or is no file that"):
        thunder.load(tmp_path / "cut")
    for name, data_of in contents(saved).items():
        start = bytes(data).index(data_of) + int(len(data_of) * part)
        damaged = data.copy()
        damaged[start] ^= 0x10
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(SavedProgramError, match=r"damaged"):
            thunder.load(tmp_path / "damaged")
        assert name in contents(saved)


def test_foreign_files(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no archive")
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "weights")
    for name, advice in (
        ("text", "save the programs again"),
        ("weights", "read a checkpoint of torch.save with torch.load"),
    ):
        with pytest.raises(SavedProgramError, match=rf"(?s)no file that thunder.save wrote.*{advice}"):
            thunder.load(tmp_path / name)
    with pytest.raises(OSError, match=r"No such file"):
        thunder.load(tmp_path / "missing")
    added = rewritten(saved, tmp_path / "added", lambda members: members.update({"../x.py": b""}))
    with pytest.raises(SavedProgramError, match=r"has the member '../x.py'"):
        thunder.load(added)
    other = rewritten(saved, tmp_path / "hash", replaced("programs/0/run.py", "values[0]", "values[1]"), hashes=False)
    with pytest.raises(SavedProgramError, match=r"programs/0/run.py does not have its hash"):
        thunder.load(other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(format="thunder programs 99"), "'thunder programs 99', and this version .* 'thunder progr"),
        (lambda m: m["environment"].update(torch="1.0"), r"it needs torch 1\.0, and here is " + torch.__version__[:3]),
        (lambda m: m["environment"].update({"thunder-plugin-none": "3"}), "thunder-plugin-none 3, and here is none"),
        (lambda m: m["state"][0].update(device="cuda:77"), "program for cuda:77, and this machine has"),
        (lambda m: m["state"][0].update(dtype="torch.float3"), "tensors of torch.float3, which PyTorch .* lacks"),
        (lambda m: m["state"][0].update(shape=[2, 8]), r"0.weight is torch.float32 \(4, 4\), and not"),
        (lambda m: m["state"].pop(), "the state has no 0.bias"),
        (lambda m: m["programs"][0].pop("guards"), "was changed"),
        (lambda m: m["programs"][0]["inputs"][0].update(name="x, y"), "is not the name of an input"),
        (lambda m: m["programs"][0]["inputs"][0].update(path=[["args", 0, "x"], ["attribute", "__x"]]), "access path"),
        (lambda m: m["programs"][0]["guards"]["modes"].pop("grad_enabled"), "other modes"),
    ],
    ids=["format", "torch", "plugin", "device", "dtype", "shape", "state", "guards", "input", "path", "modes"],
)
def test_other_versions_devices_and_structures(
    change: Callable[[Any], None], message: str, saved: Path, tmp_path: Path
) -> None:
    with pytest.raises(SavedProgramError, match=message):
        thunder.load(rewritten(saved, tmp_path / "changed", changed_manifest(change)))


FORWARD, RUN = "programs/0/forward.py", "programs/0/run.py"


@pytest.mark.parametrize(
    ("member", "old", "new"),
    [
        (FORWARD, "torch.relu(", "torch.load("),
        (FORWARD, "torch.relu(", "os.system("),
        (FORWARD, "torch.relu(", "torch.os.system("),
        (FORWARD, "torch.relu(", "__import__("),
        (FORWARD, "torch.relu(", "torch.ops.load_library("),
        (FORWARD, "torch.relu(", "marked.function("),
        (FORWARD, "torch.relu(t", "t0.__class__(t"),
        (FORWARD, "torch.relu(t", "t0.apply_(t"),
        (FORWARD, "    return", "    import os\n    return"),
        (FORWARD, "    return", "    exec('x')\n    return"),
        (FORWARD, "    return", "    x = lambda: 0\n    return"),
        (FORWARD, "    return", "    x = [y for y in (1,)]\n    return"),
        (FORWARD, "    return", "    torch.relu = 1\n    return"),
        (FORWARD, "import torch", "import torch\nmarked.function()"),
        (FORWARD, "def forward(", "@marked.function\ndef forward("),
        (FORWARD, "def forward(", "def forward(y: marked.function(), "),
        (RUN, "values = ", "marked.Class(1)\n    values = "),
        (RUN, "values = ", "marked.Data(1)\n    values = "),
        (RUN, "values = ", "x = args[0].__class__\n    values = "),
        (RUN, "values = ", "x = args[0].f()\n    values = "),
        (RUN, "values = ", "object.__subclasses__()\n    values = "),
        (RUN, "def run(", "def computation(x):\n    return x\ndef run("),
    ],
    ids=str,
)
def test_changed_programs(
    member: str, old: str, new: str, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of valid hashes that names other code is refused with its line, and nothing runs."""
    ran: list[Any] = []

    @dataclasses.dataclass
    class Data:
        x: int

        def __post_init__(self) -> None:
            ran.append(self.x)

    marked = types.ModuleType("marked")
    Data.__module__, Data.__qualname__ = "marked", "Data"
    vars(marked).update(function=lambda *_: ran.append(1), Class=type("Class", (), {"__init__": ran.append}), Data=Data)
    monkeypatch.setitem(sys.modules, "marked", marked)
    path = rewritten(saved, tmp_path / "changed", replaced(member, old, new))
    if "y: marked" in new:  # annotations are not evaluated
        with pytest.raises(TypeError):
            thunder.load(path)(X)
    else:
        with pytest.raises(TraceSyntaxError, match=rf"changed/{member}:\d+: "):
            thunder.load(path)
    assert ran == []


@pytest.mark.parametrize(
    "text", ["__import__('os')", "().__class__", "(lambda: 0)()", "torch.load('x')", "open('x')", "s0.__class__"]
)
def test_changed_conditions(text: str, tmp_path: Path) -> None:
    path = tmp_path / "model.thunder"
    thunder.save(thunder.jit(lambda x: x.reshape(-1) * 2, dynamic=True), path, example=(X,))

    def change(manifest: Any) -> None:
        manifest["programs"][0]["guards"]["sizes"]["facts"].append(text)

    with pytest.raises(TraceSyntaxError, match=r"is not a condition on sizes and numbers"):
        thunder.load(rewritten(path, tmp_path / "changed", changed_manifest(change)))

    def expected(manifest: Any) -> None:
        manifest["programs"][0]["guards"]["checks"].append(
            {"path": [["args", 0, "x"]], "condition": "value", "expected": text}
        )

    with pytest.raises(TraceSyntaxError, match=r"is not a literal"):
        thunder.load(rewritten(path, tmp_path / "changed", changed_manifest(expected)))


LIGHT = """
import sys
import torch
import thunder
loaded = thunder.load(sys.argv[1])
x = torch.ones(3, 4)
loaded(x).sum().backward()
with torch.no_grad():
    try:
        loaded(x)
    except thunder.SavedProgramError:
        print("refused")
heavy = ("torch._dynamo", "torch._inductor", "torch.fx.experimental.symbolic_shapes", "sympy", "thunder_frontend",
         "thunder_core.autodiff", "thunder_core.runtime.compile", "thunder_core.runtime.pipeline",
         "thunder_core.passes.functionalize", "thunder_core.executors", "thunder_core.plugins", "thunder.compiled")
print([name for name in heavy if name in sys.modules])
print(loaded.get_parameter("0.weight").grad is not None)
"""


def test_loading_imports_no_compiler(saved: Path) -> None:
    done = run_forked(LIGHT, str(saved), path=[Path(thunder.__file__).parents[1]], preloaded=("torch",))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["refused", "[]", "True"]


def test_the_command(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(saved)]) == 0
    text = capsys.readouterr().out
    for line in (
        "1 program of Sequential",
        "state: 2 parameters, 20 elements; on cpu",
        "program 0: training, 2 operations",
        "assumptions, which calls do not check:",
        "Linear.forward: function",
        "shape (3, 4)",
    ):
        assert line in text
    assert main(["show", "--source", str(saved)]) == 0
    assert "torch.relu(" in capsys.readouterr().out
    assert main(["show", "--json", str(saved)]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "Sequential"
    (tmp_path / "cut").write_bytes(saved.read_bytes()[:-100])
    assert main(["show", str(tmp_path / "cut")]) == 1
    assert "What to do" in capsys.readouterr().err
    assert main(["show", str(tmp_path / "missing")]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_an_interrupted_save_keeps_the_file(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.thunder"
    path.write_bytes(saved.read_bytes())

    def function(x: torch.Tensor, seen: list[Any]) -> torch.Tensor:
        seen.append(x * 2)
        return x

    with pytest.raises(ThunderError, match=r"Python object"):
        thunder.save(thunder.jit(function), path, example=(X, []))
    assert path.read_bytes() == saved.read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == ["model.thunder"]
