"""What is known about plugins from metadata alone."""

import sys
import zipfile
from pathlib import Path

import pytest

from benchmarks import plugin_discovery
from benchmarks.process import in_fresh_process
from tests.plugins.conftest import Site, record
from thunder_core.errors import PluginError
from thunder_core.plugins.distributions import Installed
from thunder_core.plugins.hookspecs import API
from thunder_core.plugins.host import host, reset_host
from thunder_core.plugins.requirements import unmet_requirement
from thunder_core.plugins.states import PluginState


def test_the_core_is_a_plugin_and_comes_first(site: Site) -> None:
    first = host().records[0]
    assert (first.name, first.distribution, first.version) == ("core", "thunder-core", "0.5.0")
    assert first.state is PluginState.AVAILABLE


def test_a_plugin_is_available_and_not_imported(site: Site) -> None:
    module = site.plugin("alpha")
    found = record("alpha")
    assert (found.distribution, found.version, found.state) == ("plugin-alpha", "1.0", PluginState.AVAILABLE)
    assert (found.why, found.advice) == ("", "")
    assert module not in sys.modules


def test_a_distribution_may_offer_several_plugins(site: Site) -> None:
    site.distribution("two", plugins={"first_of_two": "a:b", "second_of_two": "c"})
    assert {record("first_of_two").distribution, record("second_of_two").distribution} == {"two"}


# ---------------------------------------------------------------------------------------------------- requirements


def test_missing_library(site: Site) -> None:
    module = site.plugin("alpha", requires=("no-such-library[cuda]>=2; extra == 'lib'",), extras=("lib",))
    found = record("alpha")
    assert found.state is PluginState.LIBRARY_MISSING
    assert found.why == "it needs no-such-library, which is not installed"
    assert found.advice == "pip install 'plugin-alpha[lib]'"
    with pytest.raises(PluginError, match="cannot be used: it needs no-such-library") as raised:
        host().load("alpha")
    assert raised.value.advice == (found.advice,)
    assert module not in sys.modules


@pytest.mark.parametrize("version", [None, "9.0"])
def test_library_that_is_in_no_registry(site: Site, version: str | None) -> None:
    """What pip finds under its name, if anything, is something else."""
    if version:
        site.distribution("hand-made", version=version)
    urls = {"Homepage": "https://alpha.example", "Library": "https://vendor.example/build"}
    site.plugin("alpha", requires=("hand-made<1; extra == 'lib'",), extras=("lib",), urls=urls)
    found = record("alpha")
    assert found.state is (PluginState.VERSION_CONFLICT if version else PluginState.LIBRARY_MISSING)
    assert found.advice == "see https://vendor.example/build"


@pytest.mark.parametrize(
    ("installed", "state"),
    [
        ({}, PluginState.LIBRARY_MISSING),
        ({"vendor-cu13": "2.0"}, PluginState.AVAILABLE),
        ({"vendor-cu12": "1.0", "vendor-cu13": "2.0"}, PluginState.AVAILABLE),
        ({"vendor-cu12": "1.0"}, PluginState.VERSION_CONFLICT),
    ],
)
def test_one_of_several_libraries(site: Site, installed: dict[str, str], state: PluginState) -> None:
    for name, version in installed.items():
        site.distribution(name, version=version)
    requires = ("vendor-cu12>=2; extra == 'lib-cu12'", "vendor-cu13>=2; extra == 'lib-cu13'")
    site.plugin("alpha", requires=requires, extras=("lib-cu12", "lib-cu13"))
    found = record("alpha")
    assert found.state is state
    if not installed:
        assert found.why == "it needs one of vendor-cu12, vendor-cu13, and none of them is installed"
        assert found.advice == "pip install 'plugin-alpha[EXTRA]' with one of lib-cu12, lib-cu13"


def test_library_of_another_version(site: Site) -> None:
    site.distribution("Vendor.Library", version="1.9")
    site.plugin("alpha", requires=('vendor_library>=2.1; extra == "lib"',))
    found = record("alpha")
    assert found.state is PluginState.VERSION_CONFLICT
    assert found.why == "it needs vendor_library>=2.1, and vendor_library 1.9 is installed"
    assert found.advice == "pip install 'vendor_library>=2.1'"


