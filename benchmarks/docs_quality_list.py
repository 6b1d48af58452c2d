"""Records of quality, for docs_benchmarks.py."""

from docs_benchmark import NO_SEED_FOR_FORMULAS, Benchmark, Row


def _held(record: Row) -> str:
    held = sum(verdict["holds"] for verdict in record["verdicts"])
    return f"{held} of {len(record['verdicts'])} orderings that were checked hold."


def _claims(record: Row) -> str:
    held = sum(claim["verdict"] == "holds" for claim in record["claims"])
    return f"{held} of {len(record['claims'])} checks of published claims, by market, hold."


def _known_mutants(record: Row) -> str:
    known = [row for row in record["rows"] if row["known"]]
    caught = sum(row["outcome"] != "survived" for row in known)
    return (
        "Tests were written for some that survived at first; each that survives now is explained "
        "in `tests/mutation/survivors.toml`. Of "
        f"{len(known)} faults from outside this sample that once survived, {caught} are caught."
    )


TRAINING = {
    "log": ("source", "s"),
    "method": ("method", "s"),
    "epsilon": ("epsilon", "g"),
    "AUC loss": ("auc_loss", ".4f"),
    "above non-private, %": ("relative_percent", ".1f"),
}
LABELS = {
    "model": ("model", "s"),
    "unit": ("unit", "s"),
    "noise": ("noise", "s"),
    "correction": ("correction", "s"),
    "AUC loss": ("auc_loss", ".4f"),
    "above no noise, %": ("relative_percent", ".1f"),
}
QUALITY = {
    "hybrid_real": Benchmark(
        title="Training methods on a public log",
        script="quality/method_runs.py",
        options="FOLDER --device cuda --processes 16 --seeds 3 "
        "--output benchmarks/published/hybrid_real.json",
        measures="The AUC loss of Mosaic, randomized labels, DP-SGD and Hybrid, compared with "
        "training without privacy. `python benchmarks/quality/method_jobs.py` makes "
        "FOLDER from a copy of the Criteo Sponsored Search Conversion Log. Rows of "
        "epsilon 3 are shown.",
        columns={key: TRAINING[key] for key in TRAINING if key != "log"},
        rows="summary",
        keep=lambda row, _: row["epsilon"] in (None, 3.0),
    ),
    "numeric_columns": Benchmark(
        title="Columns of numbers",
        script="quality/numeric_columns.py",
        measures="The AUC of Mosaic on a synthetic log with columns of numbers: as the default "
        "bins them, with bins that were made by hand, and with each number as a category.",
        columns={
            "columns": ("columns", "s"),
            "epsilon": ("epsilon", "g"),
            "AUC": ("auc", ".4f"),
            "AUC of the truth": ("auc_of_truth", ".4f"),
        },
    ),
    "hybrid_synth": Benchmark(
        title="Training methods on synthetic logs",
        script="quality/method_runs.py",
        options="FOLDER FOLDER FOLDER --device cuda --processes 16 --seeds 3 "
        "--output benchmarks/published/hybrid_synth.json",
        measures="The same on synthetic logs in three layouts, with one FOLDER for each.",
        columns=TRAINING,
        rows="summary",
        keep=lambda row, _: row["epsilon"] in (None, 3.0),
    ),
    "mosaic_users": Benchmark(
        title="Users as units of Mosaic",
        script="quality/mosaic_users.py",
        options="CLICKS.parquet --output benchmarks/published/mosaic_users.json",
        measures="The AUC loss of Mosaic with whole users as units, compared with single rows, on "
        "the same training and test rows: a quarter of the users of the Criteo Sponsored Search "
        "Conversion Log, and the synthetic Attribution log. Rows of epsilon 3 are shown.",
        columns={
            "log": ("log", "s"),
            "unit": ("unit", "s"),
            "seed": ("seed", "d"),
            "AUC loss": ("auc_loss", ".4f"),
            "log loss": ("log_loss", ".4f"),
        },
        keep=lambda row, _: row["epsilon"] == 3.0,
    ),
    "mosaic_daily": Benchmark(
        title="A model for each day",
        script="quality/mosaic_daily.py",
        options="CLICKS.parquet --output benchmarks/published/mosaic_daily.json",
        measures="Models of Mosaic trained on one day of the Criteo Sponsored Search Conversion "
        "Log at epsilon 1 and tested on the next day, from scratch and continued from the model of "
        "the day before, for a quarter of the users. What fraction of the evidence is kept was "
        "chosen on another quarter of the users. Means over all days after the first 7.",
        columns={
            "training": ("training", "s"),
            "seeds": ("seeds", "d"),
            "AUC loss": ("auc_loss", ".4f"),
            "log loss": ("log_loss", ".4f"),
            "calibration": ("calibration", ".3f"),
        },
        rows="summary",
    ),
    "known_values": Benchmark(
        title="Known values of a sensitive column",
        script="quality/known_values.py",
        options="CLICKS.parquet --output benchmarks/published/known_values.json",
        measures="What a public table of audiences and facts about them is worth to Mosaic, on the "
        "Criteo Sponsored Search Conversion Log. The table is made from the rows of other users. "
        "Rows of epsilon 1 are shown.",
        columns={
            "public columns": ("public", "s"),
            "table": ("known", "s"),
            "seed": ("seed", "d"),
            "AUC loss": ("auc_loss", ".4f"),
            "log loss": ("log_loss", ".4f"),
        },
        keep=lambda row, _: row["epsilon"] == 1.0,
    ),
    "few_rows": Benchmark(
        title="Mosaic on few rows",
        script="quality/few_rows.py",
        options="CLICKS.parquet --output benchmarks/published/few_rows.json",
        measures="The AUC loss and log loss of Mosaic, of randomized labels and of the label rate "
        "on few rows of the Criteo Sponsored Search Conversion Log and of three synthetic logs, "
        "and whether the plan of Mosaic said beforehand that the rows are few. It fails if Mosaic "
        "is worse than the better one of the others where its plan said nothing. Rows of seed 0 "
        "and epsilon 3 are shown.",
        columns={
            "log": ("log", "s"),
            "rows": ("num_rows", ",d"),
            "method": ("method", "s"),
            "AUC loss": ("auc_loss", ".4f"),
            "log loss": ("log_loss", ".4f"),
        },
        keep=lambda row, _: row["epsilon"] == 3.0 and row["seed"] == 0,
    ),
    "hybrid_ablations": Benchmark(
        title="Parts of Mosaic",
        script="quality/mosaic_ablations.py",
        options="FOLDER FOLDER --processes 16",
        measures="The change of the losses if one part of Mosaic is changed, on a tenth of the "
        "training rows that the models have not seen. Each FOLDER is as above. Rows "
        "of epsilon 3 are shown.",
        columns={
            "log": ("source", "s"),
            "Mosaic": ("variant", "s"),
            "AUC loss": ("auc_loss", ".4f"),
            "change, %": ("auc_loss_percent", "+.2f"),
            "log loss": ("log_loss", ".4f"),
            "its change, %": ("log_loss_percent", "+.2f"),
        },
        rows="summary",
        keep=lambda row, _: row["epsilon"] == 3.0,
    ),
    "mosaic_rounds": Benchmark(
        title="Tables of a round in one scan",
        script="quality/mosaic_rounds.py",
        options="FOLDER FOLDER FOLDER FOLDER --before CHECKOUT --rows 400000 --seeds 3",
        measures="What it changes that Mosaic measures all tables of a round with the same "
        "predictions, in one scan of the rows, and not one after the other. CHECKOUT has a version "
        "that did the latter; each FOLDER is as above. CPU seconds are those of the two versions, "
        "which differ in other work on speed, too.",
        columns={
            "log": ("source", "s"),
            "epsilon": ("epsilon", "g"),
            "AUC loss": ("auc_loss", ".4f"),
            "change, %": ("auc_loss_percent", "+.2f"),
            "log loss": ("log_loss", ".4f"),
            "its change, %": ("log_loss_percent", "+.2f"),
            "scans": ("scans", ".0f"),
            "scans before": ("scans_before", ".0f"),
            "CPU seconds": ("cpu_seconds", ".1f"),
            "CPU seconds before": ("cpu_seconds_before", ".1f"),
        },
        rows="summary",
    ),
    "model_size": Benchmark(
        title="Size of the private model",
        script="quality/model_size.py",
        options="--models fm mlp",
        measures="The loss of quality with a smaller vocabulary of the sensitive tower. The "
        "counts that choose the vocabulary are charged to the same budget.",
        columns={
            "model": ("model", "s"),
            "public tower": ("public_tower", "s"),
            "threshold": ("threshold", ",d"),
            "sensitive ids": ("sensitive_ids", ",d"),
            "AUC loss": ("auc_loss", ".4f"),
            "change, %": ("auc_loss_percent", "+.2f"),
        },
        rows="summary",
        keep=lambda row, _: row["public_tower"] == "fine-tuned",
    ),
    "banded_noise": Benchmark(
        title="Correlated noise",
        script="quality/banded_noise.py",
        measures="The error of sums of steps with banded noise, divided by that with "
        "independent noise; both have the least noise for the same epsilon. Rows of "
        "epsilon 1, or of the next larger epsilon, are shown.",
        columns={
            "epochs": ("epochs", "d"),
            "epsilon": ("epsilon", "g"),
            "bands": ("num_bands", "d"),
            "noise multiplier": ("noise_multiplier", ".3f"),
            "noise left": ("noise_left", ".2f"),
        },
        keep=lambda row, record: (
            row["epsilon"]
            == min(each["epsilon"] for each in record["rows"] if each["epsilon"] >= 1)
        ),
        no_seed=NO_SEED_FOR_FORMULAS,
    ),
    "labels_real": Benchmark(
        title="Label privacy on a public log",
        script="quality/labels.py",
        options="FOLDER --output benchmarks/published/labels_real.json",
        measures="The quality of models that were trained on noisy labels, by noise, "
        "correction and unit. `python benchmarks/quality/labels_data.py` makes FOLDER "
        "from a copy of the Criteo Sponsored Search Conversion Log. Rows of epsilon 1 "
        "are shown.",
        columns=LABELS,
        rows="summary",
        keep=lambda row, _: row["epsilon"] in (None, 1.0),
        note=_held,
    ),
    "labels_synth": Benchmark(
        title="Label privacy on a synthetic log",
        script="quality/labels.py",
        options="FOLDER --output benchmarks/published/labels_synth.json",
        measures="The same on a synthetic log. Rows of epsilon 1 for logistic regression are "
        "shown.",
        columns={key: LABELS[key] for key in LABELS if key != "model"},
        rows="summary",
        keep=lambda row, _: row["model"] == "lr" and row["epsilon"] in (None, 1.0),
        note=_held,
    ),
    "labels_values": Benchmark(
        title="Sale values with noise",
        script="quality/labels_values.py",
        options="CLICKS",
        measures="The test error of linear models that were trained on noisy numeric labels, "
        "by mechanism. CLICKS is an extract of the Criteo Sponsored Search Conversion "
        "Log; without it only the synthetic table is used.",
        columns={
            "log": ("source", "s"),
            "mechanism": ("mechanism", "s"),
            "epsilon": ("epsilon", "g"),
            "test error": ("test_mse", ",.0f"),
            "above no noise, %": ("relative_percent", ".1f"),
        },
        rows="summary",
        keep=lambda row, _: row["epsilon"] in (None, 1.0),
        note=_held,
    ),
    "mosaic_classes": Benchmark(
        title="Classes of clicks",
        script="quality/mosaic_classes.py",
        options="CLICKS",
        measures="Log loss, accuracy and AUC of three classes of clicks: no sale, one below 50 "
        "euros, one above. Mosaic with classes, a model of Mosaic for each class, label DP of the "
        "same epsilon, and multinomial models without privacy. CLICKS is an extract of the Criteo "
        "Sponsored Search Conversion Log; without it nothing is measured.",
        columns={
            "method": ("method", "s"),
            "epsilon": ("epsilon", "g"),
            "log loss": ("log_loss", ".4f"),
            "accuracy": ("accuracy", ".4f"),
            "AUC": ("auc", ".4f"),
            "calibration error": ("calibration_error", ".4f"),
        },
        rows="summary",
    ),
    "mosaic_values": Benchmark(
        title="Expected sale amounts",
        script="quality/mosaic_values.py",
        options="CLICKS",
        measures="The error of predicted sale amounts of clicks: Mosaic with a clip, label DP of "
        "the same epsilon, and linear models without privacy. CLICKS is an extract of the Criteo "
        "Sponsored Search Conversion Log; without it nothing is measured.",
        columns={
            "method": ("method", "s"),
            "epsilon": ("epsilon", "g"),
            "mean squared error": ("mean_squared_error", ",.0f"),
            "R2": ("r_squared", ".4f"),
            "calibration": ("calibration", ".2f"),
            "utility": ("bidding_over_constant", ".3f"),
        },
        rows="summary",
    ),
    "level_budgets": Benchmark(
        title="Budgets of the levels of a tree",
        script="quality/level_budgets.py",
        measures="The expected relative error of trees, by the split of epsilon among levels.",
        columns={
            "tree": ("tree", "s"),
            "conversions": ("conversions", ",d"),
            "leaves only": ("leaf_only", ".3f"),
            "uniform": ("uniform", ".3f"),
            "cube root": ("cube_root", ".3f"),
            "optimised": ("optimised", ".3f"),
        },
    ),
    "clip_shares": Benchmark(
        title="Clips and budget shares",
        script="quality/clip_shares.py",
        measures="The relative error of optimised clips and shares, divided by that of the "
        "better of two usual quantiles. The last column is the paper's ratio, where "
        "it gives one.",
        columns={
            "set": ("set", "s"),
            "epsilon": ("epsilon", "g"),
            "optimised": ("optimised", ".3f"),
            "over the best baseline": ("over_best_baseline", ".2f"),
            "in the paper": ("in_the_paper", ".2f"),
        },
    ),
    "reach": Benchmark(
        title="Reach and frequency",
        script="quality/reach.py",
        measures="The share of runs within the errors that cross-media teams ask for, by "
        "method and size. Rows of the largest reach are shown.",
        columns={
            "method": ("method", "s"),
            "reach": ("reach", ",d"),
            "epsilon": ("epsilon", ".3g"),
            "median error": ("median_reach_error", ".2%"),
            "runs within": ("reach_within", ".0%"),
        },
        keep=lambda row, record: (
            row["reach"] == max(each["reach"] for each in record["rows"])
            and row["epsilon"] == record["rows"][0]["epsilon"]
        ),
    ),
    "trust_models": Benchmark(
        title="Trust models",
        script="quality/trust_models.py",
        measures="The standard deviation of one count, by trust model. Rows of the largest "
        "number of users are shown.",
        columns={
            "trust": ("trust", "s"),
            "method": ("method", "s"),
            "epsilon": ("epsilon", "g"),
            "users": ("num_users", ",d"),
            "standard deviation": ("stddev", ",.3g"),
        },
        keep=lambda row, record: (
            row["curve"] == "users"
            and row["num_users"]
            == max(each["num_users"] for each in record["rows"] if each["curve"] == "users")
        ),
        no_seed=NO_SEED_FOR_FORMULAS,
    ),
    "selection": Benchmark(
        title="Ad selection by market",
        script="quality/selection.py",
        measures="The share of the gain of personalisation that each private rule keeps, on "
        "three synthetic markets. Rows of epsilon 3 are shown, without clips of fixed "
        "widths.",
        columns={
            "market": ("market", "s"),
            "rule": ("mechanism", "s"),
            "epsilon": ("epsilon", "g"),
            "captured share": ("captured_share", ".2f"),
            "revenue lift": ("revenue_lift", "+.3f"),
        },
        keep=lambda row, _: row["epsilon"] == 3.0 and row["mechanism"] != "noisy max, clipped",
        note=_claims,
    ),
    "synth_shapes": Benchmark(
        title="Synthetic logs beside the public ones",
        script="quality/synth_shapes.py",
        measures="Statistics of the synthetic logs, compared with those of the logs that they "
        "imitate. Shown are rows about AUC or the label rate whose real figure was "
        "checked against its source.",
        columns={
            "shape": ("shape", "s"),
            "statistic": ("statistic", "s"),
            "synthetic": ("synthetic", ".4g"),
            "real": ("real", ".4g"),
            "source": ("source", "s"),
        },
        keep=lambda row, _: (
            row["checked"] and ("auc" in row["statistic"] or "label rate" in row["statistic"])
        ),
        no_seed="fixed in the command.",
    ),
    "mutants": Benchmark(
        title="Small faults that the tests notice",
        script="quality/mutants.py",
        options="--again benchmarks/published/mutants.json",
        measures="Random changes of one operator, constant or statement at a time in the code "
        "on which guarantees rest, and whether a test of this code fails. A run that "
        "does not end counts as noticed.",
        columns={
            "area": ("area", "s"),
            "mutants": ("mutants", "d"),
            "a test fails": ("caught", "d"),
            "does not end": ("timeout", "d"),
            "survive": ("survived", "d"),
            "survived at first": ("survived_at_first", "d"),
        },
        rows="summary",
        note=_known_mutants,
    ),
}
