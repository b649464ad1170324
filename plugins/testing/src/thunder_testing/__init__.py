"""Helpers for tests of compiled programs, executors, transforms and plugin packages, also outside of this project.

Names are imported on first use, because pytest imports a module of this package in every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_testing.compare import Arguments as Arguments
    from thunder_testing.compare import BehaviourMismatch as BehaviourMismatch
    from thunder_testing.compare import assert_same_behaviour as assert_same_behaviour
    from thunder_testing.conformance.failure import ConformanceError as ConformanceError
    from thunder_testing.conformance.failure import ConformanceFailure as ConformanceFailure
    from thunder_testing.conformance.rule_suite import rule_suite as rule_suite
    from thunder_testing.conformance.suite import executor_suite as executor_suite
    from thunder_testing.conformance.transform_suite import transform_suite as transform_suite
    from thunder_testing.difference import Comparison as Comparison
    from thunder_testing.package.suite import package_suite as package_suite
    from thunder_testing.private_names import private_names_suite as private_names_suite

__all__ = [
    "Arguments",
    "BehaviourMismatch",
    "Comparison",
    "ConformanceError",
    "ConformanceFailure",
    "assert_same_behaviour",
    "executor_suite",
    "package_suite",
    "private_names_suite",
    "rule_suite",
    "transform_suite",
]

__getattr__ = lazy_imports(
    __name__,
    {
        "Arguments": "compare",
        "BehaviourMismatch": "compare",
        "Comparison": "difference",
        "ConformanceError": "conformance.failure",
        "ConformanceFailure": "conformance.failure",
        "assert_same_behaviour": "compare",
        "executor_suite": "conformance.suite",
        "package_suite": "package.suite",
        "private_names_suite": "private_names",
        "rule_suite": "conformance.rule_suite",
        "transform_suite": "conformance.transform_suite",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
