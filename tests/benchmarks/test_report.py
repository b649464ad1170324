"""The command ``report``: what it runs, what it keeps, and its comparisons. No figure is checked."""

import json
import math
import time
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as command_line
from benchmarks import chart, commands, comparison, machine, markdown, options, report, result_file, selection
from benchmarks.comparison import Plan, Run, compare, missing
from benchmarks.models import catalogue, model, suite
from benchmarks.process import ChildFailed
from benchmarks.result_file import InvalidResult
from benchmarks.row import BEST, Row
from benchmarks.workload import Workload
from tests.benchmarks.here import Here

RESULT = {"losses": [1.0, 1.0], "first": 1.0, "steps": [0.1, 0.2], "host": [], "items": 16, "compilations": 1}
SECONDS = {"eager": 0.2, "compile": 0.1, "compile-reduce-overhead": 0.15, "thunder": 0.05}
PNG = b"\x89PNG"


@pytest.fixture
def started(monkeypatch):
    """The implementations of the processes that a report starts: none runs, and ``thunder[broken]`` fails."""
    seen = []

    class Process(Here):
        def __init__(self, function, *, workload, implementation, **_):
            self.name, self.workload = implementation, workload
            self.timed_out = False
            seen.append((workload["model"], workload["task"], implementation))

        def result(self):
            if self.name == "thunder[broken]":
                raise ChildFailed("Traceback\nValueError: broken")
            seconds = SECONDS.get(self.name, 1.0)
            return RESULT | {"steps": [seconds], "first": seconds, "memory": {"allocated": 2**20 * seconds}}

    monkeypatch.setattr(comparison, "FreshProcess", Process)
    monkeypatch.setattr(selection, "in_fresh_process", lambda function, *, threads, **options: function(**options))
    monkeypatch.setattr(selection, "unavailable", lambda names, device: {})
    monkeypatch.setattr(report.result_file, "RESULTS", report.result_file.RESULTS / "none")
    return seen


def _report(path, *more):
    every = ["report", "--device", "cpu", "--noise", "0", "--turns", "0", "--json", path, *more]
    return command_line.main([str(argument) for argument in every])


def _one(path, *more):
    return _report(path, "--model", "nanogpt-163m-small", "--task", "training", *more)


def _rows(path, group):
    return {row["what"]: row for row in json.loads(path.read_text())["rows"] if row["group"] == group}


def test_a_model_is_measured_and_its_ratio_is_to_the_best_of_the_others(started, tmp_path, capsys):
    path, picture = tmp_path / "r.json", tmp_path / "r.png"
    assert _one(path, "--chart", picture) == 0
    assert [name for *_, name in started] == list(report.IMPLEMENTATIONS)
    (row,) = _rows(path, "training step").values()
    assert row["values"] == pytest.approx({name: seconds * 1e3 for name, seconds in SECONDS.items()})
    assert row["goal"] == "<= 0.95 x the best"
    assert row["reached"]
    means = _rows(path, "geometric means of the ratios to the best of the others")
    assert means["time, training step, 1 model"]["values"]["thunder"] == pytest.approx(0.5)
    assert "eager" not in means["first step, without eager, training step, 1 model"]["values"]
    assert "50 ms 0.50x" in capsys.readouterr().out
    assert picture.read_bytes().startswith(PNG)


@pytest.mark.slow
def test_the_same_command_runs_what_is_left(started, tmp_path, capsys, monkeypatch):
    path = tmp_path / "r.json"
    complete = comparison.finish

    def interrupted(run, process):
        if run.implementation == "compile-reduce-overhead":
            raise KeyboardInterrupt
        return complete(run, process)

    monkeypatch.setattr(comparison, "finish", interrupted)
    assert _one(path) == 130
    assert set(next(iter(_rows(path, "training step").values()))["values"]) == {"eager", "compile"}
    monkeypatch.setattr(comparison, "finish", complete)
    started.clear()
    assert _one(path) == 0
    assert [name for *_, name in started] == ["compile-reduce-overhead", "thunder"]
    started.clear()
    assert _one(path) == 0
    assert started == []
    assert _report(path, "--model", "nanogpt-163m-small", "--task", "forward", "--impl", "eager", "thunder") == 0
    assert [(task, name) for _, task, name in started] == [("forward", "eager"), ("forward", "thunder")]
    assert _rows(path, "training step")
    assert _rows(path, "inference")
    started.clear()
    assert _one(path, "--restart", "--impl", "eager") == 0
    assert [name for *_, name in started] == ["eager"]
    assert not _rows(path, "inference")


