"""Embeddings, attention, the stack, exact conditionals, heads. Tensors in, tensors out: no data, no families."""

from efattn.network.attention import Attention
from efattn.network.embeddings import (
    AttributeVectors,
    Embedding,
    Identity,
    ItemVectors,
    PerValue,
    ValueMLP,
    ValueVectors,
)
from efattn.network.gaps import Gaps
from efattn.network.heads import Head, ReadOff, Tied, perceptron
from efattn.network.sight import Context, Sight
from efattn.network.stack import Stack

__all__ = [
    "Attention",
    "AttributeVectors",
    "Context",
    "Embedding",
    "Gaps",
    "Head",
    "Identity",
    "ItemVectors",
    "PerValue",
    "ReadOff",
    "Sight",
    "Stack",
    "Tied",
    "ValueMLP",
    "ValueVectors",
    "perceptron",
]
