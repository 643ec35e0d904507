"""Tables of other trades, their roles written down before any model saw them, and EFA's defaults beside every peer."""