def test_processes_that_take_turns_are_run_together_again():
    workload = Workload("m", "training", "float32", "cpu", 2, 8, 6)
    plan = Plan([workload], ["eager", "thunder"], noise=1, turns=3)
    runs = [Run(workload, "eager"), Run(workload, "eager", kernels="attention in parts", reference=True)]
    again = comparison._unfinished(workload, plan, {run.key for run in runs})
    assert again == {Run(workload, name).key for name in ("eager", "thunder")}
    assert [run.implementation for run in missing(plan, runs)] == ["thunder"]


def test_filled_caches_are_filled_again():
    workload = Workload("m", "training", "float32", "cuda", 2, 8, 6)
    plan = Plan([workload], ["a", "b"], noise=0, cache="both")
    runs = [Run(workload, "a", timed=False), Run(workload, "a", cache="warm"), Run(workload, "b", timed=False)]
    again = comparison._unfinished(workload, plan, {run.key for run in runs})
    assert again == {Run(workload, "b", timed=False).key, Run(workload, "b", cache="warm").key}


def test_a_run_is_the_same_in_a_file():
    workload = Workload("m", "generation", "float32", "cpu", 2, 8, 6, overrides={"layers": 2}, new_tokens=4)
    run = Run(workload, "a", 1, "warm", result=RESULT)
    assert Run.from_json(json.loads(json.dumps(run.as_json()))) == run


def test_a_failure_is_kept_until_it_is_retried(started, tmp_path, capsys):
    path = tmp_path / "r.json"
    impl = ["--impl", "eager", "thunder[broken]"]
    assert _one(path, *impl) == 1
    assert "FAILED" in capsys.readouterr().out
    started.clear()
    assert _one(path, *impl) == 1
    assert started == []
    assert _one(path, *impl, "--retry") == 1
    assert [name for *_, name in started] == ["thunder[broken]"]


def test_after_the_budget_nothing_starts_and_what_it_ended_is_no_failure(started, tmp_path, capsys, monkeypatch):
    path = tmp_path / "r.json"
    now = [time.monotonic()]
    for module in (comparison, report):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    complete = comparison.finish

    def late(run, process):
        now[0] += 50
        if run.implementation == "compile":
            process.timed_out = True
            return Run(run.workload, run.implementation, failure="no result within 10 s")
        return complete(run, process)

    monkeypatch.setattr(comparison, "finish", late)
    assert _one(path, "--budget", "1") == commands.INCOMPLETE
    assert [name for *_, name in started] == ["eager", "compile"]
    assert [run["implementation"] for run in json.loads(path.read_text())["runs"]] == ["eager"]
    assert "3 runs are left, the first is training nanogpt-163m-small" in capsys.readouterr().out


def test_a_report_is_of_one_state_of_the_sources(started, tmp_path, capsys, monkeypatch):
    path = tmp_path / "r.json"
    assert _one(path) == 0
    monkeypatch.setattr(machine.sources, "checksum", lambda: "other")
    with pytest.raises(SystemExit):
        _one(path)
    assert "with other sources: --restart replaces it" in capsys.readouterr().err
    assert _one(path, "--restart") == 0


def test_a_package_that_is_missing_is_a_row_with_advice(started, tmp_path, capsys, monkeypatch):
    find_spec = model.importlib.util.find_spec
    monkeypatch.setattr(
        model.importlib.util, "find_spec", lambda name: None if name == "torchvision" else find_spec(name)
    )
    path = tmp_path / "r.json"
    assert _report(path, "--model", "resnet-50-small", "nanogpt-163m-small", "--task", "forward") == 0
    rows = _rows(path, "inference")
    assert rows["resnet-50-small, batch 4, float32"]["values"] == {}
    assert "needs the package torchvision, which is not installed: pip install torchvision" in capsys.readouterr().out
    assert {name for name, *_ in started} == {"nanogpt-163m-small"}
    with pytest.raises(model.MissingPackage, match="pip install torchvision"):
        catalogue.check("torchvision:resnet50")


