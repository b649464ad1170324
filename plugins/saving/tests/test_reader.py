"""Printed traces are read back as equal traces, edited ones as what they say."""

import dataclasses

import pytest
import torch

from thunder_core.errors import TraceError, TraceSyntaxError
from thunder_core.ir.annotation import Annotator, StorageNumbers, read_input, read_storages
from thunder_core.ir.context import Context
from thunder_core.ir.effects import Effects
from thunder_core.ir.printer import print_trace
from thunder_core.ir.proxy import NumberProxy, OpaqueProxy
from thunder_core.ir.trace import Stage
from thunder_core.symbols.checkpointing import CHECKPOINT
from thunder_core.symbols.control_flow import COND
from thunder_saving.reader import read_trace
from thunder_testing import hand_built as build


def check_round_trip(trace):
    source = print_trace(trace)
    again = read_trace(source)
    assert print_trace(again) == source
    for one, other in zip(again.symbols, trace.symbols, strict=True):
        assert one == other
    assert again == trace


def test_sample():
    check_round_trip(build.sample())


def test_header():
    context = Context(False, True, (("cpu", torch.bfloat16), ("cuda", torch.float16)), False)
    trace = dataclasses.replace(
        build.trace((), [], None), name="other", stage=Stage.EXECUTABLE, provenance="a: b", context=context
    )
    check_round_trip(trace)


CONTEXTS = [
    Context(grad, inference, autocast, cache)
    for grad in (True, False)
    for inference in (True, False)
    for autocast in ((), (("cpu", torch.bfloat16),), (("cpu", torch.float16), ("cuda", torch.bfloat16)))
    for cache in (True, False)
]


def test_kernels_of_attention():
    x = build.tensor("x", (2,), 0)
    contexts = [
        Context(grad, False, autocast, True, kernels)
        for grad in (True, False)
        for autocast in ((), (("cpu", torch.bfloat16),))
        for kernels in ((), ("MATH",), ("FLASH_ATTENTION", "CUDNN_ATTENTION"), None)
    ]
    lines = [
        build.bound(build.RELU, (x,), build.tensor(f"t{index}", (2,), index + 1), context=context)
        for index, context in enumerate(contexts)
    ]
    check_round_trip(build.trace((x,), lines, x, context=Context(True, False)))


@pytest.mark.parametrize("ambient", CONTEXTS, ids=str)
@pytest.mark.slow
def test_contexts(ambient):
    x = build.tensor("x", (2,), 0)
    lines = [
        build.bound(build.RELU, (x,), build.tensor(f"t{index}", (2,), index + 1), context=context)
        for index, context in enumerate(CONTEXTS)
    ]
    check_round_trip(build.trace((x,), lines, x, context=ambient))


INPUTS = [
    build.tensor("scalar", (), 0, dtype=torch.bool),
    build.tensor("empty", (2, 0, 3), 4, dtype=torch.bfloat16),
    build.tensor("part", (3,), 9, stride=(2,), offset=5, requires_grad=True),
    build.tensor("same", (2,), 9, dtype=torch.float32, offset=1),
    build.tensor("device", (2,), 3, device=torch.device("cuda:1"), dtype=torch.float8_e4m3fn),
    build.tensor("strided", (2, 2), 4, device=torch.device("meta"), stride=(1, 2), dtype=torch.complex64),
    NumberProxy("number", float),
    OpaqueProxy("opaque", "torch.Generator of a kind"),
]


def test_annotations():
    annotator = Annotator()
    texts = [annotator.annotate(proxy) for proxy in INPUTS]
    storages = StorageNumbers(read_storages(annotator.storages()))
    assert [read_input(proxy.name, text, storages) for proxy, text in zip(INPUTS, texts, strict=True)] == INPUTS


def test_storage_numbers():
    annotator = Annotator()
    for number in (0, 1, 2, 7, 4, 5):
        annotator.annotate(build.tensor(f"t{number}", (), number))
    assert annotator.storages() == "0-2 7 4-5"
    assert read_storages("0-2 7 4-5") == (0, 1, 2, 7, 4, 5)


def test_a_leaf_of_autograd_may_be_written_without_grad_and_others_with():
    x = build.tensor("x", (2,), 0, requires_grad=True)
    y = dataclasses.replace(x, name="y")
    for context in (Context(False, False), None):
        line = build.bound(build.ADD_, (x, 1), y, context=context, effects=Effects(mutates=("x",)))
        check_round_trip(build.trace((x,), [line], y))


def test_dropped_results():
    x, indices = build.tensor("x", (2, 3), 0), build.tensor("indices", (2,), 1, dtype=torch.int64)
    output = torch.return_types.max((None, indices))
    check_round_trip(build.trace((x,), [build.bound(build.MAX, (x,), output, kwargs={"dim": 1})], indices))


