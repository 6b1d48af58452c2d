"""What followers must know before the first step: the plan, the rows, and where keys come from."""

import dataclasses
import json

import numpy as np

from tulle.errors import DataError
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.train.content_fingerprint import content_fingerprint
from tulle.train.distributed.messages import Kind, Message, tell
from tulle.train.distributed.processes import Processes
from tulle.train.examples import ExampleSet, IntArray
from tulle.train.private_updates import NoisePlacement
from tulle.train.run_context import RunContext
from tulle.train.train_plan import TrainPlan

_NUMBER = np.dtype("<i8")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Opening:
    """What the leader sends. Which rows were chosen may be secret."""

    plan: TrainPlan
    placement: NoisePlacement
    rows: IntArray | None
    """Of the training rows, those that private steps draw from; None for all."""
    fingerprint: str
    """Of the same rows, as the leader has them."""
    seeds: tuple[int, ...] | None
    """One for each process of a run that can be repeated; None for fresh keys."""

    @classmethod
    def of_run(
        cls, plan: TrainPlan, examples: ExampleSet, rows: IntArray | None, context: RunContext
    ) -> "Opening":
        """The opening of a run.

        Only a source with a fixed seed gives seeds to others: secret keys are drawn where
        they are used, and never sent.

        Args:
          plan: Of the run.
          examples: The chosen rows.
          rows: Which they are, among all training rows.
          context: The leader's.
        """
        size = 1 if context.processes is None else context.processes.size
        rng = context.rng
        return cls(
            plan=plan,
            placement=context.noise_placement,
            rows=rows,
            fingerprint=content_fingerprint(examples),
            seeds=None if rng.is_secure else tuple(int(word) for word in rng.words(size)),
        )

    def send(self, processes: Processes) -> None:
        """Tells all followers."""
        head = {
            "plan": self.plan.to_json(),
            "placement": self.placement.value,
            "fingerprint": self.fingerprint,
            "seeds": self.seeds,
            "has_rows": self.rows is not None,
        }
        # JSON has no line breaks, so the first one ends it.
        content = json.dumps(head).encode() + b"\n"
        if self.rows is not None:
            content += self.rows.astype(_NUMBER).tobytes()
        tell(processes, Message(kind=Kind.OPEN, content=content))

    @classmethod
    def of_message(cls, message: Message) -> "Opening":
        """Reads what `send` told."""
        text, _, numbers = message.content.partition(b"\n")
        head = json.loads(text)
        rows = np.frombuffer(numbers, _NUMBER).astype(np.int64) if head["has_rows"] else None
        return cls(
            plan=TrainPlan.from_json(head["plan"]),
            placement=NoisePlacement(head["placement"]),
            rows=rows,
            fingerprint=head["fingerprint"],
            seeds=None if head["seeds"] is None else tuple(head["seeds"]),
        )

    def examples_of(self, data: ExampleSet) -> ExampleSet:
        """The chosen rows of a follower's data.

        Raises:
          DataError: They are not those of the leader.
        """
        is_within = self.rows is None or not len(self.rows) or self.rows.max() < data.num_rows
        examples = data if self.rows is None or not is_within else data.select(self.rows)
        if not is_within or content_fingerprint(examples) != self.fingerprint:
            raise DataError(
                "this process has other training rows than the leader of the run; give all "
                "processes the same data."
            )
        return examples

    def rng_of(self, rank: int) -> NoiseSource:
        """Randomness of one process's own."""
        return release_rng() if self.seeds is None else SeededNoise(self.seeds[rank])