@pytest.mark.parametrize(
    "line",
    [
        "vendor-library>=2.1; extra == 'lib'",
        "vendor-library; extra == 'lib'",
        "vendor-library>=9; extra == 'test'",
        "absent-library; extra == 'lib' and python_version < '3'",
        "absent-library",  # whether what is always needed is there shows at import
    ],
)
def test_fitting_requirements(site: Site, line: str) -> None:
    site.distribution("vendor-library", version="2.2.dev1+cu130")
    site.plugin("alpha", requires=(line,))
    assert record("alpha").state is PluginState.AVAILABLE


def test_an_extra_that_refers_to_another_one(site: Site) -> None:
    site.plugin("alpha", requires=("plugin-alpha[cuda]; extra == 'lib'", "absent-library; extra == 'cuda'"))
    assert record("alpha").why == "it needs absent-library, which is not installed"


def test_extras_that_refer_to_each_other(site: Site) -> None:
    site.plugin("alpha", requires=("plugin-alpha[cuda]; extra == 'lib'", "plugin-alpha[lib]; extra == 'cuda'"))
    assert record("alpha").state is PluginState.AVAILABLE


@pytest.mark.parametrize(
    ("specifier", "advice"),
    [
        (">=0.6", "pip install 'thunder-core>=0.6'"),
        ("~=1.0", "pip install 'thunder-core~=1.0'"),
        ("<0.5", "pip install --upgrade plugin-alpha"),
        ("==0.4.*", "pip install --upgrade plugin-alpha"),
    ],
)
def test_another_version_of_thunder(site: Site, specifier: str, advice: str) -> None:
    site.plugin("alpha", requires=(f"thunder_core{specifier}",))
    found = record("alpha")
    assert found.state is PluginState.VERSION_CONFLICT
    assert "and thunder_core 0.5.0 is installed" in found.why
    assert found.advice == advice


@pytest.mark.parametrize("line", ["thunder-core>=0.5", "thunder-core", "thunder-core-extras>=9"])
def test_this_version_of_thunder(site: Site, line: str) -> None:
    site.plugin("alpha", requires=(line,))
    assert record("alpha").state is PluginState.AVAILABLE


def test_a_requirement_that_cannot_be_read(site: Site) -> None:
    site.plugin("alpha", requires=("library (>=2.1.*!; extra == 'lib'",))
    found = record("alpha")
    assert found.state is PluginState.FAILED
    assert "has a requirement that cannot be read" in found.why


# ----------------------------------------------------------------------------------------------------- interface


@pytest.mark.parametrize(
    ("declared", "why", "advice"),
    [
        ("0", "written for number 0", "pip install --upgrade plugin-alpha"),
        ("99", "written for number 99", "pip install --upgrade thunder-core"),
        ("new", "written for 'new', which is not a number,", "pip install --upgrade plugin-alpha"),
    ],
)
def test_another_interface(site: Site, declared: str, why: str, advice: str) -> None:
    site.plugin("alpha", interfaces={"alpha": declared})
    found = record("alpha")
    assert found.state is PluginState.API_MISMATCH
    assert why in found.why
    assert found.why.endswith(f"this Thunder has number {API}")
    assert found.advice == advice


def test_this_interface(site: Site) -> None:
    site.plugin("alpha", interfaces={"alpha": str(API), "beta": "99"})
    assert record("alpha").state is PluginState.AVAILABLE


# --------------------------------------------------------------------------------------------------------- names


def test_a_clash_names_both_distributions(site: Site) -> None:
    site.distribution("one", version="1.2", plugins={"alpha": "m"})
    site.distribution("other", plugins={"alpha": "n"})
    records = [found for found in host().records if found.name == "alpha"]
    assert [found.state for found in records] == [PluginState.NAME_CLASH] * 2
    with pytest.raises(PluginError, match=r"'alpha' cannot be used: one 1\.2 and other 1\.0 offer") as raised:
        host().load("alpha")
    assert raised.value.advice == ("pip uninstall one", "or pip uninstall other")


