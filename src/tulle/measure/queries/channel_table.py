"""What was learnt about channels, as a table beside those of the queries."""

import numpy as np
import polars as pl

from tulle.measure.attribution.data_driven import ChannelModel
from tulle.measure.queries.answer_table import Answer, AnswerTable, answer_frame
from tulle.mechanisms.intervals import normal_quantile

CHANNEL_TABLE = "weights of channels"


def channel_table(model: ChannelModel, *, confidence: float) -> AnswerTable:
    """Effects of channels and the weights that credit is shared by.

    The intervals are those of normal noise with the spread that repeated noise has: the
    effect is a quotient of many noisy counts, and its exact law is not known.
    """
    channels = list(model.noisy_effects)
    effects = np.array([model.noisy_effects[name] for name in channels])
    # An effect that is cut at zero has no spread there; an interval needs some width.
    stddevs = np.array([max(model.effect_stddevs[name], 1e-12) for name in channels])
    half_width = normal_quantile(confidence) * stddevs
    answers = [Answer.around("effect", effects, half_width=half_width, noise_stddev=stddevs)]
    if effects.max() > 0:  # else all weights are alike, whatever the noise
        weights = np.array([model.rule.weights[name] for name in channels])
        scale = 1 / effects.max()
        answers.append(
            Answer.around(
                "weight", weights, half_width=half_width * scale, noise_stddev=stddevs * scale
            )
        )
    frame = answer_frame(pl.DataFrame({"channel": channels}), answers)
    return AnswerTable(name=CHANNEL_TABLE, frame=frame, event=model.event, confidence=confidence)
