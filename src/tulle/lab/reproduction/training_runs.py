"""Training with semi-sensitive features by Chua et al. 2024, run again.

Relative losses are 100 (AUC loss / AUC loss without privacy - 1), as both papers have them.
"""

import dataclasses
from typing import TYPE_CHECKING

from tulle.lab.reproduction.log_rows import LogRows, MinCounts, log_rows, paper_log
from tulle.lab.reproduction.private_training import (
    PrivateTraining,
    TrainingSize,
    at_chance,
    auc_loss,
    relative_loss,
)
from tulle.lab.reproduction.published import Findings, OwnFigure, clear_least, tied_text
from tulle.lab.reproduction.reproducing import ReproductionSettings

if TYPE_CHECKING:
    from tulle.quality.metrics import QualityMetrics
    from tulle.train.settings.models import AnyModel

# A reduced run takes the steps that DP-SGD needs in seconds; the long one shows what more epochs
# bring.
_REDUCED = TrainingSize(private_epochs=4.0, private_batch=1_024, plain_batch=256)
REDUCED_LONG = dataclasses.replace(_REDUCED, private_epochs=16.0)
# Epsilons, caps, shares and thresholds of a reduced run, which spans the range with few trainings,
# and those of the paper's tables and figures.
_TABLE_EPSILONS, _PAPER_TABLE_EPSILONS = (1.0, 3.0, 10.0), (1.0, 3.0, 5.0, 10.0, 20.0, 30.0, 50.0)
_CAP_EPSILONS, _CAPS, _PAPER_CAPS = (1.0, 5.0), (1, 5), (1, 2, 5, 10)
_FIGURE_EPSILONS, _PAPER_FIGURE_EPSILONS = (1.0, 4.0, 8.0, 12.0), (1.0, 2.0, 4.0, 8.0, 12.0)
_SHARES, _PAPER_SHARES = (0.0, 0.25, 0.5, 1.0), (0.0, 0.25, 0.5, 0.75, 1.0)
_SIZE_EPSILON, _SMALLER_EPSILON = 12.0, 8.0
_MIN_COUNTS, _PAPER_MIN_COUNTS, _PUBLIC_MIN_COUNT = (256, 1024), (256, 1024, 4096), 16
_PARTS = {"full size": 1, "a tenth": 10, "a fiftieth": 50}


def run_table(
    settings: ReproductionSettings,
    *,
    log: str,
    paper: TrainingSize,
    reduced: TrainingSize = _REDUCED,
) -> Findings:
    """Three methods over epsilon on one log: randomized labels, DP-SGD and the papers' Hybrid.

    Args:
      settings: Data, scale and seed of the run.
      log: Name of the log, "display" or "attribution".
      paper: Epochs and batches of the paper.
      reduced: Epochs and batches of a reduced run.

    Privacy:
      Not a private release: noise is from a fixed seed.
    """
    runs: dict[str, QualityMetrics] = {}
    with log_rows(paper_log(log, is_paper=settings.is_paper), settings) as rows:
        training = PrivateTraining(
            rows=rows,
            settings=settings,
            model=_perceptron(log, settings),
            size=paper if settings.is_paper else reduced,
        )
        settings.say("train without privacy")
        baseline = training.without_privacy()
        for epsilon in _PAPER_TABLE_EPSILONS if settings.is_paper else _TABLE_EPSILONS:
            settings.say(f"train with three methods, epsilon {epsilon:g}")
            runs |= {
                f"rr, epsilon {epsilon:g}": training.randomized_labels(epsilon),
                f"dp-sgd, epsilon {epsilon:g}": training.dp_sgd(epsilon),
                f"hybrid, epsilon {epsilon:g}": training.two_phase(epsilon),
            }
        losses = {name: relative_loss(metrics, baseline) for name, metrics in runs.items()}
        return Findings(
            figures={"AUC loss without privacy": auc_loss(baseline), **losses},
            missing=at_chance(runs),
            setting=rows.described(),
        )


def run_user_table(settings: ReproductionSettings) -> Findings:
    """All rows of a user protected together, by how many of them are kept.

    Privacy:
      Not a private release: noise is from a fixed seed.
    """
    from tulle.train import UserLevel

    paper = TrainingSize(private_epochs=1.0, plain_epochs=5.0, plain_batch=8_192)
    runs: dict[str, QualityMetrics] = {}
    kind = paper_log("attribution", is_paper=settings.is_paper)
    with log_rows(kind, settings, by_user=True) as rows:
        training = _training(rows, settings, _perceptron("attribution", settings), paper)
        settings.say("train without privacy")
        baseline = training.without_privacy()
        for epsilon in _PAPER_TABLE_EPSILONS if settings.is_paper else _CAP_EPSILONS:
            for cap in _PAPER_CAPS if settings.is_paper else _CAPS:
                settings.say(f"train with {cap} rows a user, epsilon {epsilon:g}")
                steps = dataclasses.replace(training, unit=UserLevel(max_rows_per_user=cap))
                labels = dataclasses.replace(training, unit=UserLevel(max_labels_per_user=cap))
                end = f"cap {cap}, epsilon {epsilon:g}"
                runs |= {
                    f"rr, {end}": labels.randomized_labels(epsilon),
                    f"dp-sgd, {end}": steps.dp_sgd(epsilon),
                    f"hybrid, {end}": steps.two_phase(epsilon),
                }
        return Findings(
            figures={name: relative_loss(metrics, baseline) for name, metrics in runs.items()},
            missing=at_chance(runs),
            setting=rows.described(),
        )


