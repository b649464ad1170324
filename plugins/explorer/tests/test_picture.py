"""The picture of a small program."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from explored_programs import Activations, Hostile, Layers

import thunder
from thunder_core.errors import OptionError


def elements(path: Path, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.parse(path).iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


def test_ops_are_boxes_and_saved_values_are_edges_to_backward(tmp_path):
    compiled = thunder.jit(Layers(1), executors=[Activations()])
    compiled(torch.randn(3, 8)).sum().backward()
    path = tmp_path / "out.svg"
    thunder.explain(compiled).to_svg(path)
    boxes = [box for box in elements(path, "rect") if "op" in box.attrib["class"].split()]
    executed = [thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]]
    assert len(boxes) == sum(len(trace.symbols) for trace in executed)
    assert len({(box.attrib["x"], box.attrib["y"]) for box in boxes}) == len(boxes)  # none covers another
    claimed = sum(op.symbol.executor is not None for trace in executed for op in trace.symbols)
    assert sum("claimed" in box.attrib["class"] for box in boxes) == claimed > 0
    assert any(edge.attrib["class"] == "saved" for edge in elements(path, "path"))
    assert "layers.0.up" in "".join([title.text or "" for title in elements(path, "title")])


def test_texts_are_escaped(tmp_path):
    compiled = thunder.jit(Hostile(), executors=[])
    compiled(torch.randn(1, 2))
    thunder.explain(compiled).to_svg(tmp_path / "out.svg")
    (title, *_) = elements(tmp_path / "out.svg", "title")
    assert "<img src=x" in (title.text or "")
    assert not elements(tmp_path / "out.svg", "img")


def test_a_large_program_is_refused(tmp_path):
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(201):
            x = x.sin()
        return x

    compiled = thunder.jit(program, executors=[])
    compiled(torch.ones(2))
    with pytest.raises(OptionError, match="has 201 ops, and a picture has at most 200"):
        thunder.explain(compiled).to_svg(tmp_path / "out.svg")
