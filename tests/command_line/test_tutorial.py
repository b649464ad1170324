"""The tutorial of docs/plugins.md: its files, in a new plugin, pass the conformance suite, and are short."""

import re

import pytest

from tests.command_line.environment import ROOT, environment_with_commands

FILE = re.compile(r"^```py\n# (?P<path>\S+)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


def files() -> dict[str, str]:
    return {found["path"]: found["code"] for found in FILE.finditer((ROOT / "docs" / "plugins.md").read_text())}


@pytest.mark.slow
def test_conformance(tmp_path):
    with environment_with_commands(tmp_path / "environment") as environment:
        done = environment.run("thunder new my_kernels && pip install --editable my_kernels", tmp_path)
        assert done.returncode == 0, done.stdout
        for path, code in files().items():
            (tmp_path / "my_kernels" / path).write_text(code)
        (tmp_path / "my_kernels" / "tests" / "test_use.py").unlink()
        done = environment.run("pytest", tmp_path / "my_kernels")
        assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 10


def test_what_an_author_writes_is_at_most_forty_ops():
    written = [code for path, code in files().items() if path.startswith("src/")]
    assert len(written) == 2
    lines = [line for code in written for line in code.splitlines() if line.strip()]
    assert len(lines) <= 40
