"""What another selection would have been worth, from choices that are out and private logs.

Whoever runs this holds what devices know of their decisions, or is one of them. Only noisy sums
leave, once for one payment.
"""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from tulle.atomic_files import stage_text
from tulle.data.source_files import SourceFile, content_sha256, inspect_sources
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.centred_noise import check_confidence
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.plan import Plan
from tulle.privacy.units import Adjacency
from tulle.runs.charging import ReleaseKind, ReleaseTerms
from tulle.runs.record import Result
from tulle.runs.release_files import ReleaseFiles, check_output
from tulle.runs.release_once import OneRelease, ReleaseOptions, release_once
from tulle.select.auctions import BoolArray, IntArray, server_ranks
from tulle.select.decisions.chosen_ads import ChosenAds, check_drawn_by
from tulle.select.decisions.requests import (
    AuctionBlock,
    personalised_requests,
    read_whole_batch,
    shortlist_sizes,
)
from tulle.select.evaluation.device_terms import DecisionLog
from tulle.select.evaluation.estimate import (
    EvaluationResult,
    check_evaluation,
    release_estimate,
)
from tulle.select.evaluation.evaluation_plan import (
    EvaluationConfig,
    EvaluationRecord,
    make_evaluation_plan,
    read_numbers,
)
from tulle.select.files.auction_files import AuctionColumns
from tulle.select.selection_config import SelectionConfig
from tulle.select.settings import settings_text

EVALUATIONS = ReleaseKind(
    name="selection evaluation", key_ending="select-evaluation-key", adjacency=Adjacency.REPLACE
)

