"""What a benchmark writes: its rows, and the machine and versions they hold for."""

import datetime
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import tulle

PUBLISHED = Path(__file__).resolve().parent / "published"


def write_record(
    path: Path, name: str, rows: Sequence[dict[str, object]], facts: Mapping[str, object]
) -> dict[str, object]:
    """Writes one benchmark's result as JSON and returns it.

    Args:
      path: The file to write; its folder is made if need be.
      name: What was measured, in words.
      rows: One flat object for each measurement.
      facts: What else belongs to the record as a whole, e.g. targets, or
        {"versions": versions("torch")} where other packages matter.
    """
    record: dict[str, object] = {
        "name": name,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions("numpy"),
        **facts,
        "rows": list(rows),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return record


def read_record(path: Path) -> dict:
    """Reads what `write_record` wrote, with the names that training methods have now."""
    record = json.loads(path.read_text(encoding="utf-8"))
    for row in (*record["rows"], *record.get("summary", ())):
        if "method" in row:
            row["method"] = _method_of_now(row["method"])
    return record


def earlier_rows(path: Path) -> list[dict[str, object]]:
    """The rows of a record that is there already; none if it is not."""
    return read_record(path)["rows"] if path.exists() else []


def machine() -> dict[str, object]:
    """Processor and system, without the name of the host."""
    return {
        "processor": _processor(),
        "num_cores": len(os.sched_getaffinity(0)),
        "architecture": platform.machine(),
        "system": platform.system(),
    }


def device_name(device: str) -> str:
    """The accelerator that torch knows by this name; "cpu" for none."""
    import torch

    return torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python, tulle and the named packages."""
    found = {"python": platform.python_version(), "tulle": tulle.__version__}
    return found | {name: importlib.metadata.version(name) for name in packages}


def print_table(rows: Sequence[dict[str, object]]) -> None:
    """Prints flat rows in columns; all rows have the keys of the first."""
    header = list(rows[0])
    lines = [header, *([_cell(row[key]) for key in header] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))


def _method_of_now(name: str) -> str:
    # Until 2026-11 Mosaic was recorded as "hybrid", and Hybrid as "two-phase, …". Records of now
    # never have "hybrid" alone: they say how Hybrid splits epsilon, as in "hybrid, paper's split".
    if name == "hybrid":
        return "mosaic"
    return re.sub("^two-phase", "hybrid", name)


def _cell(value: object) -> str:
    return f"{value:,.3g}" if isinstance(value, float) else str(value)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
