"""``thunder config check`` accepts what ``thunder.jit`` accepts, and nothing else; see also
`tests.config.test_operation_patterns`, about patterns that match no operation, and `tests.config.test_malformed`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import thunder
from thunder.command_line.main import main
from thunder.config import check_config
from thunder_core.errors import ThunderError
from thunder_core.plugins.host import host

FILES: dict[str, bytes] = {
    "good.txt": b"cache: same input\n",
    "good.yaml": b"cache: same input\n",
    "GOOD.YAML": b"cache: same input\n",
    "good": b"cache: same input\n",
    "fused": b"cache: nonsense\n",
    "empty.yaml": b"",
    "comment.yml": b"# nothing\n",
    "bom.yaml": b"\xef\xbb\xbfcache: same input\n",
    "windows.yaml": b"cache: same input\r\nrecompute: none\r\n",
    "latin.yaml": b"cache: \xe9\n",
    "list.yaml": b"- fast\n",
    "null.yaml": b"~\n",
    "text.yaml": b"fused\n",
    "two.yaml": b"cache: same input\n---\ncache: no caching\n",
    "tagged.yaml": b"cache: !!str same input\n",
    "anchors.yaml": b"executors: &e [fast]\nrequires: []\n",
    "good.json": b'{"cache": "same input"}',
    "trailing.json": b'{"cache": "same input",}',
    "yaml.json": b"cache: same input\n",
    "empty.json": b"",
    "extends.yaml": b"extends: fused\n",
    "extends_text.yaml": b"extends: good.txt\n",
    "extends_path.yaml": b"extends: ./good.txt\n",
    "extends_itself.yaml": b"extends: extends_itself.yaml\n",
    "extends_nothing.yaml": b"extends: absent.yaml\n",
    "made.yaml": b"executors: [fast, slow]\ntransforms: [quantize]\n",
    "absent_object.yaml": b"executors: [absent]\n",
    "absent_object_optional.yaml": b"executors: [absent: {optional: true}]\n",
    "defect.yaml": b"executors: [fast, defect]\n",
    "needs_device.yaml": b"executors: [needs_device]\n",
    "needs_device_optional.yaml": b"executors: [needs_device: {optional: true}]\n",
    "nothing.yaml": b"executors: [nothing]\n",
    "renamed.yaml": b"executors: [renamed]\n",
    "contradiction.yaml": b"transforms: [lonely]\n",
    "no_contradiction.yaml": b"transforms: [lonely, constant_folding: {enabled: false}]\n",
    "broken.yaml": b"executors: [broken]\n",
    "vendor.yaml": b"executors: [vendor]\n",
    "vendor_optional.yaml": b"executors: [vendor: {optional: true}]\n",
    "front_end.yaml": b"front_end: walk\n",
    "no_patterns.yaml": b"executors: [fast: {include: []}]\n",
    "wrong_patterns.yaml": b"executors: [fast: {include: 3}]\n",
    "symbolic.yaml": b"cache: symbolic values\n",
    "requires.yaml": b"requires: [thunder-plugin-absent]\n",
}
NAMES = [
    *FILES,
    *(f"./{name}" for name in ("good.txt", "good", "fused", "GOOD.YAML", "absent")),
    *("default", "fused_more", "npu", "nvfuser.fused", "lost", "nowhere", "absent", "", " ", ".", "..", "fast"),
    *("folder", "folder.yaml", "folder/", "a\0b", "absent.yaml", "~/absent-configuration.yaml", "/dev/null"),
]


def both(name: str) -> tuple[str, str]:
    """What ``thunder.jit`` and ``thunder config check`` say: nothing where they accept it."""
    try:
        thunder.jit(lambda x: x, config=name)
        refused = ""
    except ThunderError as error:
        refused = str(error)
    return refused, "" if main(["config", "check", "--", name]) == 0 else "refused"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.battery
def test_files_and_names(name: str) -> None:
    for file, content in FILES.items():
        Path(file).write_bytes(content)
    Path("folder").mkdir()
    Path("folder.yaml").mkdir()
    by_jit, by_check = both(name)
    assert bool(by_jit) == bool(by_check), by_jit


def test_a_file_that_reads_like_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    Path("good.txt").write_bytes(FILES["good.txt"])
    assert main(["config", "check", "good.txt"]) == 1
    printed = capsys.readouterr().out
    assert "there is no preset 'good.txt'" in printed
    assert "given with a folder: './good.txt'" in printed
    with pytest.raises(thunder.OptionError, match=r"given with a folder: './good.txt'"):
        thunder.jit(lambda x: x, config="good.txt")
    assert main(["config", "check", "./good.txt"]) == 0


def test_all_that_cannot_be_made_is_reported_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.yaml").write_text("executors:\n- needs_device\n- fast\n- defect\ntransforms:\n- lonely\n")
    assert main(["config", "check", "c.yaml"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert lines[0].startswith("c.yaml:2: executors[0]: the executor 'needs_device'")
    assert lines[1].startswith("c.yaml:4: executors[1]: ") or lines[1].startswith("c.yaml:4: executors[2]: ")
    assert lines[2].startswith("c.yaml:5: transforms: ")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.yaml").write_text("cache: same input\n")
    assert main(["config", "check", "c.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"config": "c.yaml", "problems": []}
    assert main(["config", "check", "fused", "--json", "--resolve"]) == 0
    resolved = json.loads(capsys.readouterr().out)["resolved"]
    assert (resolved["recompute"], resolved["executors"][1]["fast"]["optional"]) == ("aggressive", False)
    Path("c.yaml").write_text("executors: [vendor]\ncach: 1\n")
    assert main(["config", "check", "c.yaml", "--json", "--resolve"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert "resolved" not in told
    assert [(problem["file"], problem["line"], problem["place"]) for problem in told["problems"]] == [
        ("c.yaml", 1, "executors[0]"),
        ("c.yaml", 2, "cach"),
    ]
    assert told["problems"][0]["advice"] == ["pip install 'thunder-plugin-vendor[lib]'"]


def test_options_are_checked_although_the_library_is_missing(tmp_path: Path) -> None:
    Path("vendor_plugin.py").write_text(
        "from thunder_core.plugins import ExecutorOptions, ExecutorSpec, hookimpl\n\n\n"
        "class Options(ExecutorOptions):\n    size: int = 1\n\n\n"
        "@hookimpl\ndef thunder_executors():\n"
        "    return [ExecutorSpec('vendor', 'vendor_objects:make', Options)]\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        for name in ("vendor", "vendor.vendor"):
            optional, required = [
                [str(problem) for problem in check_config({"executors": [{name: {"sise": 2, "optional": optional}}]})]
                for optional in (True, False)
            ]
            assert optional == [f"executors[0].{name}.sise: unknown option; did you mean 'size'?"]
            assert required[0] == optional[0]
            assert required[1].startswith("executors[0]: the plugin 'vendor'")
            assert "a-vendor-library, which is not installed" in required[1]
            assert len(required) == 2
            assert check_config({"executors": [{name: {"size": 2, "optional": True}}]}) == []
        assert len(check_config({"executors": ["vendor"]})) == 1
        assert {record.name: record.state.value for record in host().records}["vendor"] == "library missing"
    sys.modules.pop("vendor_plugin")