def run_figure(settings: ReproductionSettings, *, log: str, paper: TrainingSize) -> Findings:
    """Perceptron and factorization machine on one log; at paper scale both forms of Hybrid.

    Args:
      settings: Data, scale and seed of the run.
      log: Name of the log, "display" or "search".
      paper: Epochs and batches of the paper.

    Privacy:
      Not a private release: noise is from a fixed seed.
    """
    figures: dict[str, OwnFigure] = {}
    missing: dict[str, str] = {}
    models = {
        "MLP": _perceptron(f"semi-sensitive {log}", settings),
        "FM": _factorization_machine(settings),
    }
    with log_rows(paper_log(log, is_paper=settings.is_paper), settings) as rows:
        for name, model in models.items():
            curves = _curves(name, _training(rows, settings, model, paper))
            figures |= curves.figures
            missing |= curves.missing
        return Findings(figures=figures, missing=missing, setting=rows.described())


def run_budget_ratio(settings: ReproductionSettings) -> Findings:
    """Factorization machines by the share of epsilon that labels get.

    Privacy:
      Not a private release: noise is from a fixed seed.
    """
    paper = TrainingSize(private_epochs=64.0, plain_epochs=16.0)
    figures: dict[str, OwnFigure] = {}
    missing: dict[str, str] = {}
    with log_rows(paper_log("search", is_paper=settings.is_paper), settings) as rows:
        training = _training(rows, settings, _factorization_machine(settings), paper)
        for epsilon in _PAPER_FIGURE_EPSILONS if settings.is_paper else _FIGURE_EPSILONS:
            settings.say(f"train by share of labels, epsilon {epsilon:g}")
            shares = _PAPER_SHARES if settings.is_paper else _SHARES
            runs = {share: _with_share(training, epsilon, share) for share in shares}
            losses = {share: auc_loss(metrics) for share, metrics in runs.items()}
            keys = {share: f"AUC loss, share {share:g}, epsilon {epsilon:g}" for share in shares}
            figures |= {keys[share]: loss for share, loss in losses.items()}
            too_small = at_chance({keys[share]: metrics for share, metrics in runs.items()})
            missing |= too_small
            best, name = clear_least(losses), f"best share, epsilon {epsilon:g}"
            if too_small:
                missing[name] = next(iter(too_small.values()))
            elif best is None:
                missing[name] = tied_text(name, losses)
            else:
                figures[name] = OwnFigure(value=best)
        return Findings(figures=figures, missing=missing, setting=rows.described())


