"""`tulle measure`: campaign numbers with a guarantee for users."""

import typer

from tulle.cli.measure_attribute import ATTRIBUTE_EPILOG, CLIPS_EPILOG, attribute_command, clips
from tulle.cli.measure_counts import COUNT_EPILOG, REACH_EPILOG, count_command, reach_command
from tulle.cli.measure_plan import PLAN_MEASURE_EPILOG, plan, present_plan_name
from tulle.cli.measure_run import RUN_EPILOG, run_command
from tulle.cli.measure_simulate import W3C_CONFORMANCE_EPILOG, simulate_app, w3c_conformance
from tulle.cli.option_class import PanelledCommand

measure_app = typer.Typer(
    name="measure",
    help="Measure campaigns: attribution, slices, hierarchies, reach, browser APIs.",
    epilog="Start with: tulle measure plan campaigns.toml\n\n"
    "A synthetic log to try it on: tulle data synth impressions --rows 5000 --output log",
    no_args_is_help=True,
)
measure_app.command("run", epilog=RUN_EPILOG, cls=PanelledCommand)(run_command)
measure_app.command(
    "plan",
    epilog=PLAN_MEASURE_EPILOG,
    cls=PanelledCommand,
    context_settings={"token_normalize_func": present_plan_name},
)(plan)
measure_app.command("count", epilog=COUNT_EPILOG, cls=PanelledCommand)(count_command)
measure_app.command("reach", epilog=REACH_EPILOG, cls=PanelledCommand)(reach_command)
measure_app.command("attribute", epilog=ATTRIBUTE_EPILOG, cls=PanelledCommand)(attribute_command)
measure_app.command("clips", epilog=CLIPS_EPILOG, cls=PanelledCommand)(clips)
measure_app.command("w3c-conformance", epilog=W3C_CONFORMANCE_EPILOG, cls=PanelledCommand)(
    w3c_conformance
)
measure_app.add_typer(simulate_app)
