"""``thunder explain``: its output, and its errors for programs that it cannot run."""

import json

import pytest

from thunder.report.summary import SECTIONS
from thunder_core.passes import dead_code

pytestmark = pytest.mark.usefixtures("core_only")


@pytest.fixture
def write(tmp_path):
    """Writes ``other.py``, with torch imported."""

    def write(text: str) -> str:
        (tmp_path / "other.py").write_text(f"import torch\n{text}\n")
        return "other.py"

    return write


def _rows(text):
    """The cells of the operations that are shown."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("COUNT"))
    return [line.split() for line in lines[start + 1 : lines.index("", start)]]


def test_operations_with_count_executor_and_place(command, program):
    ended = command("explain", "program.py:model", "--decisions")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("program.py:model: compiled in ")
    assert _rows(ended.out) == [
        ["4", "inference", "torch.nn.functional.linear", "reference", "program.py:14", "(first)", "-"],
        ["2", "inference", "torch.nn.functional.silu", "reference", "program.py:14", "-"],
    ]
    assert ended.out.splitlines()[-1].split() == ["reference", "6", "100%", "100%", "100%"]


def test_places_are_short_and_none_of_ours(command, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "helper.py").write_text("def double(x): return x + x\n")
    (tmp_path / "program.py").write_text(
        "import sys\nimport torch\nsys.path.insert(0, 'src')\n"
        "from helper import double\nmodel = torch.nn.Sequential(torch.nn.ReLU())\ninputs = torch.ones(2)\n"
    )
    assert [row[4] for row in _rows(command("explain", "program.py:model", "--decisions").out)] == ["0"]
    assert [row[4] for row in _rows(command("explain", "program.py:double", "--decisions").out)] == ["src/helper.py:1"]


def test_place_in_a_library_is_told_from_where_python_found_it(command, install, tmp_path):
    install("library", "def double(x): return x + x\n")
    (tmp_path / "program.py").write_text("import torch\nfrom library import double\ninputs = torch.ones(2)\n")
    assert [row[4] for row in _rows(command("explain", "program.py:double", "--decisions").out)] == ["library.py:1"]


def test_equal_functions_of_two_files_have_places_of_their_own(command, tmp_path):
    for name in ("one", "other"):
        (tmp_path / f"{name}.py").write_text("def double(x): return x + x\n")
    (tmp_path / "program.py").write_text(
        "import torch\nimport one, other\ndef f(x): return one.double(x) * other.double(-x)\ninputs = torch.ones(2)\n"
    )
    report = json.loads(command("explain", "program.py:f", "--json").out)["report"]
    places = [line["location"].partition(" in ")[0] for line in report["entries"][0]["decisions"]]
    assert places == [f"{tmp_path}/{place}" for place in ("one.py:1", "program.py:3", "other.py:1", "program.py:3")]


def test_json(command, program):
    ended = command("explain", "program.py:model", "--json")
    found = json.loads(ended.out)
    assert found["program"] == "program.py:model"
    assert [(row["symbol"], row["lines"], row["executor"]) for row in found["operations"]] == [
        ("torch.nn.functional.linear", 4, "reference"),
        ("torch.nn.functional.silu", 2, "reference"),
    ]
    assert found["shares"] == [{"executor": "reference", "lines": 6, "bytes": 1.0, "flops": 1.0}]
    assert len(found["report"]["entries"][0]["decisions"]) == 6


def test_training_shows_forward_and_backward(command, program):
    ended = command("explain", "program.py:model", "--train", "--decisions", "--training")
    assert ended.code == 0
    assert {row[1] for row in _rows(ended.out)} == {"forward", "backward"}
    assert "saves" in ended.out.splitlines()[-2]


@pytest.mark.slow
def test_summary_and_sections(command, program):
    ended = command("explain", "program.py:model", "--train")
    lines = ended.out.splitlines()
    assert lines[0].startswith("program.py:model: 1 program; ")
    assert len(lines) <= 20
    assert any(line.startswith("saved for backward") for line in lines)
    for name in SECTIONS:
        found = command("explain", "program.py:model", f"--{name}")
        assert (found.code, found.err) == (0, ""), name
        assert found.out.strip(), name
    assert command("explain", "program.py:model", "--guards", "--stages").out.index("guards") > 20


def test_shares_are_those_of_the_operations_by_name(command, program):
    found = json.loads(command("explain", "program.py:model", "--op", "silu", "--json").out)
    assert [(share["executor"], share["lines"]) for share in found["shares"]] == [("reference", 2)]


def test_training_needs_a_gradient(command, write):
    ended = command("explain", f"{write('def f(x): return x > 0')}:f", "--inputs", "torch.ones(2)", "--train")
    assert (ended.code, ended.out) == (1, "")
    assert "no output of the program requires grad" in ended.err
    assert "Traceback" not in ended.err


def test_training_through_outputs_of_any_kind(command, write):
    name = write("def f(x): return {'a': torch.view_as_complex(x), 'b': [x.half().sum(), x.argmax(), 3]}")
    inputs = "torch.ones(3, 2, requires_grad=True)"
    ended = command("explain", f"{name}:f", "--inputs", inputs, "--train", "--op", "argmax")
    assert ended.code == 0, ended.err
    assert [row[1:3] for row in _rows(ended.out)] == [["forward", "torch.argmax"]]


@pytest.mark.parametrize("pattern", ["silu", "*.silu", "torch.nn.functional.silu", "*ilu"])
def test_operations_by_name(command, program, pattern):
    assert [row[2] for row in _rows(command("explain", "program.py:model", "--op", pattern).out)] == [
        "torch.nn.functional.silu"
    ]


@pytest.mark.parametrize("json", [[], ["--json"]], ids=["text", "json"])
def test_operation_that_is_not_there(command, program, json):
    ended = command("explain", "program.py:model", "--op", "gelu", *json)
    assert (ended.code, ended.out) == (1, "")
    assert "the program has no operation that matches 'gelu'" in ended.err
    assert "torch.nn.functional.silu" in ended.err


def test_configuration_with_problems(command, program, tmp_path):
    (tmp_path / "bad.yaml").write_text("recompute: none\ncach: same input\n")
    ended = command("explain", "program.py:model", "--config", "bad.yaml")
    assert (ended.code, ended.out) == (1, "")
    assert "bad.yaml:2: cach: unknown option; did you mean 'cache'?" in ended.err
    assert "Traceback" not in ended.err


def test_configuration_and_names_are_used(command, program, tmp_path, monkeypatch):
    monkeypatch.setenv("THUNDER_PLUGINS", "core,simplify")
    (tmp_path / "good.yaml").write_text("transforms: [{common_subexpression: {enabled: false}}]\ncache: same input\n")
    ended = command("explain", "program.py:model", "--config", "good.yaml", "--executors", "reference", "--json")
    report = json.loads(ended.out)["report"]
    assert report["options"]["cache"] == "same input"
    stages = [stage["name"] for stage in report["entries"][0]["stages"]]
    assert "constant_folding" in stages
    assert "common_subexpression" not in stages


def test_optional_executor_that_is_left_out_is_told(command, program, tmp_path):
    (tmp_path / "good.yaml").write_text("executors: [{absent: {optional: true}}]\n")
    ended = command("explain", "program.py:model", "--config", "good.yaml")
    assert ended.code == 0
    assert ended.out.splitlines()[2].startswith("left out: absent, because ")


def test_calls_in_the_file_need_no_inputs(command, write):
    made = "import thunder\nf = thunder.jit(torch.sin)"
    called = f"{made}\nf(torch.ones(2, requires_grad=True)).sum().backward()"
    ended = command("explain", f"{write(called)}:f")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("other.py:f: 1 program; 0 calls from the cache, 1 compiled")
    assert "backward" in ended.out
    with_inputs = command("explain", f"{write(called + chr(10) + 'inputs = torch.ones(3)')}:f")
    assert with_inputs.out.startswith("other.py:f: 2 programs; 0 calls from the cache, 2 compiled")
    for refused in (command("explain", f"{write(made)}:f"), command("explain", f"{write(called)}:f", "--train")):
        assert refused.code == 2
        assert "how to call it" in refused.err


def test_compiled_program_keeps_its_options_unless_others_are_given(command, write):
    name = write("import thunder\nf = thunder.jit(torch.relu, cache='same input')\ninputs = torch.ones(2)")
    kept, replaced = (
        json.loads(command("explain", f"{name}:f", "--json", *more).out)["report"]["options"]
        for more in ([], ["--executors", "reference"])
    )
    assert kept["cache"] == "same input"
    assert replaced.get("cache", "constant values") == "constant values"


@pytest.mark.parametrize("option", ["--executors", "--transforms"])
def test_name_that_nothing_has(command, program, option):
    ended = command("explain", "program.py:model", option, "reference,absent" if "ex" in option else "absent")
    assert (ended.code, ended.out) == (1, "")
    assert "absent" in ended.err
    assert "Traceback" not in ended.err


def test_program_that_fails_shows_its_own_ops(command, program):
    ended = command("explain", "program.py:model", "--inputs", "torch.ones(2, 5)")
    assert (ended.code, ended.out) == (1, "")
    assert "return " not in ended.err.splitlines()[1]
    assert "program.py" in ended.err.splitlines()[1]
    assert "thunder_core" not in ended.err
    assert "mat1 and mat2 shapes cannot be multiplied" in ended.err
    assert ended.err.endswith("program.py:model failed\n")


def test_program_that_cannot_be_compiled(command, write):
    name = write("def f(x):\n    return x.map_(x, max)")
    ended = command("explain", f"{name}:f", "--inputs", "torch.ones(2)")
    assert (ended.code, ended.out) == (1, "")
    assert "other.py:3" in ended.err
    assert "What to do:" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.slow
def test_program_that_eager_pytorch_runs(shell, tmp_path):
    (tmp_path / "other.py").write_text(
        "import torch\n"
        "from torch.overrides import TorchFunctionMode\n"
        "class Mode(TorchFunctionMode):\n"
        "    def __torch_function__(self, function, types, args=(), kwargs=None):\n"
        "        return function(*args, **kwargs or {})\n"
        "Mode().__enter__()\n"
        "def f(x): return x + 1\n"
    )
    ended = shell("explain", "other.py:f", "--inputs", "torch.ones(2)")
    assert (ended.code, ended.out) == (1, "")
    assert "other.py:f was not compiled; eager PyTorch ran it, because a torch function mode is active" in ended.err
    assert "Traceback" not in ended.err


def test_error_of_the_compiler_shows_its_ops(command, program, monkeypatch):
    """They are what a report of the bug needs."""

    monkeypatch.setattr(dead_code, "_Live", None)
    ended = command("explain", "program.py:model")
    assert (ended.code, ended.out) == (1, "")
    assert "pass_manager.py" in ended.err
    assert ended.err.endswith("TypeError: 'NoneType' object is not callable\nprogram.py:model failed\n")


def test_error_of_the_compiled_program(command, write):
    name = write("def f(x):\n    return torch.embedding(torch.ones(3, 4), x)")
    ended = command("explain", f"{name}:f", "--inputs", "torch.tensor([7])")
    assert (ended.code, ended.out) == (1, "")
    assert "torch.embedding" in ended.err
    assert "thunder_core" not in ended.err


def test_causes_of_an_error_are_shown(command, write):
    name = write(
        "def f(x):\n    try:\n        x.absent\n    except AttributeError as error:\n        raise KeyError from error"
    )
    ended = command("explain", f"{name}:f", "--inputs", "torch.ones(2)")
    assert ended.err.count("other.py") == 3
    assert "thunder_core" not in ended.err


@pytest.mark.parametrize("name", ["absent.yaml", "./absent.yml"])
def test_configuration_that_is_not_there(command, program, name):
    ended = command("explain", "program.py:model", "--config", name)
    assert (ended.code, ended.out) == (2, "")
    assert "Invalid value for --config: " in ended.err
    assert "file not found" in ended.err


@pytest.mark.parametrize("text", ["raise OSError('no data')", "import sys; sys.exit(0)", "1 +"])
def test_file_that_cannot_be_imported(command, write, text):
    ended = command("explain", f"{write(text)}:f")
    assert (ended.code, ended.out) == (1, "")
    assert "command_line" not in ended.err
    assert "other.py:f failed" in ended.err


def test_what_the_program_prints_is_not_in_the_output(command, write):
    name = write("print('importing')\ndef f(x):\n    print('running')\n    return x + 1")
    ended = command("explain", f"{name}:f", "--inputs", "torch.ones(2)", "--json")
    symbols = [row["symbol"] for row in json.loads(ended.out)["operations"]]
    assert symbols == ["thunder_core.symbols.printing.print_values", "torch.add"]
    assert ended.err.startswith("importing\nrunning\n")
    assert ended.err.count("running") == 1
