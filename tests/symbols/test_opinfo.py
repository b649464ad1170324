"""Every operator of PyTorch's database, in each of its spellings, means the same through its symbol."""

import pytest

pytest.importorskip("numpy")
pytest.importorskip("expecttest")

from tests.symbols.resolving import resolved
from thunder_testing.opinfo import operator_names, run_operator
from thunder_testing.outcome import Status

pytestmark = pytest.mark.filterwarnings("ignore")
OF_EACH_KIND = (
    "add",  # a method, an operator of Python, and in place
    "__radd__",
    "__getitem__",
    "svd",  # several results
    "nn.functional.dropout",
    "view_as",
    "randn_like",
    "linalg.norm",
)
OTHERS = [name for name in (*operator_names(), *operator_names(None)) if name not in OF_EACH_KIND]


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_an_operator_of_each_kind(name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.battery
def test_resolved_operator_behaves_as_eager(name: str) -> None:
    check(name)


def check(name: str) -> None:
    outcome = run_operator(name, resolved)
    assert outcome.status in {Status.PASSED, Status.SKIPPED}, outcome.message
