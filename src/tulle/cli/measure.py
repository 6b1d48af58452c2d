"""`tulle measure`: campaign numbers with a guarantee for users."""

import typer

from tulle.cli.measure_attribute import ATTRIBUTE_EPILOG, attribute_command
from tulle.cli.measure_clips import CLIPS_EPILOG, clips
from tulle.cli.measure_plan import PLAN_MEASURE_EPILOG, plan
from tulle.cli.measure_reach import REACH_EPILOG, reach_command
from tulle.cli.measure_run import RUN_EPILOG, run_command
from tulle.cli.measure_simulate import simulate_app
from tulle.cli.measure_w3c import W3C_CONFORMANCE_EPILOG, w3c_conformance

measure_app = typer.Typer(
    name="measure",
    help="Measure campaigns: attribution, slices, hierarchies, reach, browser APIs.",
    epilog="Start with: tulle measure plan campaigns.toml\n\n"
    "A made-up log to try it on: tulle data synth impressions --rows 5000 --output log",
    no_args_is_help=True,
)
measure_app.command("run", epilog=RUN_EPILOG)(run_command)
measure_app.command("plan", epilog=PLAN_MEASURE_EPILOG)(plan)
measure_app.command("attribute", epilog=ATTRIBUTE_EPILOG)(attribute_command)
measure_app.command("clips", epilog=CLIPS_EPILOG)(clips)
measure_app.command("reach", epilog=REACH_EPILOG)(reach_command)
measure_app.command("w3c-conformance", epilog=W3C_CONFORMANCE_EPILOG)(w3c_conformance)
measure_app.add_typer(simulate_app)