def test_the_suite_has_both_sizes_of_what_people_run(started, tmp_path, monkeypatch):
    monkeypatch.setattr(report.catalogue, "check", lambda name: name)
    chosen = _options("--device", "cuda")
    full = report.selected(chosen, "cuda").workloads
    assert {workload.model for workload in full} == set(suite.SUITE)
    assert Workload("bert-large", "training", "bf16-autocast", "cuda", 16, 512, 30, "adamw") in full
    assert [w.precision for w in full if w.model == "tiny-llama-1.1b"] == ["bf16-true", "bf16-autocast"]
    assert {w.kv_cache for w in full if w.task == "generation"} == {"dynamic", "static"}
    small = report.selected(chosen, "cpu").workloads
    assert all(workload.model.endswith("-small") and workload.precision == "float32" for workload in small)
    assert len(small) > 30
    assert catalogue.sizes_of("t5-large-small").sequence == 16


def _options(*arguments):
    return command_line._parser().parse_args(["report", *arguments])


def test_changes_since_the_last_report_of_this_kind_of_machine(started, tmp_path, capsys, monkeypatch):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    assert _one(old) == 0
    monkeypatch.setitem(SECONDS, "thunder", 0.04)
    monkeypatch.setattr(report.result_file, "RESULTS", tmp_path)
    content = json.loads(old.read_text())
    assert report.last_of_machine(content) is None  # the same sources: it is this report
    monkeypatch.setattr(machine.sources, "checksum", lambda: "other")
    for name, change in {"older": {"date": "2020"}, "other": {"processor": "Z80"}, "no": {"report": False}}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content | change))
    assert report.last_of_machine(content | {"sources": "other"}) == old
    assert _one(new) == 0
    output = capsys.readouterr().out
    assert "training step, divided by those of old.json" in output
    rows, notes = report.changes(report.runs_of(new, json.loads(new.read_text())), old)
    assert notes == []
    assert rows[0].values == pytest.approx({"eager": 1, "compile": 1, "compile-reduce-overhead": 1, "thunder": 0.8})
    assert _report(tmp_path / "third.json", "--model", "nanogpt-163m-small", "--task", "forward", "--against", old) == 0
    assert "only in old.json: training nanogpt-163m-small" in capsys.readouterr().out