def run_model_size(settings: ReproductionSettings) -> Findings:
    """Factorization machines with fewer ids for the sensitive columns.

    Privacy:
      Not a private release: noise is from a fixed seed.
    """
    runs: dict[str, QualityMetrics] = {}
    setting = ""
    for name, part in _PARTS.items():
        kind = paper_log("display", is_paper=settings.is_paper)
        kind = dataclasses.replace(kind, sensitive_bins=kind.sensitive_bins // part)
        with log_rows(kind, settings) as rows:
            training = _display_machine(rows, settings)
            setting = setting or rows.described()
            settings.say(f"train a private model of {name}")
            for epsilon in (_SIZE_EPSILON, _SMALLER_EPSILON) if part == 1 else (_SIZE_EPSILON,):
                runs[f"AUC loss, {name}, epsilon {epsilon:g}"] = training.two_phase(epsilon)
    figures = {name: auc_loss(metrics) for name, metrics in runs.items()}
    missing = at_chance(runs)
    full, *smaller = (f"AUC loss, {name}, epsilon {_SIZE_EPSILON:g}" for name in _PARTS)
    for name, loss in zip(list(_PARTS)[1:], smaller, strict=True):
        increase = f"increase of the AUC loss, {name}"
        figures[increase] = relative_loss(runs[loss], runs[full])
        if reasons := [missing[each] for each in (full, loss) if each in missing]:
            missing[increase] = reasons[0]
    return Findings(figures=figures, missing=missing, setting=setting)


def run_vocabulary(settings: ReproductionSettings) -> Findings:
    """Factorization machines on frequent sensitive values, and on as many bins of hashes.

    Privacy:
      Not a private release: noise is from a fixed seed.
    """
    figures: dict[str, OwnFigure] = {}
    missing: dict[str, str] = {}
    setting = ""
    for threshold in _PAPER_MIN_COUNTS if settings.is_paper else _MIN_COUNTS:
        kind = paper_log("display", is_paper=settings.is_paper)
        counts = MinCounts(public=_PUBLIC_MIN_COUNT, sensitive=threshold)
        with log_rows(dataclasses.replace(kind, min_counts=counts), settings) as rows:
            setting = setting or rows.described()
            settings.say(f"train on values of {threshold} rows or more")
            kept = _display_machine(rows, settings).two_phase(_SIZE_EPSILON)
            kind = dataclasses.replace(
                kind,
                min_counts=dataclasses.replace(counts, sensitive=None),
                sensitive_bins=rows.num_ids("sensitive"),
            )
        with log_rows(kind, settings) as rows:
            settings.say("train on as many bins of hashes")
            hashed = _display_machine(rows, settings).two_phase(_SIZE_EPSILON)
        end = f"threshold {threshold}"
        runs = {f"AUC loss, vocabulary, {end}": kept, f"AUC loss, hashing, {end}": hashed}
        difference = f"AUC loss of hashing above that of a vocabulary, {end}"
        figures |= {name: auc_loss(metrics) for name, metrics in runs.items()}
        figures[difference] = relative_loss(hashed, kept)
        figures[f"sensitive ids, {end}"] = OwnFigure(value=kind.sensitive_bins)
        if too_small := at_chance(runs):
            missing |= too_small | {difference: next(iter(too_small.values()))}
    return Findings(figures=figures, missing=missing, setting=setting)


def _with_share(training: PrivateTraining, epsilon: float, share: float) -> "QualityMetrics":
    """Both ends of the split are methods of their own."""
    from tulle.train import RatioSplit

    if share == 0:
        return training.dp_sgd(epsilon)
    if share == 1:
        return training.randomized_labels(epsilon)
    return training.two_phase(epsilon, split=RatioSplit(label_share=share))


def _training(
    rows: LogRows, settings: ReproductionSettings, model: "AnyModel", paper: TrainingSize
) -> PrivateTraining:
    size = paper if settings.is_paper else _REDUCED
    return PrivateTraining(rows=rows, settings=settings, model=model, size=size)


def _display_machine(rows: LogRows, settings: ReproductionSettings) -> PrivateTraining:
    paper = TrainingSize(private_epochs=50.0, plain_epochs=10.0)
    return _training(rows, settings, _factorization_machine(settings), paper)


def _curves(name: str, training: PrivateTraining) -> Findings:
    """One model: the loss without privacy, and relative losses over epsilon."""
    from tulle.train import PublicTower, RatioSplit

    settings = training.settings
    settings.say(f"train {name} without privacy")
    baseline = training.without_privacy()
    runs: dict[str, QualityMetrics] = {}
    half = RatioSplit(label_share=0.5)
    for epsilon in _PAPER_FIGURE_EPSILONS if settings.is_paper else _FIGURE_EPSILONS:
        settings.say(f"train {name}, epsilon {epsilon:g}")
        methods = {
            "rr": training.randomized_labels(epsilon),
            "dp-sgd": training.dp_sgd(epsilon),
            "hybrid": training.two_phase(epsilon, split=half),
        }
        if settings.is_paper:
            methods["hybrid, frozen"] = training.two_phase(
                epsilon, split=half, public_tower=PublicTower.FREEZE
            )
        runs |= {
            f"{name}, {method}, epsilon {epsilon:g}": metrics for method, metrics in methods.items()
        }
    losses = {key: relative_loss(metrics, baseline) for key, metrics in runs.items()}
    return Findings(
        figures={f"AUC loss without privacy, {name}": auc_loss(baseline), **losses},
        missing=at_chance(runs),
    )


def _perceptron(paper_form: str, settings: ReproductionSettings) -> "AnyModel":
    """The perceptron of a paper, or a small one for a reduced run."""
    from tulle.train import MLP

    if not settings.is_paper:
        return MLP(embedding_dim=8, public_hidden=(32,), common_hidden=(32, 32))
    return {
        "display": MLP.hybrid_display,
        "attribution": MLP.hybrid_attribution,
        "semi-sensitive display": MLP.semi_sensitive_display,
        "semi-sensitive search": MLP.semi_sensitive_search,
    }[paper_form]()


def _factorization_machine(settings: ReproductionSettings) -> "AnyModel":
    from tulle.train import FactorizationMachine

    return FactorizationMachine() if settings.is_paper else FactorizationMachine(factor_dim=8)
