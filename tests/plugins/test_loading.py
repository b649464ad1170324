"""Plugins that are imported and registered, and those that cannot be."""

import json
import signal
import sys
import threading
import tomllib
from pathlib import Path

import pytest

from tests.plugins.conftest import OFFERS_AN_EXECUTOR, Site, record
from thunder_core.errors import PluginError, PluginWarning
from thunder_core.plugins import ExecutorSpec, TransformSpec, first_party
from thunder_core.plugins.distributions import Installed
from thunder_core.plugins.first_party import first_party_names
from thunder_core.plugins.host import host
from thunder_core.plugins.lookup import find
from thunder_core.plugins.states import PluginState

START = "from thunder_core.plugins import *\n"


def test_what_is_named_is_imported_and_registered(site: Site) -> None:
    module = site.plugin("alpha")
    other = site.plugin("beta")
    loaded = host().load("alpha")
    assert loaded == record("alpha")
    assert loaded.state is PluginState.LOADED
    assert loaded.of(ExecutorSpec) == (ExecutorSpec("alpha", f"{module}:make"),)
    assert loaded.of(TransformSpec) == ()
    assert host().load("alpha") is loaded
    assert host().manager.get_plugin("alpha") is sys.modules[module]
    assert record("beta").state is PluginState.AVAILABLE
    assert other not in sys.modules


def test_an_object_of_a_module_may_be_the_plugin(site: Site) -> None:
    module = site.module(f"""{START}
class Plugin:
    @hookimpl
    def thunder_executors(self):
        return [ExecutorSpec("alpha", "{{module}}:make")]

class Holder:
    plugin = Plugin()
""")
    site.distribution("plugin-alpha", plugins={"alpha": f"{module}:Holder.plugin"})
    assert find(ExecutorSpec, "alpha").plugin.name == "alpha"


def test_the_core_is_loaded_through_the_same_hooks(site: Site) -> None:
    loaded = host().load("core")
    assert "reference" in {spec.name for spec in loaded.of(ExecutorSpec)}
    assert not list(loaded.of(TransformSpec))
    assert host().import_object(find(ExecutorSpec, "core.reference")).__name__ == "reference"