def test_a_file_that_is_no_report_is_refused_before_anything_is_measured(started, tmp_path, capsys):
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"rows": []}))
    for arguments in ((path,), (tmp_path / "new.json", "--against", path)):
        with pytest.raises(SystemExit):
            _one(*arguments)
        assert "is not a report" in capsys.readouterr().err
    assert started == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "resnet-5"], "no model 'resnet-5'; did you mean 'resnet-50'"),
        (["--model", "llama-1.2b-small", "--task", "training"], "no model of the selection has one of the tasks"),
        (["--budget", "0"], "must be a number above 0"),
        (["--baseline", "egaer"], "--baseline egaer is not among"),
    ],
)
def test_wrong_options_are_refused(started, tmp_path, capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        _report(tmp_path / "r.json", *arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_the_mean_of_fewer_models_is_told():
    workloads = [Workload(name, "forward", "float32", "cuda", 2, 8, 6) for name in ("m", "n")]
    times = {("m", "eager"): 4, ("m", "compile"): 2, ("m", "thunder"): 1, ("n", "eager"): 1, ("n", "thunder"): 2}
    runs = [
        Run(w, name, result=RESULT | {"steps": [times[w.model, name]], "memory": {}})
        for w in workloads
        for name in ("eager", "compile", "thunder")
        if (w.model, name) in times
    ]
    found = report.rows(runs, [], {}, "cuda")
    mean = next(row for row in found if row.what == "time, inference, 2 models")
    assert mean.values == pytest.approx({"eager": 2**0.5, "compile": 1, "thunder": 1})
    assert mean.reached is False
    assert report.incomplete_means(found)[0] == "time, inference, 2 models: the mean of compile is over 1"
    assert [row.reached for row in found if row.group == "inference"] == [True, False]


def test_a_geometric_mean_leaves_out_what_has_no_logarithm():
    assert report.geometric_mean([1, 4, 0]) == 2
    assert math.isnan(report.geometric_mean([0]))


def test_ratios_to_the_best_of_the_others():
    values = {"eager": 4.0, "compile": 2.0, "thunder": 3.0}
    assert Row("g", "w", "ms", values, {}).ratios(BEST) == {"eager": 2, "compile": 1, "thunder": 1.5}
    assert Row("g", "w", "1/s", values, {}).ratios(BEST)["thunder"] == 0.75
    assert Row("g", "w", "ms", {"thunder": 1.0}, {}).ratios(BEST) == {}
    with pytest.raises(chart.ChartError, match="nothing to draw"):
        chart.draw_ratios([Row("g", "w", "ms", {"thunder": 1.0}, {})], options.Path("x.png"))


def test_markdown_and_the_section_of_the_readme(started, tmp_path, capsys, monkeypatch):
    path, readme = tmp_path / "r.json", tmp_path / "README.md"
    assert _one(path) == 0
    capsys.readouterr()
    assert command_line.main(["show", str(path), "--markdown"]) == 0
    assert "| nanogpt-163m-small, 2x32, float32, AdamW | 200 ms | 100 ms | 150 ms | 50 ms, 0.50x |" in (
        capsys.readouterr().out
    )
    monkeypatch.setattr(markdown, "ROOT", tmp_path)
    readme.write_text("# Title\n\n## Benchmarks\n\nText.\n")
    content = json.loads(path.read_text())
    for commit in ("abc", "abcd"):
        result_file.write(path, {k: v for k, v in content.items() if k != "rows"} | {"commit": commit},
                          [Row(**row) for row in content["rows"]])  # fmt: skip
        markdown.update_readme(path, readme)
        text = readme.read_text()
        assert text.count("at commit") == 1
        assert f"at commit {commit} on" in text
        assert markdown.section(path) in text
        assert text.endswith("Text.\n")
    path.write_text(json.dumps(content | {"commit": "abc+changes", "sources": "other"}))
    with pytest.raises(InvalidResult, match="not of one commit"):
        markdown.update_readme(path, readme)
    readme.write_text("# Title\n")
    path.write_text(json.dumps(content | {"commit": "abc"}))
    with pytest.raises(InvalidResult, match="no heading"):
        markdown.update_readme(path, readme)


def test_the_table_of_the_readme_joins_times_ratios_and_means():
    times = {"eager": 4.0, "compile": 2.0, "thunder": 3.0, "thunder-inductor": 1.0}
    rows = [
        Row("training step", "m", "ms", times, {}),
        Row("forward", "m", "ms", {"eager": 4.0, "thunder": 2.0}, {}),
        Row("peak memory, training step", "m", "MiB", {"eager": 8.0, "compile": 4.0, "thunder": 5.0}, {}),
        Row("host time to enqueue it, training step", "m", "ms", times, {}),
        Row("geometric means", "time, training step, 1 models", "x", {"eager": 2.0, "thunder": 1.5}, {}),
        Row("geometric means", "peak memory, training step, 1 models", "x", {"eager": 2.0, "thunder": 1.25}, {}),
    ]
    assert markdown.ratio_table(rows).splitlines() == [
        "| workload | eager | compile | thunder | thunder-inductor | time | memory |",
        "|---|---|---|---|---|---|---|",
        "| training step: m | 4 ms | 2 ms | 3 ms | 1 ms | 0.50x | 1.25x |",
        "| forward: m | 4 ms | - | 2 ms | - | 0.50x | - |",
        "| geometric mean, training step, 1 models | 2.00x | - | 1.50x | - | 1.50x | 1.25x |",
    ]


def test_the_readme_has_the_figures_of_the_report_that_it_names():
    text = markdown.README.read_text()
    for found in markdown.SECTION.finditer(text):
        assert found[0] == markdown.section(markdown.ROOT / found["path"])
    assert text.count("<!-- report: ") == len(markdown.SECTION.findall(text)) <= 1


def test_a_comparison_after_its_deadline_starts_nothing(started):
    workload = Workload("m", "training", "float32", "cpu", 2, 8, 6)
    assert compare(Plan([workload], ["eager"], noise=0, deadline=time.monotonic() - 1), after=len) == []
    assert started == []
