"""The checks that a suite makes for each operation and program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from thunder_core.executors import Executor, OperatorExecutor
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.differentiation import differentiates
from thunder_testing.conformance.forward import check_determinism, check_forward, check_memory
from thunder_testing.conformance.gradient import check_gradient, check_gradients_of
from thunder_testing.conformance.pair import check_pair
from thunder_testing.conformance.queries import is_claimed
from thunder_testing.conformance.sampler import Sampler
from thunder_testing.conformance.samples import dtypes_of
from thunder_testing.conformance.subject import Subject
from thunder_testing.conformance.tested import Tested

Check = Callable[[Tested, Subject, Call, Sequence[Call]], None]
"""The last argument is other calls of the same operation."""


def check_variant(tested: Tested, subject: Subject, call: Call, others: Sequence[Call] = ()) -> None:
    """Check results and gradients of a call that is derived from another: with other strides or other shapes."""
    check_forward(tested, subject, call)
    if differentiates(call):
        check_gradients_of(tested, subject, call, tuple(call.differentiable()))


CHECKS: Final[Mapping[str, tuple[str, Check]]] = {
    "memory": ("base", check_memory),
    "forward": ("base", check_forward),
    "gradient": ("base", check_gradient),
    "pair": ("base", check_pair),
    "layouts": ("layouts", check_variant),
    "shapes": ("shapes", check_variant),
    "determinism": ("base", check_determinism),
}
"""By word in test ids: the kind of calls, and the check. Memory is first: writes out of bounds end the process."""

_EVERYTHING: Final = tuple(CHECKS)
_VALUES: Final = ("forward", "gradient", "pair")


@dataclass(frozen=True, eq=False)
class Plan:
    """The checks of an executor.

    An operation that the executor claims gets all checks, for the given dtypes, or by default for the first two
    floating-point dtypes and the first other dtype of which a sample is claimed. Further dtypes get the forward and
    gradient checks, and dtypes that are always declined the forward check. A fusion executor, whose compiler may be
    slow, gets all checks with programs in the first dtype, and with single operations one sample each.

    Attributes:
        tested: the executor.
        devices: the devices to test on.
        dtypes: the dtypes to test with; None: those of the samples.
        sampler: the calls.
    """

    tested: Tested
    devices: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...] | None
    sampler: Sampler
    _claimed: dict[tuple[Subject, str, torch.dtype], bool] = field(default_factory=dict, repr=False)

    def tests(self, subject: Subject) -> Iterator[tuple[str, str, torch.dtype, int]]:
        """``(word, device, dtype, number of the call)`` of each test."""
        for device in self.devices:
            for dtype, words in self.words(subject, device).items():
                for word in words:
                    for number in range(len(self.calls(subject, CHECKS[word][0], device, dtype))):
                        yield word, device, dtype, number

    def base(self, subject: Subject) -> list[Call]:
        """The samples of all devices and dtypes."""
        return [
            call
            for device in self.devices
            for dtype in self.words(subject, device)
            for call in self.calls(subject, "base", device, dtype)
        ]

    def words(self, subject: Subject, device: str) -> dict[torch.dtype, tuple[str, ...]]:
        """The checks by dtype."""
        dtypes = self.dtypes or dtypes_of(subject, device)
        if self.tested.executor.fuses:
            checks_ = {dtype: self._of_fusion(subject, index) for index, dtype in enumerate(dtypes)}
        elif self.dtypes is not None:
            checks_ = dict.fromkeys(dtypes, _EVERYTHING)
        else:
            checks_ = self._by_claims(subject, device, dtypes)
        return {dtype: self._possible(subject, dtype, words) for dtype, words in checks_.items() if words}

    def calls(self, subject: Subject, kind: str, device: str, dtype: torch.dtype) -> list[Call]:
        """The calls of a kind: ``base``, those with other ``layouts``, or with other ``shapes``."""
        return self.sampler.calls(subject, kind, device, dtype)

    def _of_fusion(self, subject: Subject, index: int) -> tuple[str, ...]:
        if subject.calls is None:
            return _VALUES if index == 0 or self.dtypes is not None else ()
        return _EVERYTHING if index == 0 else _VALUES

    def _by_claims(
        self, subject: Subject, device: str, dtypes: Sequence[torch.dtype]
    ) -> dict[torch.dtype, tuple[str, ...]]:
        left = {True: 2, False: 1}
        checks_: dict[torch.dtype, tuple[str, ...]] = {}
        for dtype in dtypes:
            kind = dtype.is_floating_point
            words: tuple[str, ...] = ("forward",)
            if self.is_claimed(subject, device, dtype):
                words = _EVERYTHING if left[kind] else _VALUES
                left[kind] -= bool(left[kind])
            checks_[dtype] = words
        return checks_

    def is_claimed(self, subject: Subject, device: str, dtype: torch.dtype) -> bool:
        """Whether a sample is claimed, with gradients or without."""
        key = (subject, device, dtype)
        if key not in self._claimed:
            self._claimed[key] = any(
                is_claimed(self.tested.executor, subject, variant)
                for call in self.calls(subject, "base", device, dtype)
                for variant in (call, call.copy(tuple(call.differentiable())))
            )
        return self._claimed[key]

    def _possible(self, subject: Subject, dtype: torch.dtype, words: Sequence[str]) -> tuple[str, ...]:
        impossible = set() if dtype.is_floating_point or dtype.is_complex else {"gradient", "pair"}
        if not _may_have_pair(self.tested.plain, subject):
            impossible.add("pair")
        return tuple([word for word in words if word not in impossible])


def _may_have_pair(executor: Executor, subject: Subject) -> bool:
    if isinstance(executor, OperatorExecutor):
        return any(claim.derivative is not None for claim in subject.claims)
    return type(executor).derivative is not Executor.derivative
