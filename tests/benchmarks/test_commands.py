"""The commands, with tiny models; all in this process, because starting others takes long."""

import importlib.util
import json
from pathlib import Path

import litgpt  # noqa: F401  # as a whole, before the benchmarks would take two files of it
import pytest

from benchmarks import __main__ as command_line
from benchmarks import chart, commands, comparison, selection
from benchmarks.figures import FIGURES, Figure
from benchmarks.process import ChildFailed
from benchmarks.row import Row
from tests.benchmarks.here import Here

ROOT = Path(__file__).resolve().parents[2]
TINY = ["--layers", "1", "--embedding", "32", "--heads", "2", "--vocabulary", "256"]
QUICK = ["--batch", "1", "--sequence", "8", "--steps", "2", "--noise", "1", "--device", "cpu"]
PNG = b"\x89PNG"


@pytest.fixture
def here(monkeypatch):
    """What would run in other processes runs in this one."""

    def call(function, *, threads, caches=None, **arguments):
        return function(**arguments)

    monkeypatch.setattr(selection, "in_fresh_process", call)
    monkeypatch.setattr(comparison, "FreshProcess", Here)


def _run(*arguments):
    return command_line.main([str(argument) for argument in arguments])


def _refused(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        _run(*arguments)
    assert stop.value.code == 2
    return capsys.readouterr().err


@pytest.mark.slow
def test_train_step(here, tmp_path, capsys):
    result, picture = tmp_path / "result.json", tmp_path / "chart.png"
    impl = ["--impl", "eager", "thunder[]"]
    options = ["--precision", "float32", "bf16-autocast", "--json", result, "--chart", picture]
    assert _run("train-step", "--model", "nanogpt", *TINY, *QUICK, *impl, *options) == 0
    output = capsys.readouterr().out
    assert "training nanogpt" in output
    content = json.loads(result.read_text())
    assert {"torch", "thunder"} <= set(content["versions"])
    assert content["device"]["name"] == "CPU"
    assert content["command"].startswith("python -m benchmarks")
    assert [run["implementation"] for run in content["runs"]] == ["eager", "thunder[]", "eager"] * 2
    assert [type(run["result"]["notes"]) for run in content["runs"]] == [list] * 6
    whats = [row["what"] for row in content["rows"]]
    assert whats[:2] == ["training step", "tokens or samples"]
    assert len(set(whats)) == 6
    losses = next(row for row in content["rows"] if row["what"].startswith("losses"))
    assert losses["reached"]
    assert picture.read_bytes().startswith(PNG)


@pytest.mark.slow
def test_a_loss_outside_of_the_program_is_the_same_loss(here, tmp_path):
    result = tmp_path / "result.json"
    options = ["--model", "nanogpt", *TINY, *QUICK, "--noise", "0", "--impl", "eager", "thunder[]", "--json", result]
    losses = []
    for where in ("inside", "outside"):
        assert _run("train-step", *options, "--loss", where) == 0
        runs = json.loads(result.read_text())["runs"]
        losses += [run["result"]["losses"] for run in runs]
        assert ("loss outside" in json.loads(result.read_text())["rows"][0]["group"]) == (where == "outside")
    assert losses[1:] == [pytest.approx(losses[0])] * 3


@pytest.mark.slow
def test_an_executor_that_is_not_installed_is_a_footnote(here, tmp_path, capsys):
    options = ["--model", "mlp", *QUICK, "--noise", "0", "--impl", "eager", "thunder[nowhere]"]
    assert _run("train-step", *options) == 0
    assert "thunder[nowhere] skipped: not available: executors[0]" in capsys.readouterr().out
    assert "nowhere" in _refused(capsys, "train-step", "--model", "mlp", *QUICK, "--impl", "thunder[nowhere]")


@pytest.mark.slow
def test_inference(here, tmp_path):
    result = tmp_path / "result.json"
    options = ["--impl", "eager", "thunder[]", "--json", result, "--baseline", "eager"]
    assert _run("inference", "--model", "small-llama", *TINY, *QUICK, *options) == 0
    rows = json.loads(result.read_text())["rows"]
    assert {"prefill", "next token"} <= {row["what"] for row in rows}
    assert all(row["reached"] for row in rows if row["what"].startswith("losses"))


@pytest.mark.slow
def test_models_are_one_table(here, tmp_path):
    result = tmp_path / "result.json"
    sizes = ["--model", "mlp", "resnet", "--layers", "1", "--override", "width=8"]
    assert _run("models", *sizes, *QUICK, "--impl", "eager", "thunder[]", "--json", result) == 0
    rows = json.loads(result.read_text())["rows"]
    assert [row["what"] for row in rows if row["group"] == "forward and backward"] == [
        "mlp, width 8, layers 1, batch 1, float32",
        "resnet, width 8, layers 1, batch 1, float32",
    ]


@pytest.mark.parametrize(
    ("command", "group"),
    [("overhead", "training step"), ("compile-time", "first training step, empty caches"), ("memory", "peak memory")],
)
@pytest.mark.slow
def test_figures_of_a_model(here, tmp_path, command, group):
    result = tmp_path / "result.json"
    model = ["--model", "mlp", "--layers", "1", "2", "--override", "width=8"]
    assert _run(command, *model, "--steps", 2, "--device", "cpu", "--impl", "eager", "--json", result) == 0
    rows = json.loads(result.read_text())["rows"]
    assert sum(row["group"] == group for row in rows) == 2


@pytest.mark.slow
def test_all_measures_each_figure_and_show_prints_it_again(monkeypatch, tmp_path, capsys):
    def measured(*arguments):
        return [Row(f"group {len(arguments)}", "what", "ms", {"eager": 1.0, "thunder": 2.0}, {})]

    fakes = {name: Figure(figure.help, measured, figure.implementations) for name, figure in FIGURES.items()}
    monkeypatch.setattr(commands, "FIGURES", fakes)
    result, picture = tmp_path / "result.json", tmp_path / "chart.png"
    assert _run("all", "--json", result, "--impl", "eager", "thunder") == 0
    assert len(json.loads(result.read_text())["rows"]) == len(FIGURES)
    capsys.readouterr()
    assert _run("show", result, "--chart", picture) == 0
    assert "2 ms 2.00x" in capsys.readouterr().out
    assert picture.read_bytes().startswith(PNG)


def test_a_figure_that_takes_names_gets_them(monkeypatch):
    seen = []
    figure = Figure("", lambda *arguments: seen.append(arguments), implementations=("eager",))
    figure.rows(1)
    figure.rows(1, ["thunder"])
    Figure("", lambda *arguments: seen.append(arguments)).rows(2, ["thunder"])
    assert seen == [(1, ["eager"]), (1, ["thunder"]), (2,)]


@pytest.mark.slow
def test_results_in_the_repository_are_shown(capsys):
    files = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    assert _run("show", *files) == 0
    assert "torch.compile" in capsys.readouterr().out


def test_ctrl_c_ends_without_a_traceback(here, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "compare", interrupted)
    assert _run("train-step", "--model", "mlp", *QUICK, "--impl", "eager") == 130
    assert "interrupted" in capsys.readouterr().err


def test_list_models(capsys):
    assert _run("train-step", "--list-models") == 0
    output = capsys.readouterr().out
    assert all(name in output for name in ("nanogpt", "hf:gpt2", "tiny-llama-1.1b", "Llama-3-8B"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train-step", "--model", "tiny-lama-1.1b"], "did you mean 'tiny-llama-1.1b'"),
        (["train-step", "--model", "mlp", "--impl", "egaer"], "did you mean 'eager'"),
        (["train-step", "--model", "mlp", "--override", "width"], "NAME=VALUE"),
        (["train-step", "--model", "mlp", "--override", "width="], "NAME=VALUE, not 'width='"),
        (["train-step", "--model", "mlp", "--override", "width=["], "--override takes NAME=VALUE with a value in YAML"),
        (["train-step", "--model", "mlp", "--override", "widht=8"], "--override: mlp has no setting 'widht'; did you"),
        (
            ["train-step", "--model", "mlp", "--override", "width=x"],
            "--override: the setting 'width' of mlp is a number",
        ),
        (
            ["train-step", "--model", "mlp", "--heads", "2"],
            "--heads: mlp has no setting 'heads'; it has classes, layers",
        ),
        (["inference", "--model", "small-llama", "--override", "n_layr=2"], "did you mean 'n_layer'"),
        (["inference", "--override", "bias=3"], "the setting 'bias' of Llama-2-7b-hf is true or false, not 3"),
        (["train-step", "--model", "hf:gpt2", "--override", "n_layr=2"], "did you mean 'n_layer'"),
        (["overhead", "--model", "mlp", "--layers", "1", "--override", "widht=8"], "did you mean 'width'"),
        (
            ["train-step", "--model", "mlp", "--chart", "picture.gif"],
            "--chart picture.gif: the name of the file must end",
        ),
        (["overhead", "--chart", "picture"], "must end with one of .png, .svg"),
        (["all", "--chart", "nowhere/picture.png"], "--chart nowhere/picture.png: there is no folder nowhere"),
        (["operators", "--chart", "nowhere/picture.png"], "there is no folder nowhere"),
        (["profile", "--chart", "nowhere/picture.png"], "there is no folder nowhere"),
        (["show", "nowhere.json", "--chart", "picture.gif"], "must end with one of"),
        (["train-step", "--model", "mlp", "--impl", "eager", "--baseline", "thunder"], "--baseline thunder"),
        (["overhead", "--impl", "compiel"], "did you mean 'compile'"),
        (["show", "nowhere.json"], "nowhere.json is not a result"),
        (
            ["show", ROOT / "benchmarks/results/2026-11-22-d738d7d-h200-lists.json", "--baseline", "egaer"],
            "egaer is in none",
        ),
        (["train-step", "--steps", "0"], "--steps: must be an integer of at least 1, not '0'"),
        (["train-step", "--rounds", "0"], "--rounds: must be an integer of at least 1"),
        (["train-step", "--turns", "-1"], "--turns: must be an integer of at least 0"),
        (["inference", "--layers", "2", "x"], "--layers: must be an integer of at least 1, not 'x'"),
        (["operators", "--threads", "0"], "--threads: must be"),
    ],
)
def test_what_is_unknown_is_refused(here, capsys, arguments, message):
    assert message in _refused(capsys, *arguments)


def test_a_chart_without_matplotlib_is_refused_before_anything_is_measured(here, capsys, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find_spec(name))
    assert "needs matplotlib" in _refused(capsys, "train-step", "--model", "mlp", "--chart", "chart.png")
    with pytest.raises(chart.ChartError):
        chart.draw([], Path("chart.png"))


def test_a_chart_that_cannot_be_written_is_refused(tmp_path, capsys):
    (tmp_path / "folder.png").mkdir()
    assert "this is a folder" in _refused(capsys, "overhead", "--chart", tmp_path / "folder.png")
    chart.check(tmp_path / "NEW.PNG")


def test_a_failed_run_is_told_and_the_exit_code_says_so(tmp_path, capsys, monkeypatch):
    class Failed(Here):
        def result(self):
            raise ChildFailed("Traceback\nValueError: too large")

    monkeypatch.setattr(comparison, "FreshProcess", Failed)
    result = tmp_path / "result.json"
    assert _run("train-step", "--model", "mlp", *QUICK, "--impl", "eager", "--json", result) == 1
    assert "ValueError: too large" in capsys.readouterr().out
    assert json.loads(result.read_text())["runs"][0]["failure"]
