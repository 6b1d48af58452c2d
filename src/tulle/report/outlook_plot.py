"""A plot of what shortlists capture, for a plan of a selection."""

from collections.abc import Callable

from tulle.errors import DataError
from tulle.report.select_plots import CurveAxes, SelectionCurve, plot_selection_panels
from tulle.select.planner.selection_outlook import SelectionOption, SelectionOutlook


def plot_outlook(outlook: SelectionOutlook) -> str:
    """The captured share over the cutoff and over the length of the list, for each epsilon.

    Raises:
      DataError: There is no gain to capture, as in auctions of one ad each.
    """
    if all(option.captured_share is None for option in outlook.options):
        raise DataError(
            "personalisation has nothing to gain in these auctions; leave out the plot."
        )
    panels = {
        "by cutoff gamma": _curves(outlook, lambda option: option.gamma),
        "by number of finalists": _curves(outlook, lambda option: option.num_finalists),
    }
    axes = CurveAxes(
        setting_name="gamma, or number of finalists",
        value_name="captured share of the gain",
        lowest=-1.0,
        highest=1.05,
    )
    return plot_selection_panels(panels, axes)


def _curves(
    outlook: SelectionOutlook, setting: Callable[[SelectionOption], float | None]
) -> list[SelectionCurve]:
    curves = []
    for epsilon in outlook.epsilons:
        points = [
            (value, option.captured_share)
            for option in outlook.options
            if option.mechanism.epsilon == epsilon
            and (value := setting(option)) is not None
            and option.captured_share is not None
        ]
        curves.append(
            SelectionCurve(
                label=f"epsilon {epsilon:g}",
                settings=[x for x, _ in points],
                values=[y for _, y in points],
            )
        )
    return curves
