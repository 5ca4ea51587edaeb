"""`countlens patch`"""

from pathlib import Path

from app.commands.probe import one_thread, print_result
from app.options import PatchOptions
from models.atomic import write_text
from models.errors import CountLensError
from probes.patching.pairs import PairPatching, pair_patch
from probes.registry import Subject, load_subject


def run_patch(checkpoint: str, options: PatchOptions, form: str, html: Path | None) -> None:
    """Patches a pair of rows. Prints the effects site by site, or everything as JSON or CSV; or writes a page."""
    if html is not None and html.is_dir():
        raise CountLensError(f"--html {html} is a folder: name a file")
    with one_thread():
        subject = load_subject(checkpoint)
        result = _patch(subject, options)
    if html is not None:
        write_text(html, _page(subject, result))
        print(f"wrote {html}")
    elif form == "text":
        print(result.setting)
        for site in result.grids:
            print(result.finding(site))
    else:
        print_result(result, form)


def _patch(subject: Subject, options: PatchOptions) -> PairPatching:
    sites = [site for part in options.sites for site in part.split(",") if site]
    only = {axis: indices for axis, indices in (("layer", options.layer), ("pos", options.pos)) if indices}
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
