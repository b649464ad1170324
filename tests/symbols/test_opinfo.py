"""Every operator of PyTorch's database, in each of its spellings, means the same through its symbol."""

import pytest

pytest.importorskip("numpy")
pytest.importorskip("expecttest")

from tests.symbols.resolving import resolved
from thunder_testing.opinfo import operator_names, run_operator
from thunder_testing.outcome import Status

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("name", [*operator_names(), *operator_names(None)])
def test_resolved_operator_behaves_as_eager(name: str) -> None:
    outcome = run_operator(name, resolved)
    assert outcome.status in {Status.PASSED, Status.SKIPPED}, outcome.message
