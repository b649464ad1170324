"""What ``thunder new`` writes, in a fresh environment: its tests pass as it is, and fail for wrong kernels."""

import re

import pytest

from tests.command_line.environment import environment_with_commands

# What is changed in a file of the plugin, and the test that has to notice.
MISTAKES = {
    "forward": ("kernels.py", "x.square().mean(-1, keepdim=True) + eps", "x.square().mean(-1, keepdim=True)"),
    "backward": ("kernels.py", "(inner - x * (inner * x)", "(inner - x * (cotangent * x)"),
    "check": ("executor.py", "    if len(normalized_shape) != 1:", "    if False:"),
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The environment, and the directory with the plugin."""
    folder = tmp_path_factory.mktemp("scaffold")
    with environment_with_commands(folder / "environment") as environment:
        for line in ("thunder new my_kernels", "pip install --editable my_kernels"):
            done = environment.run(line, folder)
            assert done.returncode == 0, done.stdout
        yield environment, folder


@pytest.mark.slow
def test_tests_of_a_new_plugin_pass_as_they_are(installed):
    environment, folder = installed
    done = environment.run("pytest", folder / "my_kernels")
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 10
    assert "warning" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_tests_of_a_new_plugin_notice_mistakes(installed, mistake):
    environment, folder = installed
    name, right, wrong = MISTAKES[mistake]
    path = folder / "my_kernels" / "src" / "my_kernels" / name
    source = path.read_text()
    assert source.count(right) == 1
    path.write_text(source.replace(right, wrong))
    try:
        done = environment.run("pytest --exitfirst", folder / "my_kernels")
    finally:
        path.write_text(source)
    assert done.returncode == 1, done.stdout
    assert "failed" in done.stdout


def test_new_plugin_is_found_and_used(installed):
    environment, folder = installed
    (folder / "program.py").write_text("import torch\nmodel = torch.nn.RMSNorm(8)\ninputs = torch.ones(2, 8)\n")
    listed = environment.run("THUNDER_PLUGINS=my_kernels thunder plugins | grep ^my_kernels", folder)
    assert re.match(
        r"my_kernels +thunder-plugin-my-kernels +0.1.0 +loaded +executors: my_kernels +-\n", listed.stdout
    ), listed.stdout
    explained = environment.run("thunder explain program.py:model --executors my_kernels | grep rms_norm", folder)
    assert explained.stdout.split()[:4] == ["1", "inference", "torch.nn.functional.rms_norm", "my_kernels"]
