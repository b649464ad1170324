"""``thunder plugins`` and ``thunder doctor``, with good and bad plugins installed."""

import json
from types import SimpleNamespace

import pytest
import torch

from thunder.command_line import core_checks, environment
from thunder.command_line.core_checks import core_checks as checks_of

KERNELS = """
from thunder_core.plugins import CheckSpec, CheckResult, ExecutorSpec, hookimpl


@hookimpl
def thunder_executors():
    return [ExecutorSpec("kernels", "kernels:executor", summary="its summary")]


@hookimpl
def thunder_doctor():
    return [CheckSpec("card", "kernels:card"), CheckSpec("driver", "kernels:driver"), CheckSpec("bug", "kernels:bug"),
            CheckSpec("shape", "kernels:shape"), CheckSpec("nowhere", "kernels:nowhere")]


def card():
    return CheckResult(True, "one is there", "not shown")


def driver():
    return CheckResult(False, "it is too old", "install version 7")


def bug():
    return 1 / 0


def shape():
    return "fine"
"""


@pytest.fixture
def plugins(install, monkeypatch):
    """A good plugin, one that cannot be imported, and one for another interface; what else is installed is blocked."""
    install("kernels", KERNELS)
    install("broken", "raise OSError('no library here')")
    install("stale", "", api=99)
    monkeypatch.setenv("THUNDER_PLUGINS", "kernels,broken,stale")


def _by_name(ended, what="plugins"):
    return {item["name"]: item for item in json.loads(ended.out)[what]}


def test_plugins_are_listed_with_state_and_reason(command, plugins, monkeypatch):
    monkeypatch.setenv("THUNDER_PLUGINS", "kernels,broken,stale")
    ended = command("plugins")
    assert (ended.code, ended.err) == (0, "")
    rows = {line.split()[0]: line for line in ended.out.splitlines()}
    assert rows["PLUGIN"].split() == ["PLUGIN", "DISTRIBUTION", "VERSION", "STATE", "PROVIDES", "WHY", "NOT"]
    assert "thunder-plugin-kernels" in rows["kernels"]
    assert "executors: kernels; checks: card, driver, bug, shape, nowhere" in rows["kernels"]
    assert "OSError" in rows["broken"]
    assert " failed " in rows["broken"]
    assert " API mismatch " in rows["stale"]
    assert "executors: reference" in rows["core"]


def test_terminal_of_80_columns_gets_a_line_for_each_plugin(command, plugins, monkeypatch):
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    lines = command("plugins").out.splitlines()
    names = [line.split()[0] for line in lines[: lines.index("")]]
    assert len(names) == len(set(names))
    assert {"PLUGIN", "core", "broken", "kernels", "stale"} <= set(names)
    assert max(map(len, lines)) <= 80
    lines = command("doctor").out.splitlines()
    assert "what to do: install version 7" in lines


def test_details_of_one_plugin(command, plugins):
    assert command("plugins", "kernels").out.splitlines() == [
        "kernels 1.2, from thunder-plugin-kernels: loaded",
        "",
        "executors:",
        "  kernels: its summary",
        "",
        "checks:",
        *[f"  {name}" for name in ("card", "driver", "bug", "shape", "nowhere")],
    ]
    assert json.loads(command("plugins", "stale", "--json").out)["state"] == "API mismatch"
    assert "what to do: " in command("plugins", "stale").out
    ended = command("plugins", "kernel")
    assert (ended.code, ended.out) == (1, "")
    assert "there is no plugin 'kernel'; did you mean 'kernels'?" in ended.err


def test_plugins_as_json(command, plugins):
    found = _by_name(command("plugins", "--json"))
    assert found["kernels"] == {
        "name": "kernels",
        "distribution": "thunder-plugin-kernels",
        "version": "1.2",
        "state": "loaded",
        "provides": {
            "executors": [{"name": "kernels", "summary": "its summary"}],
            "checks": [{"name": name, "summary": ""} for name in ("card", "driver", "bug", "shape", "nowhere")],
        },
        "why": "",
        "advice": "",
    }
    assert found["broken"]["state"] == "failed"
    assert "no library here" in found["broken"]["why"]
    assert "pip" in found["stale"]["advice"]


TABLES = """
from thunder_core.plugins import InterceptionsSpec, SymbolsSpec, hookimpl


@hookimpl
def thunder_symbols():
    return [SymbolsSpec("tables.symbols:ROWS")]


@hookimpl
def thunder_interceptions():
    return [InterceptionsSpec("tables.interceptions:TABLE")]
"""


def test_tables_are_listed_by_where_they_are(command, install, monkeypatch):
    install("tables", TABLES)
    monkeypatch.setenv("THUNDER_PLUGINS", "tables")
    row = next(line for line in command("plugins").out.splitlines() if line.startswith("tables "))
    assert "tables of symbols: tables.symbols:ROWS; tables of interceptions: tables.interceptions:TABLE" in row


@pytest.mark.slow
def test_blocked_plugin_is_no_defect(command, install, monkeypatch):
    install("kernels", KERNELS)
    monkeypatch.setenv("THUNDER_PLUGINS", "-kernels")
    assert _by_name(command("plugins", "--json"))["kernels"]["state"] == "blocked"
    failed = {item["check"] for item in json.loads(command("doctor", "--json").out)["checks"] if not item["ok"]}
    assert "card" not in failed


