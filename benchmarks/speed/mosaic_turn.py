"""One training of Mosaic, run by mosaic.py: fits the training rows, then predicts the others.

Takes the task as JSON. The noise is secret, as in use, so that losses differ a little between runs.
"""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measured_process import begin, end

from mosaic_scans import scans_and_tables
from tulle.data.prepared.dataset import PreparedDataset
from tulle.train import ExampleLevel, ExampleSet, MosaicConfig, RunOptions
from tulle.train.fitting import fit
from tulle.train.run_context import Progress


def main() -> None:
    task = json.loads(sys.argv[1])
    dataset = PreparedDataset.open(task["data"])
    train, test = (
        ExampleSet.of(dataset, np.load(task[part])) for part in ("train_rows", "test_rows")
    )
    config = MosaicConfig(unit=ExampleLevel())
    config = config.calibrate(epsilon=task["epsilon"], delta=task["delta"])
    reports: list[Progress] = []
    clocks = begin()
    result = fit(train, config, options=RunOptions(watch=reports.append))
    end(clocks)
    np.save(task["predictions"], result.model.predicted(test))
    scans, tables = scans_and_tables(reports)
    print(json.dumps({"scans": scans, "tables": tables}))


if __name__ == "__main__":
    main()
