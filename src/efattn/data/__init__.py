"""From a table to padded batches of groups."""

from efattn.data.batch import Batch
from efattn.data.files import read_file
from efattn.data.folds import group_folds
from efattn.data.groups import Groups
from efattn.data.names import Names
from efattn.data.roles import Roles
from efattn.data.schema import Schema
from efattn.data.standardiser import Standardiser
from efattn.data.table import Table, from_wide
from efattn.data.vocabulary import Vocabulary

__all__ = [
    "Batch",
    "Groups",
    "Names",
    "Roles",
    "Schema",
    "Standardiser",
    "Table",
    "Vocabulary",
    "from_wide",
    "group_folds",
    "read_file",
]
