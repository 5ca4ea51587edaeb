"""`countlens patch`"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from app.commands.probe import one_thread
from models.atomic import write_text
from models.errors import CountLensError
from probes.patching.pairs import PairPatching, pair_patch
from probes.registry import Subject, load_subject


@dataclass(frozen=True)
class Asked:
    """What to patch; None and () are chosen to fit the counter."""

    pair: str | None
    sites: tuple[str, ...]  # each may be several, with commas between
    metric: str | None
    direction: str | None
    layer: tuple[int, ...]
    pos: tuple[int, ...]
    length: int | None
    batch: int
    seed: int

    def of(self, subject: Subject) -> PairPatching:
        """The answer."""
        sites = [site for part in self.sites for site in part.split(",") if site]
        only = {axis: chosen for axis, chosen in (("layer", self.layer), ("pos", self.pos)) if chosen}
        return pair_patch(
            subject.counter,
            self.pair,
            sites,
            self.metric,
            self.direction,
            batch=self.batch,
            length=self.length,
            seed=self.seed,
            only=only,
        )


def run_patch(checkpoint: str, asked: Asked, form: str, html: Path | None) -> None:
    """Prints what the patches do, site by site, or everything as JSON or CSV, or writes a page."""
    if html is not None and html.is_dir():
        raise CountLensError(f"--html {html} is a folder: name a file")
    with one_thread():
        subject = load_subject(checkpoint)
        result = asked.of(subject)
    if html is not None:
        write_text(html, _page(subject, result))
        print(f"wrote {html}")
    elif form == "json":
        print(json.dumps(result.to_dict(), allow_nan=False))
    elif form == "csv":
        sys.stdout.write(result.to_frame().to_csv(index=False, float_format="%.9g"))
    else:
        print(result.setting)
        for site in result.grids:
            print(result.finding(site))


def _page(subject: Subject, result: PairPatching) -> str:
    from app.report.collect import Report
    from app.report.page import render

    return render(Report(result.seed, (subject,), {"patching": {subject.name: result}}, {}))
