"""The verifier finds each kind of malformed trace and shows where."""

import dataclasses

import pytest
import torch

from thunder_core.errors import VerificationError
from thunder_core.ir.context import Context
from thunder_core.ir.effects import Effects
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Stage
from thunder_core.ir.verifier import verify
from thunder_testing import hand_built as build
from thunder_testing.hand_built import bound, tensor

X = tensor("x", (2, 3), 0)
Y = tensor("y", (2, 3), 1)
EXP = Symbol("torch.exp", torch.exp, tags=frozenset({Tag.ELEMENTWISE}))


def chain(*lines, inputs=(X,), output=None, **fields):
    return build.trace(inputs, list(lines), output, **fields)


def test_a_good_trace_passes():
    verify(build.sample())


BROKEN = {
    "'y', which is not defined before": chain(bound(EXP, (Y,), tensor("z", (2, 3), 2))),
    "returns 'y', which is not defined": chain(output=[Y]),
    "'y' is defined twice": chain(bound(EXP, (X,), Y), bound(EXP, (X,), Y)),
    "'x' is defined twice": chain(inputs=(X, X)),
    "'for' cannot be the name": chain(bound(EXP, (X,), tensor("for", (2, 3), 1))),
    "'torch' cannot be the name": chain(inputs=(tensor("torch", (), 0),)),
    "'a b' cannot be the name": chain(inputs=(tensor("a b", (), 0),)),
    "but that name is defined as": chain(bound(EXP, (tensor("x", (3, 2), 0),), Y)),
    "'x' is deleted after line 0|deleted after line 0": chain(
        bound(EXP, (X,), Y), bound(EXP, (X,), tensor("z", (2, 3), 2)), deletions={0: ("x",)}
    ),
    "returns 'y', which is deleted": chain(bound(EXP, (X,), Y), output=Y, deletions={0: ("y",)}),
    "'q' is deleted but not defined": chain(bound(EXP, (X,), Y), deletions={0: ("q",)}),
    "'x' is deleted twice": chain(bound(EXP, (X,), Y), deletions={-1: (), 0: ("x", "x")}),
    "deletions after lines": chain(deletions={3: ("x",)}),
    "a functional trace mutates x": chain(
        bound(build.ADD_, (X, 1), tensor("y", (2, 3), 0), effects=Effects(mutates=("x",))), stage=Stage.FUNCTIONAL
    ),
    "its effects mutate q": chain(bound(EXP, (X,), Y, effects=Effects(mutates=("q",)))),
    "which no argument of the op does": chain(
        bound(EXP, (X,), Y), bound(EXP, (Y,), tensor("z", (2, 3), 0)), output=None
    ),
    "reaches byte 28 of a storage of 24 bytes": chain(
        bound(EXP, (X,), Y), bound(build.VIEW, (Y, 6), tensor("z", (6,), 1, offset=1))
    ),
    "has sizes": chain(inputs=(tensor("x", (2, 3), 0, stride=(1,)),)),
    "is -1": chain(inputs=(tensor("x", (2, -1), 0),)),
    "requires grad": chain(inputs=(tensor("x", (2,), 0, dtype=torch.int64, requires_grad=True),)),
    "the dtype of 'x'": chain(inputs=(tensor("x", (2,), 0, dtype=float),)),
    "cannot be written in a trace: <object": chain(bound(EXP, (X,), (Y, object()))),
    "cannot be written in a trace": chain(bound(EXP, (X, object()), Y)),
    "names a device type twice": chain(
        bound(EXP, (X,), Y, context=Context(True, False, (("cpu", torch.float16), ("cpu", torch.bfloat16))))
    ),
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_trace_is_refused(message):
    with pytest.raises(VerificationError, match=message):
        verify(BROKEN[message])


def test_bodies_are_verified():
    body = dataclasses.replace(chain(output=Y), name="body")
    with pytest.raises(VerificationError, match="In the acquired trace 'body'"):
        verify(chain(bound(EXP, (body, X), Y)))


def test_what_is_no_line_is_refused():
    with pytest.raises(VerificationError, match=r"at symbols\[1\]: a line is a NoneType, not a BoundSymbol"):
        verify(chain(bound(EXP, (X,), Y), None))


def test_the_message_says_who_made_the_trace_and_where_it_is_broken():
    with pytest.raises(VerificationError, match="produced by the transform 'mine', at its return: it returns 'y'"):
        verify(chain(output=[Y]), "the transform 'mine'")
    with pytest.raises(VerificationError, match=", at its signature: 'x' is defined twice"):
        verify(chain(inputs=(X, X)))


def test_the_message_shows_the_lines_around():
    lines = [bound(EXP, (X,), tensor(f"t{index}", (2, 3), index + 1), location=build.HERE) for index in range(12)]
    lines[6] = dataclasses.replace(lines[6], args=(tensor("nowhere", (2, 3), 0),))
    with pytest.raises(VerificationError) as caught:
        verify(chain(*lines))
    text = str(caught.value)
    assert "--> " + "    t6 = torch.exp(nowhere)  # f32[2, 3]" in text
    assert "t1 = " in text
    assert "t11 = " in text
    assert "t0 = " not in text
    assert f"at {build.HERE.describe()}" in text
