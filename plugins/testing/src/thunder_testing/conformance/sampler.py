"""The calls that an operation is tested with: a few samples that differ, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from thunder_testing.conformance.call import Call, describe_call
from thunder_testing.conformance.coverage import covering
from thunder_testing.conformance.layouts import is_expanded, layouts
from thunder_testing.conformance.recording import is_offered
from thunder_testing.conformance.samples import accepts, calls, draws, finds_positions
from thunder_testing.conformance.subject import Subject
from thunder_testing.conformance.variants import as_matrices, shapes, with_negative_dimensions


@dataclass(frozen=True, eq=False)
class Sampler:
    """Makes calls, and keeps them.

    Attributes:
        limit: number of samples of each operation, device and dtype.
    """

    limit: int
    _made: dict[tuple[Subject, str, str, torch.dtype], list[Call]] = field(default_factory=dict, repr=False)

    def calls(self, subject: Subject, kind: str, device: str, dtype: torch.dtype) -> list[Call]:
        """The calls of a kind: ``base``, those with other ``layouts``, or with other ``shapes``."""
        key = (subject, kind, device, dtype)
        if key not in self._made:
            self._made[key] = self._make(subject, kind, device, dtype)
        return self._made[key]

    def _make(self, subject: Subject, kind: str, device: str, dtype: torch.dtype) -> list[Call]:
        if kind == "base":
            found = calls(subject, device, dtype)
            found = _enriched(found) if subject.checks_shapes else found
            return _chosen(subject, found, self.limit) or found[:1]
        base = self.calls(subject, "base", device, dtype)
        if kind == "layouts":
            accepted = [call for call in layouts(base) if accepts(call)]
            return [call for call in accepted if not (is_expanded(call) and finds_positions(call))]
        return list(shapes(base, accepts)) if subject.checks_shapes else []


def _chosen(subject: Subject, found: Sequence[Call], limit: int) -> list[Call]:
    """A few that differ; at most one that draws random numbers if others do not, since its values are not compared."""

    def wanted(call: Call) -> bool:
        return is_offered(subject, call)

    random = [call for call in found if draws(call)]
    others = covering([call for call in found if call not in random], limit, wanted)
    if not others:
        return covering(random, limit, wanted)
    return [*others[: max(limit - 1, 1) if random else limit], *covering(random, 1 if limit > 1 else 0, wanted)]


def _enriched(found: Sequence[Call]) -> list[Call]:
    """The calls; with two dimensions if none has as many, since layouts differ from there on; counted from the last."""
    made = list(found)
    if not any(tensor.ndim > 1 and tensor.numel() > 1 for call in found for tensor in call.tensors()):
        made += [call for call in map(as_matrices, found) if accepts(call)]
    for call in found:
        negative = with_negative_dimensions(call)
        if describe_call(negative) != describe_call(call) and accepts(negative):
            made.append(negative)
    return made
