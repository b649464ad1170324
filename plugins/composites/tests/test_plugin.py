"""The package as a plugin, and as a library that executors import."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pytest

import thunder_plugin_composites as composites
from thunder_core.ir.symbol import Tag
from thunder_core.plugins import SymbolsSpec
from thunder_core.plugins.host import host
from thunder_core.symbols.registry import registry
from thunder_plugin_composites import plugin
from thunder_plugin_composites.recognition.table import add_patterns, all_patterns
from thunder_plugin_composites.symbols import PATTERNS, ROWS
from thunder_testing import package_suite
from thunder_testing.forked import LIBRARIES, run_forked

test_package = package_suite(__file__)


def test_what_the_package_exports() -> None:
    assert [row.name for row in ROWS] == [f"thunder_plugin_composites.{row.name.rpartition('.')[2]}" for row in ROWS]
    assert sorted(row.name.rpartition(".")[2] for row in ROWS) == composites.__all__
    for name in composites.__all__:
        assert getattr(composites, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'layer_norm'"):
        _ = composites.layer_norm


def test_loading_the_plugin_adds_nothing_twice() -> None:
    loaded = host().load("composites")
    assert set(loaded.specs) == {*plugin.thunder_symbols(), *plugin.thunder_transforms(), *plugin.thunder_doctor()}
    before = all_patterns()
    symbols = next(spec for spec in loaded.specs if isinstance(spec, SymbolsSpec))
    assert host().import_object(symbols) is ROWS
    assert all_patterns() == before
    assert [pattern for pattern in before if pattern in PATTERNS] == list(PATTERNS)


def test_only_patterns_can_be_added() -> None:
    before = all_patterns()
    with pytest.raises(TypeError, match="'silu' is not a Pattern"):
        add_patterns([*PATTERNS, "silu"])  # type: ignore[list-item]
    assert all_patterns() == before


def run(program: str, preloaded: Sequence[str] = LIBRARIES) -> None:
    """Run a program in a new process."""
    done = run_forked(textwrap.dedent(program), preloaded=preloaded)
    assert done.returncode == 0, done.stderr


IMPORTS = [
    "from thunder_plugin_composites import swiglu",
    "from thunder_plugin_composites.symbols import swiglu",
    "from thunder_plugin_composites.symbols.gating import swiglu",
    "from thunder_core.executors import Claim, OperatorExecutor; "
    "claim = Claim('thunder_plugin_composites.swiglu', run=len); "
    "(symbol,) = OperatorExecutor('own', (claim,)).composites; swiglu = symbol.target",
    "import thunder_plugin_composites.symbols.patterns.losses; from thunder_plugin_composites import swiglu",
    "from thunder_core.symbols.registry import registry; "
    "swiglu = registry.symbol_named('thunder_plugin_composites.swiglu').target",
]


@pytest.mark.parametrize("statement", IMPORTS)
def test_importing_a_composite_adds_its_row_and_its_patterns(statement: str) -> None:
    run(
        f"""
        {statement}
        from thunder_core.ir.symbol import Tag
        from thunder_plugin_composites.recognition.table import add_patterns, all_patterns
        from thunder_core.symbols.registry import registry

        symbol = registry.symbol_of(swiglu)
        assert symbol.name == "thunder_plugin_composites.swiglu", symbol
        assert Tag.COMPOSITE in symbol.tags
        assert any(pattern.composite is swiglu for pattern in all_patterns())
        """
    )


def test_importing_the_package_alone_is_cheap() -> None:
    run(
        """
        import sys
        import thunder_plugin_composites

        assert "torch" not in sys.modules
        assert sorted(thunder_plugin_composites.__all__) == thunder_plugin_composites.__all__
        """,
        preloaded=[],
    )


def test_symbols() -> None:
    for name in composites.__all__:
        symbol = registry.symbol_of(getattr(composites, name))
        assert symbol is registry.symbol_named(f"thunder_plugin_composites.{name}")
        assert Tag.COMPOSITE in symbol.tags
