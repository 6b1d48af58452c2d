"""Which published orderings held: each claim with its figures, epsilon by epsilon.

Published: Criteo's study of logistic regression on the Attribution log (A), label projection
against randomized response (B), Google's study of perceptrons by unit and cap (C). From
simulations of our own: corrections of the loss, joint randomized response for units, and noisy
label sums. A claim holds if it does at every epsilon that it is made for, and beyond noise if
each gap is above two standard errors over seeds (null with one seed).
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from labels_data import REAL
from labels_jobs import (
    CALIBRATED,
    DEBIASED,
    FORWARD,
    JOINT,
    NAIVE,
    OWN_SHARE,
    PROJECTION,
    ROW,
    SUMS,
    cap,
)

from tulle.privacy.units import Owner

Row = dict[str, object]
EXAMPLE, USER = Owner.EXAMPLE.value, Owner.USER.value
ADVERTISER, PUBLISHER = Owner.USER_ADVERTISER.value, Owner.USER_PUBLISHER.value

IMPRESSION = (EXAMPLE, ROW)
CAP_1, CAP_2, CAP_5, CAP_10 = ((USER, cap(most)) for most in (1, 2, 5, 10))
SHARED, JOINTLY = (USER, OWN_SHARE), (USER, JOINT)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """The first setting does better than the second, at some values of epsilon."""

    table: str
    model: str
    better: tuple[str, str, str]
    """Unit, noise and correction."""
    worse: tuple[str, str, str]
    epsilons: Sequence[float]
    figure: str = "auc_loss"
    """Or relative_log_likelihood."""

    @property
    def text(self) -> str:
        """The claim in words."""
        figure = {"auc_loss": "AUC", "relative_log_likelihood": "likelihood"}[self.figure]
        names = (_name(self.better), _name(self.worse))
        return f"{self.model}: {names[0]} has a better {figure} than {names[1]}"


def claims_of(source: str) -> list[Claim]:
    """What is claimed for a log."""
    return _real_claims() if source == REAL else _synth_claims()


def verdicts(means: list[Row]) -> list[Row]:
    """One row for each claim that there are figures for."""
    rows = []
    for source in dict.fromkeys(row["source"] for row in means):
        found = {
            (r["model"], r["unit"], r["noise"], r["correction"], r["epsilon"]): r
            for r in means
            if r["source"] == source
        }
        for claim in claims_of(str(source)):
            figures = [f for e in claim.epsilons if (f := _compared(claim, found, e))]
            if figures:
                rows.append(
                    {
                        "source": source,
                        "table": claim.table,
                        "claim": claim.text,
                        "figure": claim.figure,
                        "holds": all(figure["holds"] for figure in figures),
                        "holds_beyond_noise": _all_known(f["holds_beyond_noise"] for f in figures),
                        "figures": figures,
                    }
                )
    return rows


def _compared(claim: Claim, found: dict[tuple, Row], epsilon: float) -> Row | None:
    better = found.get((claim.model, *claim.better, epsilon))
    worse = found.get((claim.model, *claim.worse, epsilon))
    if better is None or worse is None:
        return None
    sign = -1 if claim.figure == "auc_loss" else 1
    spread = "stddev" if claim.figure == "auc_loss" else "likelihood_stddev"
    gain = sign * (better[claim.figure] - worse[claim.figure])
    is_known = better["seeds"] > 1 and worse["seeds"] > 1
    noise = sum((row[spread] or 0.0) ** 2 / row["seeds"] for row in (better, worse)) ** 0.5
    return {
        "epsilon": epsilon,
        "better": better[claim.figure],
        "worse": worse[claim.figure],
        "holds": gain > 0,
        "holds_beyond_noise": gain > 2 * noise if is_known else None,
    }


def _all_known(values: Iterable[bool | None]) -> bool | None:
    """None if one is not known: a single seed says nothing about noise."""
    found = list(values)
    return None if None in found else all(found)


def _synth_claims() -> list[Claim]:
    table_a, low = (1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 3.0, 4.0, 5.0)
    deep = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0)
    claims = []
    for unit in (IMPRESSION, CAP_1):
        for figure in ("auc_loss", "relative_log_likelihood"):
            claims.append(
                Claim(
                    table="A",
                    model="lr",
                    better=(*unit, DEBIASED),
                    worse=(*unit, NAIVE),
                    epsilons=table_a,
                    figure=figure,
                )
            )
    for better, worse in ((IMPRESSION, CAP_1), (CAP_1, CAP_2), (CAP_2, CAP_5)):
        claims.append(_pair("A", "lr", better, worse, low, _corrections(better, worse)))
    for likely in (False, True):
        claims.append(_corrected("corrections", "lr", (FORWARD, DEBIASED), low, likely=likely))
        claims.append(_corrected("corrections", "lr", (FORWARD, CALIBRATED), low, likely=likely))
    claims.append(_corrected("corrections", "lr", (CALIBRATED, NAIVE), low, likely=True))
    order = (IMPRESSION, (ADVERTISER, cap(1)), (PUBLISHER, cap(1)), CAP_1, CAP_2, CAP_5, CAP_10)
    for better, worse in itertools.pairwise(order):
        claims.append(_pair("C", "mlp", better, worse, deep))
    for model, epsilons in (("lr", table_a), ("mlp", deep[1:])):
        claims.append(_pair("units", model, CAP_1, SHARED, epsilons))
        claims.append(_pair("units", model, JOINTLY, SHARED, epsilons))
        claims.append(_pair("units", model, JOINTLY, CAP_1, epsilons[1:]))
        claims.append(_pair("units", model, SHARED, CAP_10, epsilons))
    claims.append(_sums_pair(EXAMPLE, IMPRESSION, (1.0,), sums_win=True))
    claims.append(_sums_pair(EXAMPLE, IMPRESSION, (3.0, 4.0), sums_win=False))
    claims.append(_sums_pair(USER, JOINTLY, (1.0, 2.0), sums_win=True))
    claims.append(_sums_pair(USER, JOINTLY, (4.0,), sums_win=False))
    return claims


def _real_claims() -> list[Claim]:
    every = (0.5, 1.0, 2.0, 3.0)
    claims = []
    for model in ("lr", "mlp"):
        for likely in (False, True):
            claims.append(_corrected("A", model, (DEBIASED, NAIVE), every, likely=likely))
            for worse in (NAIVE, DEBIASED, CALIBRATED):
                corrections = (FORWARD, worse)
                claims.append(_corrected("corrections", model, corrections, every, likely=likely))
        claims.append(_corrected("corrections", model, (CALIBRATED, NAIVE), every, likely=True))
        claims.append(_pair("C", model, IMPRESSION, CAP_1, every))
        claims.append(_pair("units", model, CAP_1, SHARED, every))
        claims.append(_pair("units", model, JOINTLY, SHARED, every))
        claims.append(_pair("units", model, JOINTLY, CAP_1, (2.0, 3.0)))
        projected = (EXAMPLE, PROJECTION, "projection")
        forward = (*IMPRESSION, FORWARD)
        few, many = (0.5, 1.0), (2.0, 3.0)
        for better, worse, epsilons in ((projected, forward, few), (forward, projected, many)):
            claims.append(
                Claim(table="B", model=model, better=better, worse=worse, epsilons=epsilons)
            )
    claims.append(_sums_pair(EXAMPLE, IMPRESSION, (0.5, 1.0), sums_win=True))
    claims.append(_sums_pair(EXAMPLE, IMPRESSION, (3.0,), sums_win=False))
    claims.append(_sums_pair(USER, JOINTLY, (0.5, 1.0, 2.0), sums_win=True))
    return claims


def _pair(
    table: str,
    model: str,
    better: tuple[str, str],
    worse: tuple[str, str],
    epsilons: Sequence[float],
    corrections: tuple[str, str] = (FORWARD, FORWARD),
) -> Claim:
    """About units and caps, by AUC."""
    return Claim(
        table=table,
        model=model,
        better=(*better, corrections[0]),
        worse=(*worse, corrections[1]),
        epsilons=epsilons,
    )


def _corrected(
    table: str,
    model: str,
    corrections: tuple[str, str],
    epsilons: Sequence[float],
    *,
    likely: bool,
) -> Claim:
    """About two corrections for the same reports of impressions."""
    better, worse = corrections
    return Claim(
        table=table,
        model=model,
        better=(*IMPRESSION, better),
        worse=(*IMPRESSION, worse),
        epsilons=epsilons,
        figure="relative_log_likelihood" if likely else "auc_loss",
    )


def _corrections(better: tuple[str, str], worse: tuple[str, str]) -> tuple[str, str]:
    """Table A debiases units of one label, and no others."""
    return tuple(DEBIASED if pair in (IMPRESSION, CAP_1) else NAIVE for pair in (better, worse))


def _sums_pair(
    unit: str, reports: tuple[str, str], epsilons: Sequence[float], *, sums_win: bool
) -> Claim:
    sums, forward = (unit, SUMS, "box"), (*reports, FORWARD)
    better, worse = (sums, forward) if sums_win else (forward, sums)
    return Claim(table="sums", model="lr", better=better, worse=worse, epsilons=epsilons)


def _name(setting: tuple[str, str, str]) -> str:
    unit, noise, correction = setting
    return f"{noise} ({unit}, {correction})"
