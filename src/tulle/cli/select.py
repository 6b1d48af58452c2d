"""`tulle select`: private, personalised ad selection with exact billing."""

import functools

import typer

from tulle.cli.option_class import PanelledCommand
from tulle.cli.select_bill import BILL_EPILOG, bill_command
from tulle.cli.select_decide import DECIDE_EPILOG, decide_command
from tulle.cli.select_evaluate import EVALUATE_SELECTION_EPILOG, evaluate_selection_command
from tulle.cli.select_plan import PLAN_SELECTION_EPILOG, plan_selection_command
from tulle.cli.select_simulate import SIMULATE_EPILOG, simulate_command

select_app = typer.Typer(
    name="select",
    help="Select ads on devices, privately, and bill them exactly.",
    epilog="Synthetic auctions to try it on, planned with --consent everyone: "
    "tulle data synth auctions --rows 2000 --output auctions.parquet",
    no_args_is_help=True,
)
_add = functools.partial(select_app.command, cls=PanelledCommand)
_add("plan", epilog=PLAN_SELECTION_EPILOG)(plan_selection_command)
_add("simulate", epilog=SIMULATE_EPILOG)(simulate_command)
_add("decide", epilog=DECIDE_EPILOG)(decide_command)
_add("bill", epilog=BILL_EPILOG)(bill_command)
_add("evaluate", epilog=EVALUATE_SELECTION_EPILOG)(evaluate_selection_command)
