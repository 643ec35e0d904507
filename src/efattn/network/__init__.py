"""Embeddings, attention, the stack, exact conditionals, heads. Tensors in, tensors out: no data, no families."""

from efattn.network.attention import Attention
from efattn.network.catalogue import Added, Logits
from efattn.network.embeddings import (
    AttributeVectors,
    Embedding,
    Identity,
    ItemVectors,
    ItemViews,
    PerValue,
    ValueMLP,
    ValueVectors,
)
from efattn.network.gaps import Gaps
from efattn.network.heads import Head, ReadOff, Tied, perceptron
from efattn.network.item_features import FeaturedItems, FeatureMap, Features
from efattn.network.known import Noises, OwnAttributes, Rates
from efattn.network.sampled import Candidates
from efattn.network.stack import Stack
from efattn.network.visibility import Context, Visibility, without_orders

__all__ = [
    "Added",
    "Attention",
    "AttributeVectors",
    "Candidates",
    "Context",
    "Embedding",
    "FeatureMap",
    "FeaturedItems",
    "Features",
    "Gaps",
    "Head",
    "Identity",
    "ItemVectors",
    "ItemViews",
    "Logits",
    "Noises",
    "OwnAttributes",
    "PerValue",
    "Rates",
    "ReadOff",
    "Stack",
    "Tied",
    "ValueMLP",
    "ValueVectors",
    "Visibility",
    "perceptron",
    "without_orders",
]
