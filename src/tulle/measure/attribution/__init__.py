"""Attribution of conversions: rules, how far one unit moves their totals, learnt weights."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.measure.attribution.data_driven import (
        ChannelCells,
        ChannelGame,
        ChannelModel,
        CoalitionValue,
        DataDrivenConfig,
        fit_channel_weights,
        weights_from_public_history,
    )
    from tulle.measure.attribution.rules import (
        Attribution,
        ChannelWeights,
        FirstTouch,
        LastN,
        LastTouch,
        Linear,
        PositionBased,
        PriorityTouch,
        Rule,
        TimeDecay,
    )
    from tulle.measure.attribution.sensitivity import (
        impression_factor,
        l2_sensitivity_steps,
        sensitivity_steps,
    )

__all__ = [
    "Attribution",
    "ChannelCells",
    "ChannelGame",
    "ChannelModel",
    "ChannelWeights",
    "CoalitionValue",
    "DataDrivenConfig",
    "FirstTouch",
    "LastN",
    "LastTouch",
    "Linear",
    "PositionBased",
    "PriorityTouch",
    "Rule",
    "TimeDecay",
    "fit_channel_weights",
    "impression_factor",
    "l2_sensitivity_steps",
    "sensitivity_steps",
    "weights_from_public_history",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
