"""Bounded slice counts by PipelineDP's local backend; run by measure.py, in its own environment.

Takes a NumPy file with two rows, users and campaigns, and prints seconds and versions as JSON.
"""

import importlib.metadata
import json
import sys
import time

import numpy as np
import pipeline_dp


def main() -> None:
    path, max_slices, max_per_slice, epsilon = sys.argv[1], *map(float, sys.argv[2:5])
    users, campaigns = np.load(path)
    rows = list(zip(users.tolist(), campaigns.tolist(), strict=True))
    wall, cpu = time.perf_counter(), time.process_time()
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=1e-9)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    params = pipeline_dp.AggregateParams(
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        metrics=[pipeline_dp.Metrics.COUNT],
        max_partitions_contributed=int(max_slices),
        max_contributions_per_partition=int(max_per_slice),
    )
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda _: 0,
    )
    wanted = sorted(set(campaigns.tolist()))
    result = engine.aggregate(rows, params, extractors, public_partitions=wanted)
    accountant.compute_budgets()
    total = sum(metrics.count for _, metrics in result)
    facts = {
        "wall_seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "total": float(total),
        "version": importlib.metadata.version("pipeline-dp"),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
