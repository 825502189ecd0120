"""Attention over some of the keys, and how two such parts become one.

Softmax attention over a set of keys is a weighted mean, and its log-sum-exp is the logarithm of the
total weight. So parts over disjoint keys join like means do: weigh each by its total. The join is
associative and has an identity, which is why attention may be cut anywhere: into tiles, into
splits that run side by side, into a past and a present.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Partial(NamedTuple):
    """Attention of T queries over a part of the keys."""

    output: Tensor
    """(..., D): the mean of the values, weighted within the part; 0 where the part holds no key."""
    lse: Tensor
    """(...): natural log of the sum of exp(score) over the part; -inf where it holds no key."""


def empty_partial(like: Tensor) -> Partial:
    """The part over no keys at all: the identity of `merge`. `like: (..., D)` gives the shape."""
    output = torch.zeros_like(like, dtype=torch.float32)
    return Partial(output, output.new_full(like.shape[:-1], -torch.inf))


def merge(first: Partial, second: Partial) -> Partial:
    """Join two parts over disjoint keys, in float32.

    Milakov and Gimelshein 2018, "Online normalizer calculation for softmax".
    """
    # The second part's weight is s / (f + s), f and s being exp(lse): a sigmoid of the difference.
    share = torch.sigmoid(second.lse - first.lse)
    share = share.nan_to_num(0.0)  # both empty: -inf - -inf is NaN, and either part will do
    output = torch.lerp(first.output.float(), second.output.float(), share[..., None])
    return Partial(output, torch.logaddexp(first.lse, second.lse))
