"""How suites are made, and what pytest shows of them."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import defective as d
import pytest
import torch
import torch.nn.functional as F
from forked_pytest import run_pytest

from thunder_core.errors import ConfigError, ExecutorError
from thunder_core.executors import Claim, OperatorExecutor
from thunder_testing import ConformanceError, ConformanceFailure, executor_suite
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.snippet import snippet
from thunder_testing.conformance.suite import executor_cases

FLOAT = (torch.float32,)


def failure(executor: OperatorExecutor, pattern: str, **options: Any) -> str:
    """The message of the first test with such an id that fails."""
    for case in executor_cases(executor, dtypes=FLOAT, **options):
        if fnmatchcase(case.id, pattern):
            try:
                case.check()
            except ConformanceFailure as found:
                return str(found)
    raise AssertionError(f"nothing fails among {pattern}")


def test_message() -> None:
    text = failure(d.claims(run=d.wrong_value), f"{d.SILU}-forward-float32-2")
    lines = text.splitlines()
    assert lines[0] == f"kernels, {d.SILU}, forward: the rule of values is broken"
    assert lines[1].startswith("  the result: it is ")
    assert lines[2] == f"  call: {d.SILU}(float32[])"
    assert lines[3] == "  from: sample 2 of OpInfo's 'nn.functional.silu'"
    assert lines[4] == "To see it again:"


@pytest.mark.parametrize(
    ("executor", "identifier"),
    [
        (d.claims(run=d.wrong_value), f"{d.SILU}-forward-float32-2"),
        (d.derivative(backward=d.wrong_gradient), f"{d.SILU}-gradient-float32-2"),
        (d.claims(run=d.ignores_offset), f"{d.SILU}-layouts-float32-*"),
    ],
    ids=["result", "gradient", "layout"],
)
def test_snippet_shows_the_failure(executor: OperatorExecutor, identifier: str) -> None:
    text = failure(executor, identifier)
    code = "\n".join(line[4:] for line in text.partition("To see it again:\n")[2].splitlines())
    assert "# executor: the one that the suite was given" in code
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "snippet", "exec"), {"executor": executor})
    shown = printed.getvalue().splitlines()
    assert len(shown) % 2 == 0
    assert shown[: len(shown) // 2] != shown[len(shown) // 2 :]


TENSORS = {
    "transposed": torch.randn(3, 4).t(),
    "sliced": torch.randn(4, 9)[:, 2:8:2],
    "expanded": torch.randn(1, 3).expand(4, 3),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 3),
    "integers": torch.arange(5),
    "booleans": torch.tensor([[True, False]]),
    "half": torch.randn(3).half(),
    "complex": torch.randn(3, dtype=torch.complex64).conj(),
    "special": torch.tensor([float("inf"), float("nan"), -float("inf")]),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_snippet_makes_equal_tensors(kind: str) -> None:
    x = TENSORS[kind]
    code = snippet(Call("x", torch.clone, (x,), {"memory_format": torch.preserve_format}), (), '["reference"]')
    namespace: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, namespace)
    made = namespace["x0"]
    torch.testing.assert_close(made, x.resolve_conj(), rtol=0, atol=0, equal_nan=True)
    assert kind == "complex" or made.stride() == x.stride()
    assert 'executors=["reference"]' in code


def test_snippet_of_large_tensors() -> None:
    x, g = torch.randn(40, 30).t().requires_grad_(), torch.randn(30, 40)
    code = snippet(Call("x", torch.sin, (x,)), [g], '["reference"]')
    assert code.count("# other values than in the test") == 2
    with contextlib.redirect_stdout(io.StringIO()):
        namespace: dict[str, Any] = {}
        exec(code, namespace)
    assert (namespace["x0"].shape, namespace["x0"].stride()) == (x.shape, x.stride())


def own_operation() -> Iterator[Any]:
    with torch.library._scoped_library("conformance_tests", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        yield torch.ops.conformance_tests.twice.default


def test_samples_for_operations_of_the_author() -> None:
    for twice in own_operation():
        executor = OperatorExecutor("kernels", (Claim(twice, lambda x: x + x),))
        name = "torch.ops.conformance_tests.twice.default"
        assert "never queried, because the suite knows no calls of it" in failure(executor, f"{name}-claims")

        def samples(device: str, dtype: torch.dtype) -> Iterator[Any]:
            if dtype is torch.float32:
                yield (torch.ones(2, 3, device=device),), {}

        cases = executor_cases(executor, samples={name: samples})
        assert {case.id for case in cases} >= {
            f"{name}-claims",
            f"{name}-forward-float32-0",
            f"{name}-layouts-float32-0",
        }
        assert not [case.id for case in cases if "float64" in case.id or "shapes" in case.id]
        for case in cases:
            if "forward" in case.id or "claims" in case.id:
                case.check()


@pytest.mark.slow
def test_executor_by_name_with_options() -> None:
    cases = executor_cases("reference", options={"include": ["torch.sin"]}, dtypes=FLOAT, limit=1)
    names = {case.id.partition("-")[0] for case in cases}
    assert "torch.sin" in names
    assert "torch.exp" not in names


def test_skip_and_ids() -> None:
    cases = executor_cases(d.claims(), dtypes=FLOAT, skip={"*-gradient-*": "no gradients yet"})
    skipped = [case for case in cases if case.skip]
    assert skipped
    assert all("-gradient-" in case.id and case.skip == "no gradients yet" for case in skipped)
    assert len({case.id for case in cases}) == len(cases)
    with pytest.raises(pytest.skip.Exception, match="no gradients yet"):
        skipped[0].run()


def test_devices_are_in_ids() -> None:
    cases = executor_cases(d.claims(), dtypes=FLOAT, devices=("meta",), limit=1)
    assert f"{d.SILU}-claims" in {case.id for case in cases}
    assert all("-meta-float32-" in case.id for case in cases if not case.id.endswith("-claims"))


def test_tolerances() -> None:
    off = d.claims(run=d.wrong_value)
    name = f"{d.SILU}-forward-float32-0"
    for key in (d.SILU, torch.float32, (d.SILU, torch.float32)):
        (case,) = [c for c in executor_cases(off, dtypes=FLOAT, tolerances={key: (0, 1e-2)}) if c.id == name]
        case.check()
    failure(off, name, tolerances={torch.float64: (0, 1e-2)})


def test_mistakes_are_explained() -> None:
    with pytest.raises(ConfigError, match="no_such_kernels"):
        executor_suite("no_such_kernels")
    with pytest.raises(ConformanceError, match="given by name"):
        executor_suite(d.claims(), options={"level": 1})
    with pytest.raises(ConformanceError, match=r"skip=\{'\*-gradeint-\*'.*matches none"):
        executor_suite(d.claims(), skip={"*-gradeint-*": "typo"})
    with pytest.raises(ConformanceError, match=r"there is no operation 'torch\.sliu'"):
        executor_suite(d.claims(), samples={"torch.sliu": lambda device, dtype: ()})
    with pytest.raises(ConformanceError, match=r"samples are given for torch\.sin, but kernels is tested with"):
        executor_suite(d.claims(), samples={torch.sin: lambda device, dtype: ()})
    with pytest.raises(ExecutorError, match=r"claims 'torch\.sliu'"):
        executor_suite(OperatorExecutor("kernels", (Claim("torch.sliu", F.silu),)))


@pytest.mark.slow
def test_pytest_collects_a_suite(tmp_path: Path) -> None:
    (tmp_path / "test_kernels.py").write_text(
        "import torch\n"
        "import defective as d\n"
        "from thunder_testing import executor_suite\n"
        "options = {'dtypes': (torch.float32,), 'limit': 2}\n"
        "test_right = executor_suite(d.claims(), skip={'*-memory-*': 'it is slow'}, **options)\n"
        "test_wrong = executor_suite(d.claims(run=d.fails_on_empty), **options)\n"
    )
    words = "forward-float32-0 or memory-float32-0 or shapes-float32-0"
    done = run_pytest("-v", "-rs", "-W", "error", "-k", words, directory=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    for line in (
        f"test_right[{d.SILU}-forward-float32-0] PASSED",
        f"test_right[{d.SILU}-memory-float32-0] SKIPPED",
        "it is slow",
        f"test_right[{d.SILU}-shapes-float32-0] PASSED",
        f"test_wrong[{d.SILU}-shapes-float32-0] FAILED",
        f"kernels, {d.SILU}, shapes: the rule of runs is broken",
        "ValueError: cannot launch a kernel with 0 blocks",
    ):
        assert line in done.stdout, done.stdout
    assert "executor_cases.py" not in done.stdout  # of the suite's own code nothing is shown
