"""Checks of values in loops that several threads share."""

from __future__ import annotations

import pytest

from thunder_plugin_inductor.caught_errors import with_caught_errors
from thunder_testing.forked import run_forked

SHARED = """
void kernel()
{
    #pragma omp parallel num_threads(2)
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for collapse(2)
            for(x0)
            {
                for(x1)
                {
                    {
                        TORCH_CHECK(a);
                    }
                }
            }
        }
        #pragma omp single
        {
            (tmp0 ? 0 : (throw b, 0));
        }
    }
    #pragma omp parallel num_threads(2)
    {
        #pragma omp for
        for(x0)
        {
            c;
        }
    }
}
"""

PROGRAM = """
import torch, thunder
import torch.nn.functional as F

torch.set_num_threads(2)
torch.manual_seed(0)
x, at = torch.randn(1000, 500), torch.arange(4000) % 500
programs = [
    lambda x, at: (x + 1)[at] * 2,
    lambda x, at: F.embedding(at, x).sum(1),
    lambda x, at: torch.index_add(x * 2, 0, at, x.repeat(4, 1)) * 2,
    lambda x, at: x.scatter(1, at.view(1000, 4), 1.0) * 2,
    lambda x, at: F.binary_cross_entropy(x * 0 + 0.5 + (at > 1000).any(), x * 0),
]
for number, program in enumerate(programs):
    compiled = thunder.jit(program, executors=["inductor"])
    torch.testing.assert_close(compiled(x, at), program(x, at), rtol=1e-3, atol=1e-3)
    for place in (0, 2000, -1):
        wrong = at.clone()
        wrong[place] = 5000
        try:
            compiled(x, wrong)
            print("nothing")
        except (IndexError, RuntimeError) as error:
            print(number, end=" ")
    torch.testing.assert_close(compiled(x, at), program(x, at), rtol=1e-3, atol=1e-3)
"""


def test_what_is_shared_catches() -> None:
    lines = [line.strip() for line in with_caught_errors(SHARED).splitlines()]
    single, check = lines.index("#pragma omp single"), lines.index("TORCH_CHECK(a);")
    assert lines[check - 4 : check - 1] == [
        "{",
        "if (thunder_failed_1.load(std::memory_order_relaxed)) continue;",
        "try {",
    ]
    assert lines[check + 2 : check + 5] == [
        "} catch (...) {",
        "if (!thunder_failed_1.exchange(true)) thunder_error_1 = std::current_exception();",
        "}",
    ]
    assert lines[single + 2] == "try {"
    assert lines.count("if (thunder_error_1) std::rethrow_exception(thunder_error_1);") == 1
    assert "thunder_failed_2" not in "".join(lines)


def test_what_checks_nothing_stays() -> None:
    source = SHARED.replace("TORCH_CHECK(a);", "a;").replace("throw b", "b")
    assert with_caught_errors(source) == source


@pytest.mark.needs_compiler
@pytest.mark.slow
def test_errors_in_several_threads_do_not_end_the_process() -> None:
    done = run_forked(PROGRAM)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [str(number) for number in range(5) for _ in range(3)]
