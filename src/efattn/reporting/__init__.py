"""One page about a model: what it was fitted to, what it says, and how far that can be trusted.

report(model, table, "report.html")     one file that needs nothing else: no script, no network, light and dark
card(fitted)                            a small card, which a notebook shows for a model
"""

from efattn.reporting.page import card, report

__all__ = ["card", "report"]
