"""Effects of operators from their schemas."""

import torch

from thunder_core.symbols.schema import MutatedArgument, schema_effects, schema_is_random, written_values


def test_pure_operator_writes_nothing() -> None:
    assert schema_effects(torch.ops.aten.add.Tensor) == ()


def test_in_place_operator_writes_its_first_argument() -> None:
    assert schema_effects(torch.ops.aten.add_.Tensor) == (MutatedArgument("self", 0),)


def test_out_argument_is_keyword_only() -> None:
    assert schema_effects(torch.ops.aten.add.out) == (MutatedArgument("out", None),)


def test_packet_has_the_effects_of_its_overloads_where_arguments_are_given() -> None:
    effects = schema_effects(torch.ops.aten.add)
    x, out = torch.ones(2), torch.ones(2)
    assert written_values(effects, (x, x), {}) == ()
    assert written_values(effects, (x, x), {"out": out}) == (out,)


def test_running_statistics_of_batch_norm() -> None:
    effects = schema_effects(torch.ops.aten._native_batch_norm_legit.default)
    assert [item.name for item in effects] == ["running_mean", "running_var"]


def test_custom_operator() -> None:
    @torch.library.custom_op("thunder_tests::scale_", mutates_args={"x"})
    def scale_(factor: float, x: torch.Tensor) -> None:
        x.mul_(factor)

    assert schema_effects(scale_) == (MutatedArgument("x", 1),)
    assert schema_effects(torch.ops.thunder_tests.scale_) == (MutatedArgument("x", 1),)
    assert schema_effects(torch.ops.thunder_tests.scale_.default) == (MutatedArgument("x", 1),)


def test_functions_without_schema_are_unknown() -> None:
    assert schema_effects(torch.add) is None
    assert schema_is_random(torch.add) is None


def test_random_operators() -> None:
    assert schema_is_random(torch.ops.aten.bernoulli)
    assert schema_is_random(torch.ops.aten.native_dropout.default)
    assert not schema_is_random(torch.ops.aten.add.Tensor)
