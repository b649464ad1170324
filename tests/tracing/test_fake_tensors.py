"""Fakes that are created from proxies have the metadata of the proxies."""

from dataclasses import replace

import pytest
import torch

from thunder_core.ir.proxy import TensorProxy
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_alias, make_fake

BASE = TensorProxy("base", (4, 3), (3, 1), torch.float32, torch.device("cpu"), False, 0)


@pytest.mark.parametrize(
    ("of_base", "of_view", "leaf"),
    [
        (False, False, False),
        (False, True, False),  # the result of an `autograd.Function` that returns a view of an argument
        (True, True, False),
        (False, False, True),
        (True, False, True),
        (True, True, True),
    ],
)
def test_aliases_require_grad_like_their_proxies(of_base, of_view, leaf):
    base = make_fake(ObservingFakeMode(), replace(BASE, requires_grad=of_base))
    proxy = replace(BASE, name="view", shape=(3,), stride=(1,), offset=3, requires_grad=of_view)
    view = make_alias(base, proxy, leaf=leaf)
    assert view.requires_grad == of_view
    assert view.is_leaf == (leaf or not of_view)
    assert (tuple(view.shape), view.storage_offset()) == ((3,), 3)
    assert view.untyped_storage()._cdata == base.untyped_storage()._cdata