INVALID = {
    "raises": ("1 / 0", r"it cannot be imported: ZeroDivisionError: division by zero, in .*_\d+\.py:2"),
    "exits": ("raise SystemExit('no GPU')", r"it cannot be imported: SystemExit: no GPU, in .*\.py:2"),
    "interrupts": ("raise KeyboardInterrupt", r"it cannot be imported: KeyboardInterrupt, in .*_\d+\.py:2"),
    "is no exception": (
        "class Stop(BaseException): pass\nraise Stop('now')",
        r"it cannot be imported: Stop: now, in .*_\d+\.py:3",
    ),
    "a hook that interrupts": (
        "@hookimpl\ndef thunder_executors():\n    raise KeyboardInterrupt('stop')",
        r"one of its hooks fails: KeyboardInterrupt: stop, in .*\.py:4",
    ),
    "imports what is absent": (
        "import thunder_test_absent",
        r"ModuleNotFoundError: No module named 'thunder_test_absent', in .*\.py:2",
    ),
    "is not Python": ("def f(:", r"SyntaxError: .*, in .*_\d+\.py:2"),
    "fails elsewhere": ("import json; json.loads('{')", r"JSONDecodeError: .*, in .*thunder_test_module_\d+\.py:2"),
    "has no hooks": ("x = 1", "names, has none of the hooks: thunder_executors, thunder_transforms"),
    "misspelt": (
        "@hookimpl\ndef thunder_executers(): return []",
        r"there is no hook thunder_executers; did you mean 'thunder_executors'\?",
    ),
    "misspelt and unmarked": (
        "def thunder_executers(): return []",
        r"there is no hook thunder_executers; did you mean 'thunder_executors'\?",
    ),
    "unmarked": ("def thunder_executors(): return []", "thunder_executors is not marked with @hookimpl"),
    "another argument": (
        "@hookimpl\ndef thunder_executors(config): return []",
        r"Argument\(s\) \{'config'\} are declared in the hookimpl but can not be found in the hookspec",
    ),
    "wrapper": ("@hookimpl(wrapper=True)\ndef thunder_executors(): return (yield)", "thunder_executors is a wrapper"),
    "a hook that raises": (
        "@hookimpl\ndef thunder_executors():\n    return {}['x']",
        r"one of its hooks fails: KeyError: 'x', in .*\.py:4",
    ),
    "a generator that raises": (
        "@hookimpl\ndef thunder_executors():\n    yield 1 / 0",
        "one of its hooks fails: ZeroDivisionError",
    ),
    "None": ("@hookimpl\ndef thunder_executors(): pass", "thunder_executors returned None, and not a list of Exec"),
    "text": ("@hookimpl\ndef thunder_executors(): return 'a:b'", "thunder_executors returned 'a:b', and not a list"),
    "numbers": ("@hookimpl\ndef thunder_executors(): return [1]", "returned a list with 1, and not of ExecutorSpec"),
    "another kind": (
        "@hookimpl\ndef thunder_executors(): return [TransformSpec('a', 'a:b')]",
        "returned a list with TransformSpec.* and not of ExecutorSpec",
    ),
    "twice": (
        "@hookimpl\ndef thunder_executors(): return [ExecutorSpec('a', 'a:b'), ExecutorSpec('a', 'a:c')]",
        "thunder_executors returned two with the name 'a'",
    ),
    "a name with a dot": (
        "@hookimpl\ndef thunder_executors(): return [ExecutorSpec('a.b', 'a:b')]",
        "thunder_executors returned a ExecutorSpec 'a.b', which is not a valid name",
    ),
    "no name": (
        "@hookimpl\ndef thunder_presets(): return [Preset(3, 'a', 'b')]",
        "a Preset 3, which is not a valid name",
    ),
    "a check without a name": (
        "@hookimpl\ndef thunder_doctor(): return [CheckSpec(' ', 'a:b')]",
        "which is not a valid name",
    ),
    "load without an attribute": (
        "@hookimpl\ndef thunder_front_ends(): return [FrontEndSpec('a', 'a.b')]",
        "whose load is 'a.b', and not of the form 'package.module:attribute'",
    ),
    "a class of programs without a module": (
        "@hookimpl\ndef thunder_front_ends(): return [FrontEndSpec('a', 'a:b', programs=(('Kind', 'a:c'),))]",
        r"whose programs are \(\('Kind', 'a:c'\),\), and not pairs of the dotted path of a class",
    ),
    "a function for programs without an attribute": (
        "@hookimpl\ndef thunder_front_ends(): return [FrontEndSpec('a', 'a:b', programs=(('a.Kind', 'c'),))]",
        r"whose programs are \(\('a.Kind', 'c'\),\), and not pairs",
    ),
    "load that is a function": (
        "@hookimpl\ndef thunder_symbols(): return [SymbolsSpec(len)]",
        "whose load is <built-in function len>, and not of the form",
    ),
    "options that are not a class": (
        "@hookimpl\ndef thunder_executors(): return [ExecutorSpec('a', 'a:b', {})]",
        r"whose options are \{\}, and not a subclass of ExecutorOptions",
    ),
    "options of another kind": (
        "@hookimpl\ndef thunder_executors(): return [ExecutorSpec('a', 'a:b', TransformOptions)]",
        "and not a subclass of ExecutorOptions",
    ),
    "a preset without a file": ("@hookimpl\ndef thunder_presets(): return [Preset('a', 'b', '')]", "of a file in it"),
}


def test_a_plugin_that_interrupts_leaves_the_others(site: Site) -> None:
    site.plugin("alpha", START + "raise KeyboardInterrupt")
    site.plugin("beta")
    host().load_all()
    assert [record(name).state for name in ("alpha", "beta")] == [PluginState.FAILED, PluginState.LOADED]
    assert find(ExecutorSpec, "beta").plugin.name == "beta"


def test_the_user_interrupts_an_import(site: Site) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it for jobs in the background
    try:
        site.plugin("alpha", START + "import signal\nsignal.raise_signal(signal.SIGINT)")
        with pytest.raises(KeyboardInterrupt):
            host().load("alpha")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert record("alpha").state is PluginState.AVAILABLE


def test_plugins_are_loaded_in_other_threads_and_set_handlers(site: Site) -> None:
    handler = signal.getsignal(signal.SIGINT)
    offers = OFFERS_AN_EXECUTOR.replace("{name!r}", "'beta'")
    site.plugin("alpha", START + "raise KeyboardInterrupt")
    site.plugin("beta", "import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n" + offers)
    errors: list[BaseException] = []

    def load() -> None:
        try:
            host().load("alpha")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    thread.join()
    assert isinstance(errors[0], PluginError)
    try:
        host().load("beta")
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, handler)


@pytest.mark.parametrize("case", INVALID)
def test_an_invalid_plugin_fails_with_a_sentence(site: Site, case: str) -> None:
    source, sentence = INVALID[case]
    site.plugin("alpha", START + source)
    with pytest.raises(PluginError, match=r"the plugin 'alpha' \(plugin-alpha 1\.0\) cannot be used: ") as raised:
        host().load("alpha")
    found = record("alpha")
    assert found.state is PluginState.FAILED
    assert found.why in raised.value.problem
    assert "\n" not in found.why
    assert found.advice == "pip install --upgrade plugin-alpha"
    assert raised.value.advice == (found.advice,)
    assert raised.value.__cause__ is not None
    assert host().manager.get_plugin("alpha") is None
    assert not host().offered(ExecutorSpec)
    with pytest.raises(PluginError, match=sentence) as again:
        find(ExecutorSpec, "alpha.anything")
    assert again.value.__cause__ is raised.value.__cause__