def test_strict_environment_makes_defects_an_error_after_the_table(command, plugins, monkeypatch):
    monkeypatch.setenv("THUNDER_STRICT", "1")
    ended = command("plugins")
    assert ended.code == 1
    assert "thunder-plugin-kernels" in ended.out
    assert "broken" in ended.err
    assert "Traceback" not in ended.err


def test_doctor_describes_and_passes_on_a_sound_installation(command, monkeypatch):
    monkeypatch.setenv("THUNDER_PLUGINS", "core")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    ended = command("doctor")
    assert (ended.code, ended.err) == (0, "")
    assert torch.__version__ in ended.out
    assert "OMP_NUM_THREADS=3" in ended.out
    assert "compile on cpu" in ended.out
    assert " failed " not in ended.out


def test_doctor_runs_the_checks_of_plugins_and_names_bad_ones(command, plugins):
    ended = command("doctor", "--json")
    assert ended.code == 1
    found = {(item["plugin"], item["check"]): item for item in json.loads(ended.out)["checks"]}
    assert found["kernels", "card"]["ok"]
    assert found["kernels", "driver"] == {
        "check": "driver",
        "plugin": "kernels",
        "ok": False,
        "text": "it is too old",
        "advice": "install version 7",
    }
    assert found["kernels", "bug"]["text"] == "it raised ZeroDivisionError: division by zero"
    assert found["kernels", "shape"]["text"] == "it returned 'fine', which is not a CheckResult"
    assert "nowhere" in found["kernels", "nowhere"]["text"]
    assert "no library here" in found["broken", "usable"]["text"]
    assert not found["stale", "usable"]["ok"]
    table = command("doctor").out
    assert "install version 7" in table
    assert "not shown" not in table


def test_doctor_works_without_torch(command, monkeypatch):
    monkeypatch.setenv("THUNDER_PLUGINS", "core")
    error = OSError("libcudart.so.12: cannot open shared object file")
    monkeypatch.setattr("thunder.command_line.doctor._torch", lambda: error)
    ended = command("doctor", "--json")
    assert ended.code == 1
    found = json.loads(ended.out)
    assert "libcudart.so.12" in found["facts"]["torch"]
    assert [item["check"] for item in found["checks"] if not item["ok"]] == ["PyTorch"]


def _check(name):
    return dict(checks_of(torch))[name]()


def test_doctor_finds_another_thunder(monkeypatch):
    assert _check("one thunder").ok
    monkeypatch.setattr(core_checks.importlib.metadata, "version", lambda name: "0.2.4")
    result = _check("one thunder")
    assert not result.ok
    assert "lightning-thunder 0.2.4" in result.text
    assert "pip uninstall" in result.advice


@pytest.mark.parametrize(
    ("count", "driver", "built", "ok", "advice"),
    [
        (2, "570.1", "12.8", True, ""),
        (0, None, None, True, ""),
        (0, "570.1", None, False, "install a PyTorch built for CUDA"),
        (0, "450.1", "12.8", False, "update the driver to one for CUDA 12.8"),
    ],
)
def test_doctor_knows_why_a_gpu_is_not_seen(monkeypatch, count, driver, built, ok, advice):
    monkeypatch.setattr(core_checks, "driver", lambda: driver)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.version, "cuda", built)
    result = _check("GPU")
    assert result.ok is ok
    assert result.advice.startswith(advice)


def test_doctor_sees_a_wrong_gradient(monkeypatch):
    monkeypatch.setattr("thunder.jit", lambda function, **_: lambda x: 2 * function(x))
    result = _check("compile on cpu")
    assert not result.ok
    assert "differs by" in result.text


def _torch(cuda, hip, devices):
    """The functions of PyTorch that describe an installation, as on a machine with other devices."""
    properties = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, total_memory=139 << 30)
    return SimpleNamespace(
        __version__="2.13.0",
        get_num_threads=lambda: 8,
        version=SimpleNamespace(cuda=cuda, hip=hip),
        backends=SimpleNamespace(cudnn=SimpleNamespace(version=lambda: 91002)),
        cuda=SimpleNamespace(device_count=lambda: devices, get_device_properties=lambda index: properties),
    )


def test_description_of_other_machines():
    found = environment.facts(_torch("13.0", None, 2))
    assert found["torch"] == "2.13.0, 8 threads"
    assert found["cuda"] == "13.0, cuDNN 91002"
    assert found["gpu 1"] == "NVIDIA H200, compute capability 9.0, 139.0 GiB"
    assert environment.facts(_torch(None, "6.4", 0))["cuda"] == "ROCm 6.4"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_doctor_with_a_gpu(command, monkeypatch):
    monkeypatch.setenv("THUNDER_PLUGINS", "core")
    found = json.loads(command("doctor", "--json").out)
    assert "compute capability" in found["facts"]["gpu 0"]
    assert {item["check"] for item in found["checks"] if item["ok"]} >= {"GPU", "compile on cpu", "compile on cuda"}


def test_driver_from_its_file_or_its_command(tmp_path, monkeypatch):
    file = tmp_path / "version"
    monkeypatch.setattr(environment, "_DRIVER", file)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.driver() is None
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 550.54.15\n")
    tool.chmod(0o755)
    assert environment.driver() == "550.54.15"
    tool.write_text("#!/bin/sh\necho cannot talk to the driver >&2\nexit 9\n")
    assert environment.driver() == "nvidia-smi failed: cannot talk to the driver"
    file.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n")
    assert environment.driver() == "570.124.06"
