"""`tulle labels`: release labels once, train anywhere."""

import typer

from tulle.cli.labels_evaluate import EVALUATE_EPILOG, evaluate
from tulle.cli.labels_plan import PLAN_LABELS_EPILOG, plan_labels_command
from tulle.cli.labels_release import RELEASE_EPILOG, release_command

labels_app = typer.Typer(
    name="labels",
    help="Release labels once under label differential privacy, and train anywhere.",
    epilog="A made-up log to try it on, with --layout attribution: "
    "tulle data synth attribution --rows 5000 --output log.parquet",
    no_args_is_help=True,
)
labels_app.command("release", epilog=RELEASE_EPILOG)(release_command)
labels_app.command("plan", epilog=PLAN_LABELS_EPILOG)(plan_labels_command)
labels_app.command("evaluate", epilog=EVALUATE_EPILOG)(evaluate)
