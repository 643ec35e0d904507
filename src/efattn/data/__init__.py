"""From a table to padded batches of groups.

Each name below loads its module when it is first used: files and tables can be looked at without torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from efattn.data.baskets import read_baskets
    from efattn.data.batch import Batch
    from efattn.data.files import read_file
    from efattn.data.folds import group_folds
    from efattn.data.groups import Groups
    from efattn.data.names import Names
    from efattn.data.roles import Roles
    from efattn.data.schema import Schema
    from efattn.data.splitting import split
    from efattn.data.standardiser import Standardiser
    from efattn.data.table import Table, from_wide
    from efattn.data.vocabulary import Vocabulary
    from efattn.data.wide import Wide

__all__ = [
    "Batch",
    "Groups",
    "Names",
    "Roles",
    "Schema",
    "Standardiser",
    "Table",
    "Vocabulary",
    "Wide",
    "from_wide",
    "group_folds",
    "read_baskets",
    "read_file",
    "split",
]

_HOMES = {
    "from_wide": "table",
    "group_folds": "folds",
    "read_baskets": "baskets",
    "read_file": "files",
    "split": "splitting",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'efattn.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"efattn.data.{_HOMES.get(name, name.lower())}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
