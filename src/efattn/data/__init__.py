"""From a table to padded batches of groups."""

from efattn.data.batch import Batch

__all__ = ["Batch"]
