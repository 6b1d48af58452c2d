"""Options of `tulle train` and `tulle plan`. None means that an option was not given."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer


@dataclasses.dataclass(frozen=True, kw_only=True)
class SettingOptions:
    """What is trained on what, under which guarantee."""

    data: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Folder of a prepared dataset; or a made-up log: synth:search, synth:display, "
            "synth:attribution or synth:taobao.",
        ),
    ] = None
    rows: Annotated[
        int | None, typer.Option(help="Rows of a made-up log [default: 200000].", min=1)
    ] = None
    synth_seed: Annotated[
        int | None, typer.Option(help="Fixes a made-up log [default: 0].", min=0)
    ] = None
    test_fraction: Annotated[
        float | None,
        typer.Option(
            help="Share to test on, chosen by a public key: of the users if the data name them, "
            "else of the rows; 0 for no test [default: 0.2]."
        ),
    ] = None
    test: Annotated[
        Path | None, typer.Option(help="Or: prepared dataset to test on, made with --like.")
    ] = None
    allow_public: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Let this column be public, though a known log protects it. May be repeated.",
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file with settings; options given here win over it."),
    ] = None
    method: Annotated[
        str | None,
        typer.Option(
            help="mosaic, hybrid, rr, dp-sgd, label-projection or nonprivate [default: mosaic]."
        ),
    ] = None
    epsilon: Annotated[
        float | None, typer.Option(help="The guarantee; needed unless nonprivate.")
    ] = None
    delta: Annotated[
        float | None, typer.Option(help="Of the guarantee [default: 1e-7; rr needs none].")
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(help="Makes all noise repeatable. Then the release is not private.", min=0),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            help="mlp, fm (factorization machine) or lr (logistic regression); not for mosaic "
            "[default: mlp]."
        ),
    ] = None
    epochs: Annotated[float | None, typer.Option(help="Of the private steps [default: 4].")] = None
    batch_size: Annotated[
        int | None,
        typer.Option(help="Of the private steps [default: 16384, less for few rows].", min=1),
    ] = None
    clip_norm: Annotated[
        float | None, typer.Option(help="Largest part of a unit in a step [default: 10].")
    ] = None
    learning_rate: Annotated[
        float | None, typer.Option(help="Of the private steps [default: 0.002].")
    ] = None
    optimizer: Annotated[
        str | None,
        typer.Option(help="Of the private steps: sgd, adam, rmsprop or yogi [default: adam]."),
    ] = None
    noise: Annotated[
        str | None,
        typer.Option(
            help="Of the private steps: independent, banded (correlated over steps), lattice (on a "
            "grid) or selected-rows (for table rows with high noisy counts) [default: independent]."
        ),
    ] = None
    bands: Annotated[
        int | None, typer.Option(help="Steps that banded noise correlates [default: 16].", min=1)
    ] = None
    lattice_bits: Annotated[
        int | None, typer.Option(help="Bits of the clip norm above the lattice [default: 24].")
    ] = None
    selection_share: Annotated[
        float | None, typer.Option(help="Of a step's privacy for selecting rows [default: 0.1].")
    ] = None
    selection_threshold: Annotated[
        float | None,
        typer.Option(help="Of a selected row's count, in deviations of its noise [default: 3]."),
    ] = None
    public_tower: Annotated[
        str | None,
        typer.Option(
            help="In the private steps of hybrid: fine-tune or freeze [default: fine-tune]."
        ),
    ] = None
    public_batch_size: Annotated[
        int | None,
        typer.Option(
            help="Of label-projection: public rows that a step projects on [default: 1024].", min=2
        ),
    ] = None
    smoothing: Annotated[
        float | None,
        typer.Option(help="Of label-projection: share of the prior in labels [default: 0.25]."),
    ] = None
    smoothing_prior: Annotated[
        str | None, typer.Option(help="Of label-projection: model or half [default: model].")
    ] = None
    label_epochs: Annotated[
        float | None, typer.Option(help="On randomized labels [default: 1].")
    ] = None
    label_batch_size: Annotated[
        int | None, typer.Option(help="On randomized labels [default: 1024].", min=1)
    ] = None
    label_learning_rate: Annotated[
        float | None, typer.Option(help="On randomized labels [default: 0.001].")
    ] = None
    correction: Annotated[
        str | None,
        typer.Option(
            help="For randomized labels: forward, debiased, calibrated (rr only) or naive "
            "[default: forward]."
        ),
    ] = None
    early_stopping: Annotated[
        bool,
        typer.Option(
            "--early-stopping", help="Stop on held-back randomized labels; costs nothing."
        ),
    ] = False
    split: Annotated[
        str | None,
        typer.Option(
            help="What hybrid gives the labels: paper for min(0.6 epsilon, 3), ratio:0.25 or "
            "epsilon:1.2 [default: paper]."
        ),
    ] = None
    unit: Annotated[
        str | None,
        typer.Option(
            help="Who is protected: example, or user (not by mosaic). Must be said for data with "
            "a unit column [default for others: example]."
        ),
    ] = None
    max_rows_per_user: Annotated[
        int | None, typer.Option(help="In private steps [default: 1].", min=1)
    ] = None
    max_labels_per_user: Annotated[
        int | None, typer.Option(help="Randomized labels [default: 1].", min=1)
    ] = None
    user_accounting: Annotated[
        str | None,
        typer.Option(help="several-rows, group-privacy or clipped-users [default: several-rows]."),
    ] = None
    accounting: Annotated[
        str | None,
        typer.Option(help="replace; or paper, to reproduce one, not private [default: replace]."),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanOptions(SettingOptions):
    """What becomes of a plan."""

    finished: Annotated[
        Path | None,
        typer.Option(help="Save the plan for `tulle train --finished-plan`; must not exist."),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(SettingOptions):
    """How a run is carried out and kept."""

    finished_plan: Annotated[
        Path | None,
        typer.Option(help="Run exactly this plan of `tulle plan --finished`; no other settings."),
    ] = None
    runs: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("runs")
    name: Annotated[
        str | None,
        typer.Option(help="Of the run's folder [default: METHOD-SOURCE, numbered if taken]."),
    ] = None
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the named run, or the newest unfinished one."),
    ] = False
    ledger: Annotated[
        Path | None,
        typer.Option(help="Is charged once, before a label is randomized or a step taken."),
    ] = None
    purpose: Annotated[
        str | None, typer.Option(help="As the budgets name it [default: training].")
    ] = None
    predictions: Annotated[
        Path | None, typer.Option(help="Parquet file for the predictions of the test rows.")
    ] = None
    baseline: Annotated[
        str | None, typer.Option(metavar="RUN", help="Non-private run to compare AUC loss with.")
    ] = None
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu"
    processes: Annotated[
        int | None,
        typer.Option(
            help="Take private steps with this many processes on this machine; changes neither "
            "plan nor cost. For several machines use torchrun instead [default: 1].",
            min=1,
        ),
    ] = None
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Steps [default: twenty checkpoints a phase].", min=1)
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="No plan and progress on stderr.")] = False
