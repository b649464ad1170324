"""Handles of the library for each stream, with fake streams, as a CPU has none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from thunder_core.errors import ExecutorError
from thunder_plugin_cudnn import handles, library

CUDA = torch.device("cuda", 0)
CAPTURED = ("call the program once with these shapes before it is captured",)


class Streams:
    """PyTorch's current stream and the library's calls.

    Attributes:
        current: address of the current stream.
        capturing: whether a CUDA graph is captured.
        calls: of the library, in order.
    """

    def __init__(self) -> None:
        self.current, self.capturing = 0, False
        self.calls: list[tuple[str, int]] = []

    def create_handle(self) -> SimpleNamespace:
        self.calls.append(("create", self.current))
        return SimpleNamespace()

    def set_stream(self, handle: SimpleNamespace, stream: int) -> None:
        self.calls.append(("set", stream))
        handle.stream = stream


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    made = Streams()
    monkeypatch.setattr(handles, "current_raw_stream", lambda index: made.current)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: made.capturing)
    monkeypatch.setattr(library, "frontend", lambda: made)
    return made


def use(stream: int, streams: Streams) -> handles.Handle:
    """Take a handle on that stream and give it back."""
    streams.current = stream
    handle = handles.take(CUDA)
    assert handle.stream == stream
    assert getattr(handle.of_library, "stream", 0) == stream
    handles.give_back(CUDA, handle)
    return handle


def test_a_handle_of_another_stream_is_set_once(streams: Streams) -> None:
    first = use(0, streams)
    assert streams.calls == [("create", 0)]
    streams.capturing = True
    assert use(7, streams) is use(7, streams) is first
    assert streams.calls == [("create", 0), ("set", 7)]
    assert handles.IDLE[CUDA] == [first]


def test_handles_stay_with_their_streams(streams: Streams) -> None:
    streams.current = 7
    one = handles.take(CUDA)
    two = use(8, streams)
    handles.give_back(CUDA, one)
    found = [use(stream, streams) for stream in (7, 8, 8, 7)]
    assert found == [one, two, two, one]
    assert streams.calls == [("create", 7), ("set", 7), ("create", 8), ("set", 8)]


def test_none_is_created_while_a_cuda_graph_is_captured(streams: Streams) -> None:
    streams.capturing = True
    with pytest.raises(ExecutorError, match="a handle cannot be created during the capture") as caught:
        handles.take(CUDA)
    assert caught.value.advice == CAPTURED
    assert streams.calls == []


def test_only_gpus_are_captured(streams: Streams) -> None:
    streams.capturing = True
    handles.refuse_capture(torch.device("cpu"), "a graph cannot be prepared")
    with pytest.raises(ExecutorError, match="a graph cannot be prepared during the capture of a CUDA graph") as caught:
        handles.refuse_capture(CUDA, "a graph cannot be prepared")
    assert caught.value.advice == CAPTURED