_MEANINGS = {
    "clicks_per_decision": "Estimated clicks of a decision under the evaluated selection.",
    "interval": "For it, over noise and sampling; over no bias by cut weights.",
    "noise_stddev": "Standard deviation of the noise in it.",
    "sampling_stddev": "That of draws, clicks and users; noisy, and on the high side.",
    "num_decisions": "Personalised decisions that count.",
    "num_users": "Their users.",
    "max_weight": "Largest weight of a decision.",
    "is_weight_cut": "Whether larger weights were possible, which biases the estimate.",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationFiles:
    """What an evaluation reads."""

    auctions: Path
    choices: Path
    clicks: Path
    """Clicks on shown ads. Sensitive."""
    columns: AuctionColumns

    @property
    def paths(self) -> list[Path]:
        """Paths of all files."""
        return [self.auctions, self.choices, self.clicks]


def evaluate_files(
    config: EvaluationConfig,
    files: EvaluationFiles,
    out: Path,
    *,
    rng: NoiseSource,
    options: ReleaseOptions | None = None,
) -> tuple[Result[EvaluationRecord, Plan], dict[str, Any]]:
    """Writes the estimate as JSON, with its record; gives the release and its numbers.

    Args:
      config: What is evaluated.
      files: Auctions with predictions of devices, choices and clicks.
      out: The new JSON file.
      rng: Source of the noise. Sensitive: never log or save its state.
      options: Ledger.

    Privacy:
      Unit: that of the logging selection, replace: predictions and clicks change, requests and
      choices stay. Event: two discrete Laplace sums, charged before the first draw. The choices
      themselves were paid when they were drawn.
    """
    options = options or ReleaseOptions()
    check_output(out, endings=(".json",), inputs=files.paths)
    plan = make_evaluation_plan(
        config,
        files.columns,
        ReleaseTerms(has_ledger=options.charge is not None, noise_source=rng.description),
    )
    release = OneRelease(
        plan=plan,
        kind=EVALUATIONS,
        out=out,
        record_type=EvaluationRecord,
        options=options,
    )
    draw = _EvaluationDraw(config, files, plan, inspect_sources(files.paths), rng)
    released = release_once(release, draw)
    return released, read_numbers(out)


class _EvaluationDraw:
    """Reads everything before it is paid, and draws once."""

    def __init__(
        self,
        config: EvaluationConfig,
        files: EvaluationFiles,
        plan: Plan,
        sources: tuple[SourceFile, ...],
        rng: NoiseSource,
    ) -> None:
        self._config, self._files, self._plan = config, files, plan
        self._sources, self._rng = sources, rng
        self._read: tuple[AuctionBlock, DecisionLog] | None = None

    def check(self) -> None:
        """Reads all files and refuses what does not fit together."""
        block, log = _read_log(self._config, self._files)
        check_evaluation(block.auctions, log, self._config.evaluation())
        check_confidence(self._config.confidence)
        self._read = block, log
        if inspect_sources(self._files.paths) != self._sources:
            raise DataError("a file changed while it was read; start again.")

    def digest(self) -> bytes:
        """Hash of all files and of the meaning of their columns."""
        parts = [content_sha256(path) for path in self._files.paths]
        return hashlib.sha256(repr((self._files.columns, parts)).encode()).digest()

    def write(self, files: ReleaseFiles[EvaluationRecord]) -> EvaluationRecord:
        """The estimate into the hidden file; the record says what it is."""
        if self._read is None:
            raise ConfigError("files are checked first and then evaluated.")
        block, log = self._read
        result = release_estimate(
            block.auctions,
            log,
            self._config.evaluation(),
            rng=self._rng,
            confidence=self._config.confidence,
        )
        text = json.dumps(_numbers(result), indent=2, allow_nan=False) + "\n"
        stage_text(files.hidden_table, text).replace(files.hidden_table)
        record = EvaluationRecord(
            plan=self._plan,
            target=settings_text(self._config.target),
            num_decisions=result.num_decisions,
            columns=_MEANINGS,
            table=files.table.name,
            table_sha256=content_sha256(files.hidden_table),
            randomness=self._rng.description,
            is_secure=self._rng.is_secure,
        )
        files.hide_record(record)
        return record


def _read_log(config: EvaluationConfig, files: EvaluationFiles) -> tuple[AuctionBlock, DecisionLog]:
    check_drawn_by(config.logging, files.choices)
    block = read_whole_batch(
        files.auctions, files.columns, reserve=config.logging.pricing.reserve, with_device=True
    )
    requests = personalised_requests(config.logging, [block])
    chosen = ChosenAds.read(files.choices, files.clicks, like=block)
    found = list(chosen.of_block(block))
    chosen.check_all_found(files.choices)
    if len(found) != 1 or len(found[0].choices) != len(block.auctions):
        raise DataError(
            f"{files.choices.name} has not one choice for each auction; evaluate choices with the "
            "auctions that they were made of."
        )
    order = np.argsort(found[0].choices.auctions)
    places = found[0].choices.places(block.auctions)[order]
    clicked = found[0].raw_is_clicked
    if clicked is None:
        raise DataError("clicks of the shown ads are needed.")
    _check_possible(config.logging, block, places, requests.is_personalised)
    device = block.device_clicks()
    users = np.arange(len(places)) if requests.users is None else requests.users
    log = DecisionLog(
        users=users,
        choices=places,
        raw_clicks=clicked[order],
        raw_scores=device.scores(block.auctions),
        raw_model_clicks=device.click_probs,
        is_personalised=requests.is_personalised,
    )
    return block, log


def _check_possible(
    logging: SelectionConfig, block: AuctionBlock, places: IntArray, is_personalised: BoolArray
) -> None:
    """Refuses choices that the selection never makes. Public data tell."""
    ranks = server_ranks(block.auctions)[places]
    sizes = shortlist_sizes(logging.mechanism, block.auctions)
    if np.any(ranks >= np.where(is_personalised, sizes, 1)):
        raise DataError(
            "a choice is of an ad that these settings never show in its auction; give the settings "
            "that the choices were drawn by."
        )


def _numbers(result: EvaluationResult) -> dict[str, Any]:
    return {
        "clicks_per_decision": result.estimate.value,
        # Clicks of a decision are between 0 and 1, whatever noise says.
        "interval": [max(result.interval.low, 0.0), min(result.interval.high, 1.0)],
        "noise_stddev": result.estimate.noise_stddev,
        "sampling_stddev": result.sampling_stddev,
        "num_decisions": result.num_decisions,
        "num_users": result.num_users,
        "max_weight": result.max_weight,
        "is_weight_cut": result.is_weight_cut,
    }
