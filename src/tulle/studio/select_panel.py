"""What private selection captures of the gain of personalisation, by the planner's prior.

Auctions are drawn from a market with public settings; devices are never drawn, so everything is
public. `tulle select plan` says the same of the auctions that come with the answer.
"""

import dataclasses
import json
from collections.abc import Iterator
from urllib.parse import urlencode

import numpy as np

from tulle.select.auctions import Auctions
from tulle.select.billing.prices import PricingRule, price_candidates
from tulle.select.planner.click_prior import LogitNormalPrior
from tulle.select.planner.outlook import (
    OptionGrid,
    SelectionOption,
    SelectionOutlook,
    plan_selection,
)
from tulle.studio.panel import (
    FieldError,
    Given,
    NumberField,
    Panel,
    command_line,
    count_field,
    number_text,
)

AUCTIONS_FILE = "auctions.jsonl"

_NUM_AUCTIONS, _SEED = 100, 1
"""Few auctions, so that a slider answers at once, and always the same ones, so that a curve moves
by its settings alone."""
_MEAN_LOGIT, _PUBLIC_STDDEV, _BID_STDDEV = -3.5, 0.5, 0.8
"""The display market of `tulle select simulate`: about 3% of impressions are clicked."""
_MOST_FINALISTS = 15
"""The longest shortlist that planning compares by default."""
_EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
"""Points of the curve over epsilon, closer together where it rises."""

Curve = tuple[tuple[float, float | None], ...]
"""Setting and captured share; None if there is nothing to capture."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectAnswer:
    """Captured shares of the gain, between the server's winner and the device's favourite."""

    by_finalists: float | None
    """Captured share with the list length that was asked for."""
    by_gamma: float | None
    """Captured share with the cutoff that was asked for."""
    best: float | None
    """Captured share of the option that the planner recommends."""
    recommended: str
    baseline_welfare: float
    ideal_welfare: float
    finalist_curve: Curve
    gamma_curve: Curve
    epsilon_curve: Curve
    """Captured share of the recommended option, by epsilon."""
    commands: tuple[str, ...]
    downloads: dict[str, str]
    """What the commands read: names and where the page gets them."""


def answer_selection(given: Given) -> SelectAnswer:
    """Compares shortlists by exact expectations. Reads nothing and spends nothing."""
    num_finalists, num_candidates = given["num_finalists"], given["num_candidates"]
    if num_finalists > num_candidates:
        raise FieldError(
            "num_finalists",
            f"num_finalists={num_finalists} must be <= num_candidates={num_candidates}; shorten "
            "the list.",
        )
    epsilon, gamma = given["epsilon"], given["gamma"]
    lengths = tuple(range(1, min(num_candidates, _MOST_FINALISTS) + 1))
    gammas = (*OptionGrid().gammas, gamma)
    outlook = _outlook(
        given, (epsilon,), OptionGrid(gammas=gammas, nums_finalists=(*lengths, num_finalists))
    )
    others = _outlook(given, _EPSILONS, OptionGrid())
    best = outlook.recommended(epsilon)
    finalist_curve = tuple(_points(outlook, "num_finalists"))
    gamma_curve = tuple(_points(outlook, "gamma"))
    return SelectAnswer(
        by_finalists=dict(finalist_curve)[num_finalists],
        by_gamma=dict(gamma_curve)[gamma],
        best=best.captured_share,
        recommended=best.mechanism.name,
        baseline_welfare=outlook.baseline.welfare,
        ideal_welfare=outlook.ideal.welfare,
        finalist_curve=finalist_curve,
        gamma_curve=gamma_curve,
        epsilon_curve=tuple((e, others.recommended(e).captured_share) for e in _EPSILONS),
        commands=(_command(given),),
        downloads={AUCTIONS_FILE: _address(given)},
    )


def auctions_text(given: Given) -> str:
    """The public side of the auctions as JSON lines, for `tulle select plan`."""
    auctions = _auctions(given)
    return "".join(
        json.dumps({"auction_id": number, "candidates": candidates}) + "\n"
        for number, candidates in enumerate(_candidates(auctions))
    )


def _candidates(auctions: Auctions) -> Iterator[list[dict[str, float]]]:
    for start, end in zip(auctions.offsets[:-1], auctions.offsets[1:], strict=True):
        yield [
            {
                "ad": int(auctions.ads[place]),
                "bid": float(auctions.bids[place]),
                "p_server": float(auctions.server_click_probs[place]),
            }
            for place in range(start, end)
        ]


def _auctions(given: Given) -> Auctions:
    """Auctions of display ads, by a server that is calibrated for what devices know beyond it."""
    num_candidates = given["num_candidates"]
    shape = (2, _NUM_AUCTIONS * num_candidates)
    public, own = np.random.default_rng(_SEED).standard_normal(shape)
    prior = LogitNormalPrior(private_stddev=given["private_stddev"])
    return Auctions(
        offsets=np.arange(_NUM_AUCTIONS + 1) * num_candidates,
        ads=np.tile(np.arange(1, num_candidates + 1), _NUM_AUCTIONS),
        bids=np.exp(_BID_STDDEV * own),
        server_click_probs=prior.mean_click_probs(_MEAN_LOGIT + _PUBLIC_STDDEV * public),
    )


def _outlook(given: Given, epsilons: tuple[float, ...], grid: OptionGrid) -> SelectionOutlook:
    auctions = _auctions(given)
    return plan_selection(
        auctions,
        price_candidates(auctions, PricingRule.SECOND_PRICE, reserve=0.0),
        epsilons=epsilons,
        prior=LogitNormalPrior(private_stddev=given["private_stddev"]),
        grid=grid,
    )


def _points(outlook: SelectionOutlook, setting: str) -> Iterator[tuple[float, float | None]]:
    """The options that have a setting, in the order of the planner: ascending."""
    for option in outlook.options:
        if (value := _setting(option, setting)) is not None:
            yield value, option.captured_share


def _setting(option: SelectionOption, name: str) -> float | None:
    return option.gamma if name == "gamma" else option.num_finalists


def _command(given: Given) -> str:
    return command_line(
        ("select", "plan", AUCTIONS_FILE),
        {
            "--epsilon": given["epsilon"],
            "--private-stddev": given["private_stddev"],
            "--consent": "everyone",
        },
    )


def _address(given: Given) -> str:
    names = [field.name for field in MARKET_FIELDS]
    query = urlencode({name: number_text(given[name]) for name in names})
    return f"/files/{AUCTIONS_FILE}?{query}"


MARKET_FIELDS = (
    count_field("num_candidates", "candidates of an auction", default=15, least=2, most=25),
    NumberField(
        name="private_stddev",
        label="how much more devices know",
        default=0.6,
        least=0.05,
        most=2.5,
        step=0.05,
    ),
)
"""What the auctions follow from."""

SELECT = Panel(
    name="select",
    title="Select",
    purpose="How much of what personal ads would add is left when devices choose privately.",
    fields=(
        NumberField(name="epsilon", label="epsilon of a decision", default=3.0, least=0.1, most=12),
        *MARKET_FIELDS,
        count_field("num_finalists", "list length k", default=5, most=_MOST_FINALISTS),
        NumberField(
            name="gamma", label="cutoff gamma", default=0.5, least=0.0, most=1.0, step=0.05
        ),
    ),
    answer=answer_selection,
)
