"""What users type in a fresh environment.

The sessions of ``docs/command_line.md``, in order, print what they show: ``...`` stands for anything, as in doctests,
and what is under ``<!-- file: NAME -->`` is in that file. They create a plugin, whose tests pass as they are, fail for
wrong kernels, and pass with the files of the tutorial of ``docs/plugins.md``.
"""

import contextlib
import doctest
import os
import re
from dataclasses import dataclass

import pytest

from tests.batteries import is_sample
from tests.command_line.environment import ROOT, Environment, environment_with_commands

pytestmark = pytest.mark.battery  # one day in seven, all together: they share the environment

DOCUMENT = ROOT / "docs" / "command_line.md"
PIECE = re.compile(
    r"^```console\n(?P<session>.*?)^```|^<!-- file: (?P<file>\S+) -->\n```\w+\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"^\$ (?P<line>.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)
# Whatever else is installed here is not in the document.
PLUGINS = (
    "my_kernels,composites,cudagraphs,layouts,matmul,simplify,distributed,subclasses,torchscript,training,debug,tuning"
)
# What is changed in a file of the plugin, and the test that has to notice.
MISTAKES = {
    "forward": ("kernels.py", "x.square().mean(-1, keepdim=True) + eps", "x.square().mean(-1, keepdim=True)"),
    "backward": ("kernels.py", "(inner - x * (inner * x)", "(inner - x * (cotangent * x)"),
    "check": ("executor.py", "    if len(normalized_shape) != 1:", "    if False:"),
}
TUTORIAL = re.compile(r"^```py\n# (?P<path>\S+)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Typed:
    """An environment in which the sessions were typed.

    Attributes:
        environment: with the plugin, installed as editable.
        wrong: the commands that printed something else than the document, with their output.
        plugin: its folder.
    """

    environment: Environment
    wrong: list[str]
    plugin: os.PathLike

    def run_tests(self, *, until_one_fails=False):
        """Run the plugin's tests.

        Of all that are to pass, a sample of batteries has one call of each check and dtype of the conformance suite:
        another one each day, of the five that each operation of the plugins has at least.
        """
        options = "--exitfirst" if until_one_fails else ""
        if is_sample() and not until_one_fails:
            kept = int(os.environ["THUNDER_TEST_SEED"]) % 5
            left_away = " or ".join(f"-{number}]" for number in range(10) if number != kept)
            options += f' -k "not ({left_away})"'
        return self.environment.run(f"pytest {options}", self.plugin)

    @contextlib.contextmanager
    def changed(self, files):
        """Files of the plugin have other texts, by their path; those without text are not there."""
        before = {self.plugin / path: (self.plugin / path).read_text() for path in files}
        try:
            for path, text in zip(before, files.values(), strict=True):
                path.unlink() if text is None else path.write_text(text)
            yield
        finally:
            for path, text in before.items():
                path.write_text(text)


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("typed")
    directory = folder / "work"
    directory.mkdir()
    wrong = []
    with environment_with_commands(folder / "environment") as environment:
        for piece in PIECE.finditer(DOCUMENT.read_text()):
            if piece["file"] is not None:
                (directory / piece["file"]).write_text(piece["text"])
                continue
            for command in COMMAND.finditer(piece["session"]):
                printed = environment.run(command["line"], directory, THUNDER_PLUGINS=PLUGINS).stdout
                expected, actual = _plain(command["output"]), _plain(printed)
                if not doctest.OutputChecker().check_output(expected, actual, doctest.ELLIPSIS):
                    wrong.append(f"$ {command['line']}\n{printed}")
        yield Typed(environment, wrong, directory / "my_kernels")


def _plain(text):
    """Without what the names of other plugins decide: the widths of columns."""
    return re.sub(" {2,}", "  ", text)


def _tutorial():
    document = (ROOT / "docs" / "plugins.md").read_text()
    return {found["path"]: found["code"] for found in TUTORIAL.finditer(document)}


def test_sessions_print_what_they_show(typed):
    assert not typed.wrong, "\n".join(typed.wrong)


def test_sessions_show_every_command():
    text = DOCUMENT.read_text()
    shown = {command["line"].split()[1] for command in COMMAND.finditer(text) if command["line"].startswith("thunder")}
    assert {
        "--help",
        "plugins",
        "doctor",
        "schema",
        "cache",
        "config",
        "explain",
        "simulate",
        "show",
        "new",
        "tune",
    } <= shown


def test_tests_of_a_new_plugin_pass_as_they_are(typed):
    done = typed.run_tests()
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 10
    assert "warning" not in done.stdout


@pytest.mark.parametrize(("name", "option"), [("my_chains", "--front-end"), ("my_pass", "--transform")])
def test_tests_of_other_new_plugins_pass_as_they_are(typed, tmp_path, name, option):
    typed.environment.run(f"thunder new {name} {option}", tmp_path)
    typed.environment.run(f'pip install --editable "{name}[test]"', tmp_path)
    done = typed.environment.run("pytest", tmp_path / name, THUNDER_VERIFY="1")
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 10
    assert "warning" not in done.stdout


@pytest.mark.parametrize("mistake", MISTAKES)
def test_tests_of_a_new_plugin_notice_mistakes(typed, mistake):
    name, right, wrong = MISTAKES[mistake]
    path = f"src/my_kernels/{name}"
    source = (typed.plugin / path).read_text()
    assert source.count(right) == 1
    with typed.changed({path: source.replace(right, wrong)}):
        done = typed.run_tests(until_one_fails=True)
    assert done.returncode == 1, done.stdout
    assert "failed" in done.stdout


def test_tests_of_the_tutorials_plugin_pass(typed):
    with typed.changed(_tutorial() | {"tests/test_use.py": None}):
        done = typed.run_tests()
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 10


def test_what_an_author_of_the_tutorial_writes_is_at_most_forty_lines():
    written = [code for path, code in _tutorial().items() if path.startswith("src/")]
    assert len(written) == 2
    lines = [line for code in written for line in code.splitlines() if line.strip()]
    assert len(lines) <= 40