@pytest.mark.parametrize("target", ["{module}:absent", "{module}:plugin.absent", "not a module", "{module}:", ""])
def test_an_entry_point_that_leads_nowhere(site: Site, target: str) -> None:
    target = target.format(module=site.module("plugin = 1"))
    site.distribution("plugin-alpha", plugins={"alpha": target})
    with pytest.raises(PluginError, match="it cannot be imported: ImportError: "):
        host().load("alpha")


def test_an_entry_point_with_spaces_and_extras(site: Site) -> None:
    module = site.module("class Plugin:\n    pass\nplugin = Plugin()")
    site.distribution("plugin-alpha", plugins={"alpha": f"{module} : plugin [lib]"})
    with pytest.raises(PluginError, match=r"the object Plugin, which its entry point names, has none of the hooks"):
        host().load("alpha")


def test_two_plugins_cannot_share_an_object(site: Site) -> None:
    module = site.plugin("alpha")
    site.distribution("other", plugins={"beta": module})
    host().load("alpha")
    with pytest.raises(PluginError, match="names the same object as that of the plugin 'alpha'"):
        host().load("beta")
    assert find(ExecutorSpec, "alpha").plugin.state is PluginState.LOADED


def test_a_plugin_that_is_not_installed(site: Site) -> None:
    site.plugin("alpha")
    with pytest.raises(PluginError, match=r"there is no plugin 'alhpa'; did you mean 'alpha'\?") as raised:
        host().load("alhpa")
    assert raised.value.advice[-1] == "pip install the distribution that offers 'alhpa'"


# ------------------------------------------------------------------------------------------------- what is behind


def test_what_is_behind_a_specification(site: Site) -> None:
    site.plugin("alpha")
    offered = find(ExecutorSpec, "alpha")
    assert host().import_object(offered)(None) == "the executor"
    assert host().import_object(offered.spec)(None) == "the executor"


def test_what_cannot_be_imported_says_so_and_leaves_the_rest_usable(site: Site) -> None:
    heavy = site.module("x = 1\nimport thunder_test_absent\n")
    site.plugin(
        "alpha",
        f"""{START}
@hookimpl
def thunder_executors():
    return [ExecutorSpec("first", "{heavy}:make"), ExecutorSpec("second", "{{module}}:make")]

def make(options):
    return "the second"
""",
        extras=("lib",),
    )
    with pytest.raises(
        PluginError, match=rf"its executor {heavy}:make cannot be imported: ModuleNotFoundError: .*, in .*{heavy}\.py:2"
    ) as raised:
        host().import_object(find(ExecutorSpec, "alpha.first"))
    assert isinstance(raised.value.__cause__, ModuleNotFoundError)
    assert raised.value.advice == ("pip install --upgrade 'plugin-alpha[lib]'",)
    assert record("alpha").state is PluginState.FAILED
    assert host().import_object(find(ExecutorSpec, "alpha.second"))(None) == "the second"


def test_an_attribute_that_is_absent(site: Site) -> None:
    module = site.module("")
    site.plugin("alpha", OFFERS_AN_EXECUTOR.replace("{name!r}", "'alpha'").replace("{module}:make", f"{module}:make"))
    with pytest.raises(PluginError, match=f"ImportError: {module} has no make"):
        host().import_object(find(ExecutorSpec, "alpha"))


def test_a_specification_of_nobody(site: Site) -> None:
    with pytest.raises(ValueError, match="is not offered by a loaded plugin"):
        host().import_object(ExecutorSpec("alpha", "a:b"))


# ------------------------------------------------------------------------------------------------------- all of them


def test_failures_of_what_is_merely_installed_are_recorded(site: Site) -> None:
    site.plugin("alpha", "1 / 0")
    site.plugin("beta")
    site.plugin("gamma", requires=("no-such-library; extra == 'lib'",))
    host().load_all()
    states = {name: record(name).state for name in ("alpha", "beta", "gamma")}
    assert states == {
        "alpha": PluginState.FAILED,
        "beta": PluginState.LOADED,
        "gamma": PluginState.LIBRARY_MISSING,
    }
    assert "ZeroDivisionError" in record("alpha").why
    assert "beta" in {offered.spec.name for offered in host().offered(ExecutorSpec)}


