"""From a table to padded batches of groups. Each name loads its module when it is first used: reading a table needs no
torch."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {
    "Batch": "batch",
    "Groups": "groups",
    "Names": "names",
    "Roles": "roles",
    "Schema": "schema",
    "Standardiser": "standardiser",
    "Table": "table",
    "Vocabulary": "vocabulary",
    "from_wide": "table",
    "group_folds": "folds",
    "read_file": "files",
}
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'efattn.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"efattn.data.{_HOMES[name]}"), name)