def test_the_name_of_the_core_is_taken(site: Site) -> None:
    site.distribution("impostor", plugins={"core": "m"})
    core, impostor = [found for found in host().records if found.name == "core"]
    assert (core.distribution, core.state) == ("thunder-core", PluginState.AVAILABLE)
    assert (impostor.distribution, impostor.state) == ("impostor", PluginState.NAME_CLASH)
    assert host().load("core").distribution == "thunder-core"
    assert [found.state for found in host().records if found.distribution == "impostor"] == [PluginState.NAME_CLASH]


def test_one_distribution_found_twice_is_no_clash(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.distribution("My.Plugin", version="2.0", plugins={"alpha": "m"})
    site.distribution("my-plugin", version="1.0", plugins={"alpha": "m", "gone": "m"}, folder=tmp_path / "later")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "later")])
    assert (record("alpha").version, record("alpha").state) == ("2.0", PluginState.AVAILABLE)
    assert "gone" not in {found.name for found in host().records}


def test_a_version_without_plugins_hides_an_older_one(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.distribution("my-plugin", version="2.0")
    site.distribution("my-plugin", version="1.0", plugins={"gone": "m"}, folder=tmp_path / "later")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "later")])
    assert "gone" not in {found.name for found in host().records}


def test_what_an_interrupted_installation_left_is_no_plugin(site: Site) -> None:
    info = site.distribution("plugin-alpha", plugins={"alpha": "m"})
    info.rename(info.with_name("~lugin_alpha-1.0.dist-info"))
    nameless = site.distribution("plugin-beta", plugins={"beta": "m"})
    (nameless / "METADATA").unlink()
    reset_host()
    assert not {found.name for found in host().records} & {"alpha", "beta"}


def test_metadata_that_is_no_text_does_not_stop_the_host(site: Site) -> None:
    info = site.distribution("plugin-alpha", plugins={"alpha": "m"})
    (info / "METADATA").write_bytes(b"Name: \xff\xfe\n")
    (info / "entry_points.txt").write_bytes(b"[thunder.plugins]\n\xff = m\n")
    assert host().records[0].name == "core"


def test_a_distribution_in_an_archive(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = site.distribution("zipped", plugins={"alpha": "m"}, folder=tmp_path / "unpacked")
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        for file in info.iterdir():
            archive.write(file, f"{info.name}/{file.name}")
    monkeypatch.syspath_prepend(str(tmp_path / "archive.zip"))
    assert record("alpha").distribution == "zipped"


def test_an_egg_folder(site: Site) -> None:
    info = site.folder / "plugin_alpha.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Name: plugin-alpha\nVersion: 3.1\n")
    (info / "requires.txt").write_text("\n[lib]\nno-such-library>=2\n")
    (info / "entry_points.txt").write_text("# written by setuptools\n[thunder.plugins]\nalpha=m:plugin\n")
    found = record("alpha")
    assert (found.version, found.state) == ("3.1", PluginState.LIBRARY_MISSING)


# -------------------------------------------------------------------------------------------------------- process


def test_it_is_looked_for_once(site: Site) -> None:
    site.plugin("alpha")
    assert record("alpha") is record("alpha")
    site.plugin("beta")
    assert "beta" not in {found.name for found in host().records}
    reset_host()
    assert record("beta").state is PluginState.AVAILABLE


def test_the_benchmark_finds_its_plugins(tmp_path: Path) -> None:
    plugin_discovery.install(tmp_path)
    found = in_fresh_process(plugin_discovery.seconds_to_discover, threads=1, folder=str(tmp_path))
    assert found["plugins"] == plugin_discovery.PLUGINS


def test_a_project_of_the_repository_that_is_absent() -> None:
    class WithoutFusion(Installed):
        def version(self, name: str) -> str | None:
            return None if name == "thunder-fusion" else super().version(name)

    installed = WithoutFusion()
    inductor = next(found for found in installed.with_plugins() if found.name == "thunder-plugin-inductor")
    finding = unmet_requirement(inductor, installed)
    assert finding is not None
    assert finding.state is PluginState.LIBRARY_MISSING
    assert finding.why == "it needs thunder-fusion>=0.1, which is not installed"
    assert finding.advice.startswith("pip install ")
    assert finding.advice.endswith("inductor")
    assert "plugins/fusion" in finding.advice
