"""EFA beside latent factors and every simple model that suits a table, each group scored once.

compare(table, group=..., ...) -> Comparison: .table, .verdict, .plot(), .to_json()
"""

from efattn.comparing.compare import compare
from efattn.comparing.comparison import Comparison

__all__ = ["Comparison", "compare"]
