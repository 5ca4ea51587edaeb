"""A report as files: report.json, one CSV file per probe, and report.html, all from the same results."""

import json
from pathlib import Path

import pandas as pd

from app.report.collect import Report, Skipped
from app.report.page import render
from models.atomic import write_text


def write_report(report: Report, out: Path) -> list[Path]:
    """Writes the files and returns them; what was there under these names is replaced."""
    files = {out / "report.json": json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n"}
    for name, by_counter in report.results.items():
        frames = [
            result.to_frame().assign(counter=counter)
            for counter, result in by_counter.items()
            if not isinstance(result, Skipped)
        ]
        if frames:
            table = pd.concat(frames, ignore_index=True)
            ordered = table[["counter", *table.columns.drop("counter")]]
            files[out / f"{name}.csv"] = ordered.to_csv(index=False, float_format="%.9g")
    files[out / "report.html"] = render(report)
    for path, text in files.items():
        write_text(path, text)
    return list(files)