@pytest.mark.parametrize("value", ["1", "yes"])
def test_strict(site: Site, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    site.plugin("alpha", "1 / 0")
    site.plugin("beta", interfaces={"beta": "99"})
    site.plugin("gamma")
    monkeypatch.setenv("THUNDER_STRICT", value)
    with pytest.raises(PluginError, match="THUNDER_STRICT is set, and installed plugins have defects") as raised:
        host().load_all()
    assert "'alpha' (plugin-alpha 1.0): it cannot be imported: ZeroDivisionError" in raised.value.problem
    assert raised.value.advice == ("pip install --upgrade plugin-alpha", "pip install --upgrade thunder-core")
    assert record("gamma").state is PluginState.LOADED
    assert find(ExecutorSpec, "gamma").spec.name == "gamma"


def test_strict_minds_neither_absent_libraries_nor_blocked_plugins(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.plugin("alpha", requires=("no-such-library; extra == 'lib'",))
    site.plugin("beta", "1 / 0")
    monkeypatch.setenv("THUNDER_STRICT", "1")
    monkeypatch.setenv("THUNDER_PLUGINS", "-beta")
    host().load_all()
    assert record("beta").state is PluginState.BLOCKED


# ------------------------------------------------------------------------------------------------- where it comes from


@pytest.mark.parametrize(
    ("origin", "advice"),
    [
        (
            {"url": "file:///home/me/my%20plugin", "dir_info": {"editable": True}},
            "repair it in /home/me/my plugin, from which it was installed, and run: pip install '/home/me/my plugin'",
        ),
        (
            {"url": "https://example.org/p.git", "vcs_info": {"vcs": "git", "commit_id": "0"}},
            "pip install --force-reinstall 'plugin-alpha @ git+https://example.org/p.git'",
        ),
        (None, "pip install --upgrade plugin-alpha"),
    ],
)
def test_advice_names_where_a_plugin_comes_from(site: Site, origin: dict[str, object] | None, advice: str) -> None:
    info = site.distribution("plugin-alpha", plugins={"alpha": site.module("import thunder_test_absent")})
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))
    with pytest.raises(PluginError, match="cannot be imported: ModuleNotFoundError") as raised:
        host().load("alpha")
    assert raised.value.advice == (advice,)


def test_plugins_of_the_repository_are_known_by_name(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(__file__).resolve().parents[2] / "plugins"
    projects = {
        path.parent.name: tomllib.loads(path.read_text())["project"] for path in folder.glob("*/pyproject.toml")
    }
    plugins = [name for name, project in projects.items() if "thunder.plugins" in project.get("entry-points", {})]
    assert sorted(first_party_names()) == sorted(plugins)
    folders = {project["name"]: folder / name for name, project in projects.items()}
    needed = {
        name: [folders[own] for line in project["dependencies"] if (own := line.partition(">")[0]) in folders]
        for name, project in projects.items()
    }
    commands = {name: " ".join(["pip install", *map(str, [*needed[name], folder / name])]) for name in projects}
    assert {name: first_party.install_command(name) for name in projects} == commands
    monkeypatch.setenv("THUNDER_PLUGINS", "")
    monkeypatch.setattr(Installed, "with_plugins", lambda self: [])
    for name in first_party_names():
        with pytest.raises(PluginError, match=f"the plugin '{name}' is not installed") as raised:
            host().load(name)
        assert raised.value.advice[0].endswith(commands[name])
        with pytest.raises(PluginError, match=f"there is no executor '{name}'") as raised:
            find(ExecutorSpec, name)
        assert raised.value.advice[0].endswith(commands[name])
    for plugin, name in [("matmul", "merge_matmuls"), ("layouts", "separate_bias")]:
        with pytest.raises(PluginError, match=f"there is no transform '{name}'") as raised:
            find(TransformSpec, name)
        assert raised.value.advice[0].startswith(f"the plugin '{plugin}' of Thunder's repository offers '{name}'")
        assert raised.value.advice[0].endswith(commands[plugin])
    with pytest.raises(PluginError, match="did you mean 'inductor'"):
        find(ExecutorSpec, "inducter")
    monkeypatch.setattr(first_party, "_PACKAGES", folder / "nowhere")
    assert "pip install ./plugins/composites ./plugins/triton in a checkout" in first_party.how_to_get("triton")
    assert "pip install ./plugins/fusion ./plugins/nvfuser in a checkout" in first_party.how_to_get("nvfuser")


def test_a_plugin_without_the_number_of_its_interface_warns_once(site: Site) -> None:
    site.plugin("alpha", interfaces={})
    with pytest.warns(PluginWarning, match=r"plugin 'alpha' \(plugin-alpha 1.0\): it does not declare") as warned:
        record = host().load("alpha")
    assert record.state is PluginState.LOADED
    assert 'adds [project.entry-points."thunder.plugin_api"] alpha = "1"' in str(warned[0].message)
    assert host().load("alpha") is record  # without another warning, which would be an error
