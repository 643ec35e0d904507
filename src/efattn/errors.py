"""One small tree of errors. Each says what was expected, what was found, where, and what to do."""


class EfattnError(Exception):
    """Anything efattn raises on purpose."""


class DataError(EfattnError, ValueError):
    """A table, a column or a value that cannot be used as it is."""


class ModelFileError(EfattnError, ValueError):
    """A model file that is cut, edited, from a newer version, or not a model at all."""


class TrainingError(EfattnError, ArithmeticError):
    """Training that cannot go on, as when the loss turns into NaN."""