def test_bodies():
    x, y, z = (build.tensor(name, (2,), index) for index, name in enumerate("xyz"))
    bodies = [
        dataclasses.replace(
            build.trace((x,), [build.bound(build.registry.symbol_named(name), (x,), y, location=build.HERE)], (y,)),
            name="body",
            provenance=f"the {name} branch",
        )
        for name in ("torch.neg", "torch.exp")
    ]
    pred = build.tensor("pred", (), 7, dtype=torch.bool)
    lines = [
        build.bound(CHECKPOINT, (bodies[0], x), (y,), kwargs={"use_reentrant": False}),
        build.bound(COND, (pred, *bodies, (y,)), (z,)),
    ]
    check_round_trip(build.trace((x, pred), [lines[0], dataclasses.replace(lines[1])], z))


def sample_source():
    return print_trace(build.sample())


def test_an_edited_line_gets_new_metadata():
    source = sample_source().replace("d = c.view(-1)", "d = c.view(2, 3)")
    source = source.replace("e = d[None, 0::2]", "e = d[:, 1]")
    trace = read_trace(source)
    assert [trace.symbols[index].output.shape for index in (3, 4)] == [(2, 3), (2,)]
    assert trace.symbols[4].output.stride == (3,)
    assert trace.symbols[4].output.storage == trace.symbols[1].output.storage


def test_an_inserted_line_and_a_changed_input():
    source = sample_source().replace("    d = c.view(-1)", "    extra = torch.exp(c)\n    d = c.view(-1)")
    trace = read_trace(source.replace('x: "f32[2, 4]"', 'x: "f32[7, 4]"'))
    assert trace.symbols[3].symbol.name == "torch.exp"
    assert trace.symbols[3].output.shape == (7, 3)
    assert len({proxy.storage for bound in trace.symbols for proxy in bound.outputs()}) == 5


def test_effects_follow_an_edit():
    assert read_trace(sample_source().replace("b.add_(1.5)", "b.add(1.5)")).symbols[2].effects.pure


def test_a_line_may_span_several():
    source = sample_source().replace("linear(x, weight)", "linear(\n  x,\n  weight)")
    assert read_trace(source) == build.sample()


def test_comments_of_the_user_are_allowed():
    source = sample_source().replace("# f32[6] shares b", "# look at this, please")
    assert read_trace(source) == build.sample()


MISTAKES = {
    "computation.py:14: 'y' is not defined before this line": ("linear(x, weight)", "linear(x, y)"),
    "computation.py:14: there is no function torch.nn.functional.lineal": (".linear(", ".lineal("),
    "computation.py:20: torch.Tensor has no view_of": ("c.view(", "c.view_of("),
    "computation.py:14: .*positional argument": ("linear(x, weight)", "linear(x)"),
    "computation.py:20: .*shape '\\[5\\]' is invalid": ("c.view(-1)", "c.view(5)"),
    "computation.py:23: .*returns 2 values": ("values, indices =", "values ="),
    "computation.py:22: 'd' is defined twice": ("    e = d[", "    d = d["),
    "computation.py:10: the annotation of 'x'": ("f32[2, 4]", "f32[2, 4] strange"),
    "computation.py:10: the annotation of 'x': symbolic": ("f32[2, 4]", "f32[s0, 4]"),
    "is not one of the contexts": ("torch.no_grad()", "torch.device('cpu')"),
    "is not a call": ("c.view(-1)", "c + 1"),
    "is a computation inside of another": ("c.view(-1)", "torch.exp(torch.neg(c))"),
    "is neither a value nor a literal": ("c.view(-1)", "torch.exp(c.T)"),
    "a trace has no If statement": ("    d = c.view(-1)", "    if x: pass\n    d = c.view(-1)"),
    "must end with a return": ("    return (", "    z = ("),
    "was never closed": ("c.view(-1)", "c.view(-1"),
    "uses 'c', which is deleted": ("    del x", "    del x, c"),
    "is not a valid Stage": ("# stage: acquired", "# stage: final"),
    "the header '# context": ("grad=True", "grad"),
    "'region' is not a function": ("c.view(-1)", "region(c)"),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_name_the_line(message):
    before, after = MISTAKES[message]
    source = sample_source()
    assert before in source
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(source.replace(before, after), filename="computation.py")
    if "computation.py" in message:
        assert isinstance(caught.value, TraceSyntaxError)


def test_local_functions_are_handed_in():
    source = sample_source().replace("c.view(-1)", "region(c)")
    trace = read_trace(source, targets={"region": lambda tensor: tensor.flatten() * 2})
    assert trace.symbols[3].output.shape == (6,)


def test_reading_leaves_the_random_state_alone():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    source = sample_source().replace("    d = c", "    torch.manual_seed(1)\n    d = c")
    read_trace(source)
    assert torch.equal(state, torch.get_rng_state())
