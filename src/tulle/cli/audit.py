"""`tulle audit`: attacks on what is claimed."""

import typer

from tulle.cli.audit_attacks import ATTACKS_EPILOG, attacks_command
from tulle.cli.audit_mechanisms import AUDIT_MECHANISMS_EPILOG, audit_mechanisms_command
from tulle.cli.audit_step import AUDIT_STEP_EPILOG, audit_step_command
from tulle.cli.audit_train import AUDIT_TRAIN_EPILOG, audit_train_command
from tulle.cli.option_class import PanelledCommand, TrainingCommand

audit_app = typer.Typer(
    name="audit",
    help="Attack what is claimed: randomizers, private steps, a training run, synthetic users.",
    no_args_is_help=True,
)
audit_app.command("mechanisms", cls=PanelledCommand, epilog=AUDIT_MECHANISMS_EPILOG)(
    audit_mechanisms_command
)
audit_app.command("step", cls=PanelledCommand, epilog=AUDIT_STEP_EPILOG)(audit_step_command)
audit_app.command("train", cls=TrainingCommand, epilog=AUDIT_TRAIN_EPILOG)(audit_train_command)
audit_app.command("attacks", cls=PanelledCommand, epilog=ATTACKS_EPILOG)(attacks_command)
