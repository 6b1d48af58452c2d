"""Which function runs which target."""

from collections.abc import Mapping
from functools import partial

from tulle.lab.reproduction.label_runs import run_debiasing, run_units
from tulle.lab.reproduction.market_runs import (
    run_epsilon_sweep,
    run_gamma_sweep,
    run_mixing_grid,
    run_pricing,
    run_synthetic_scores,
)
from tulle.lab.reproduction.private_training import TrainingSize
from tulle.lab.reproduction.reproducing import Experiment
from tulle.lab.reproduction.training_runs import (
    REDUCED_LONG,
    run_budget_ratio,
    run_figure,
    run_model_size,
    run_table,
    run_user_table,
    run_vocabulary,
)
from tulle.lab.reproduction.tree_runs import run_hierarchy

_COMPUTED: Mapping[str, Experiment] = {
    "apple-fig3": run_epsilon_sweep,
    "apple-fig4": run_gamma_sweep,
    "apple-fig10": run_synthetic_scores,
    "apple-fig13": run_mixing_grid,
    "apple-pricing": run_pricing,
    "tutorial-hierarchy": run_hierarchy,
}
TRAINED: Mapping[str, Experiment] = {
    "patcg-debias": run_debiasing,
    "labeldp-units": run_units,
    "ppai24-table1": partial(
        run_table, log="display", paper=TrainingSize(private_epochs=3.0, plain_epochs=3.0)
    ),
    "ppai24-table2": partial(
        run_table,
        log="attribution",
        paper=TrainingSize(private_epochs=3.0, plain_epochs=5.0, plain_batch=8_192),
    ),
    "ppai24-table3": run_user_table,
    "ppai24-table5": partial(
        run_table,
        log="display",
        paper=TrainingSize(private_epochs=64.0, plain_epochs=3.0),
        reduced=REDUCED_LONG,
    ),
    "adkdd24-fig1": partial(
        run_figure, log="display", paper=TrainingSize(private_epochs=50.0, plain_epochs=10.0)
    ),
    "adkdd24-fig2": partial(
        run_figure, log="search", paper=TrainingSize(private_epochs=64.0, plain_epochs=16.0)
    ),
    "adkdd24-fig3": run_budget_ratio,
    "adkdd24-fig4": run_model_size,
    "adkdd24-fig5": run_vocabulary,
}
"""Experiments that train models and so need torch."""
EXPERIMENTS: Mapping[str, Experiment] = {**_COMPUTED, **TRAINED}
"""All experiments by the name of their target."""
