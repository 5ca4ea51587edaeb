"""`countlens patch`"""

import json
import sys
from pathlib import Path

from app.commands.probe import one_thread
from app.options import PatchOptions
from models.atomic import write_text
from models.errors import CountLensError
from probes.patching.pairs import PairPatching, pair_patch
from probes.registry import Subject, load_subject


def run_patch(checkpoint: str, options: PatchOptions, form: str, html: Path | None) -> None:
    """Prints what the patches do, site by site, or everything as JSON or CSV, or writes a page."""
    if html is not None and html.is_dir():
        raise CountLensError(f"--html {html} is a folder: name a file")
    with one_thread():
        subject = load_subject(checkpoint)
        result = _patch(subject, options)
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


def _patch(subject: Subject, options: PatchOptions) -> PairPatching:
    sites = [site for part in options.sites for site in part.split(",") if site]
    only = {axis: chosen for axis, chosen in (("layer", options.layer), ("pos", options.pos)) if chosen}
    return pair_patch(
        subject.counter,
        options.pair,
        sites,
        options.metric,
        options.direction,
        batch=options.batch,
        length=options.length,
        seed=options.seed,
        only=only,
    )


def _page(subject: Subject, result: PairPatching) -> str:
    from app.report.collect import Report
    from app.report.page import render

    return render(Report(result.seed, (subject,), {"patching": {subject.name: result}}, {}))
