"""What a fitted model is asked: functions of a `Fitted`, one small file a verb.

score, log_likelihood, joint_log_density, predict, predict_distribution, impute, recommend, evaluate
                                                over an iterator of tables, one or pieces of whole groups
sample, forecast, where_next                   new groups, or given ones completed; groups to come; what to measure
attention, explain                             of one group; of one row
similar, embeddings, summary                   of the model itself
"""

from efattn.inference.attention import AttentionWeights, attention
from efattn.inference.calibrate import calibrate
from efattn.inference.calibration import Calibration
from efattn.inference.distribution import Distribution
from efattn.inference.embeddings import embeddings
from efattn.inference.evaluate import evaluate
from efattn.inference.evaluation import Evaluation
from efattn.inference.explain import explain
from efattn.inference.exporting import to_arviz
from efattn.inference.fitted import Companion, Fitted, Part
from efattn.inference.following import Following
from efattn.inference.forecast import forecast
from efattn.inference.impute import impute
from efattn.inference.joint import joint_log_density
from efattn.inference.predict import predict
from efattn.inference.predict_distribution import Distributions, predict_distribution
from efattn.inference.recommend import recommend
from efattn.inference.reliability import Reliability, reliability
from efattn.inference.rubin import Pooled, pool
from efattn.inference.sample import sample
from efattn.inference.score import log_likelihood, score
from efattn.inference.similar import similar
from efattn.inference.summary import summary
from efattn.inference.tables import announce
from efattn.inference.where_next import where_next

__all__ = [
    "AttentionWeights",
    "Calibration",
    "Companion",
    "Distribution",
    "Distributions",
    "Evaluation",
    "Fitted",
    "Following",
    "Part",
    "Pooled",
    "Reliability",
    "announce",
    "attention",
    "calibrate",
    "embeddings",
    "evaluate",
    "explain",
    "forecast",
    "impute",
    "joint_log_density",
    "log_likelihood",
    "pool",
    "predict",
    "predict_distribution",
    "recommend",
    "reliability",
    "sample",
    "score",
    "similar",
    "summary",
    "to_arviz",
    "where_next",
]
