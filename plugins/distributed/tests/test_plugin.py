"""The package as a plugin."""

from __future__ import annotations

import torch

import thunder
import thunder_plugin_distributed
from thunder_plugin_distributed import plugin
from thunder_testing import package_suite

test_package = package_suite(__file__)


def test_the_transforms_have_the_names_of_their_specifications() -> None:
    specs = plugin.thunder_transforms()
    transforms = (
        thunder_plugin_distributed.BucketCollectives(),
        thunder_plugin_distributed.ScheduleCollectives(),
        thunder_plugin_distributed.MergeCollectives(),
        thunder_plugin_distributed.RegatherParameters(0),
        thunder_plugin_distributed.OverlapGradients(),
        thunder_plugin_distributed.Agreement(),
    )
    assert [spec.name for spec in specs] == [transform.name for transform in transforms]


def test_nothing_runs_without_a_process_group() -> None:
    compiled = thunder.jit(torch.cos)
    compiled(torch.ones(2))
    assert "schedule_collectives" not in [stage.name for stage in thunder.explain(compiled).entries[0].stages]
