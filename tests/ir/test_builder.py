"""Names and storages that are new to a trace."""

from __future__ import annotations

from thunder_core.ir.builder import Builder


def test_names_get_a_number_where_they_are_taken() -> None:
    builder = Builder({"x", "x_1", "y_2"}, 7)
    assert [builder.name("x"), builder.name("x"), builder.name("z"), builder.name("z")] == ["x_2", "x_3", "z", "z_1"]
    assert (builder.new_storage(), builder.new_storage()) == (7, 8)


def test_all_names_of_a_stem_may_be_numbered() -> None:
    builder = Builder({"y_2"}, 0)
    assert [builder.name("y", numbered=True) for _ in range(3)] == ["y_1", "y_3", "y_4"]
    assert builder.name("y") == "y"
    assert builder.name("y") == "y_5"
