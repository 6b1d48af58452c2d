"""Which learning rate for logistic regression, from noisy labels of training rows alone.

    python benchmarks/quality/labels_rates.py FOLDER [--correction calibrated]

A tenth of the reports is held back, and predictions for it are judged by evaluate_on_reports:
post-processing of the release, so the choice costs nothing and never sees a test row.
"""

import argparse
import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from labels_data import open_source
from labels_jobs import FORWARD, ROW, Job, noisy_examples
from labels_settings import SPLIT_KEY, label_phase, model_settings

from record import print_table
from tulle.data.splits import split_at_random
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.quality.noisy_labels import evaluate_on_reports
from tulle.train import Adam, LabelCorrection, fit_on_reports

RATES = (1e-3, 3e-3, 1e-2, 3e-2)
EPSILONS = (1.0, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--correction", default=FORWARD, help="how training makes up for noise")
    options = parser.parse_args()
    rows = []
    for epsilon in EPSILONS:
        job = Job(
            folder=options.folder,
            model="lr",
            noise=ROW,
            correction=options.correction,
            epsilon=epsilon,
            device=options.device,
        )
        for rate in RATES:
            rows.append(judge(job, rate))
            print(rows[-1], flush=True)
    print_table(rows)


def judge(job: Job, rate: float) -> dict[str, object]:
    """The estimated likelihood on reports that were held back."""
    reports = noisy_examples(job)
    kept, held = split_at_random(reports.num_rows, fractions=(0.9, 0.1), key=SPLIT_KEY)
    source = open_source(job.folder).name
    phase = label_phase(job.model, source, LabelCorrection(job.correction), job.row_epsilon)
    model = fit_on_reports(
        reports.select(kept),
        model_settings(job.model, source),
        dataclasses.replace(phase, optimizer=Adam(learning_rate=rate)),
        device=job.device,
    )
    judged = reports.select(held)
    chances = judged.report_probs
    channel = BinaryChannel(prob_if_negative=chances[:, 0], prob_if_positive=chances[:, 1])
    estimates = evaluate_on_reports(judged.labels, channel, model.predict_proba(judged))
    likelihood = estimates.relative_log_likelihood
    return {
        "epsilon": job.epsilon,
        "rate": rate,
        "relative_log_likelihood": likelihood.value,
        "standard_error": likelihood.standard_error,
        "auc_loss": estimates.auc_loss.value,
    }


if __name__ == "__main__":
    main()
