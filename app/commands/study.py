"""`countlens study`"""

import sys

from app.commands.live_table import Board, shown
from app.commands.probe import one_thread
from app.commands.sweep import print_estimate
from app.escape import say
from app.options import StudyOptions
from app.report.study import PAGE, write_study
from probes.studies.conduct import StudyFolder, conduct
from probes.studies.registry import STUDIES, get_study
from probes.studies.result import describe
from training.run.interrupt import interrupted_by_sigterm


def print_studies() -> None:
    """Every study, and what it asks."""
    width = max(map(len, STUDIES))
    for name, study in sorted(STUDIES.items(), key=lambda item: item[1].number):
        print(f"{name:{width}}  {study.protocol.question}")


def run_study(name: str, options: StudyOptions) -> None:
    """Carries a study out, or says what it would do."""
    folder = StudyFolder.below(options.out, name, options.quick)
    if options.dry_run:
        print_protocol(name)
        print_estimate(folder.manifest, options.engine_options.workers, "a100", None)
        return
    board = Board(folder.manifest)
    try:
        with one_thread(), shown(board, options.quiet) as draw, interrupted_by_sigterm():
            for event in conduct(folder, options.engine, options.engine_options):
                board.note(event)
                draw(event)
    except KeyboardInterrupt:
        print("stopped; nothing is lost: the same command goes on where it was", file=sys.stderr)
        sys.exit(130)
    with one_thread():
        result = folder.result()
        write_study(result, folder.path)
    print_result(result.verdict.sentence, [describe(judged) for judged in result.claims if not judged.claim.is_primary])
    print(f"Refuted if {result.verdict.would_change}")
    for run, reason in result.missing.items():
        say(f"  not in the table: {run}: {reason}", sys.stderr)
    print(f"wrote {PAGE} and its data to {folder.path}")
    if result.missing:
        sys.exit(1)


def print_protocol(name: str) -> None:
    """What a study asks, claims and does, as it was written before its runs."""
    protocol = get_study(name).protocol
    print(f"{protocol.question}\n\nHypothesis: {protocol.hypothesis}\n\nRuns: {protocol.grid}\n\nClaims:")
    for claim in protocol.claims:
        kind = "" if claim.is_primary else " (not primary)"
        print(f"  {claim.name}{kind}: {claim.statement}\n    Refuted if {claim.refuted_by}.")
    print(f"\nLeft out: {protocol.left_out}\n")


def print_result(verdict: str, others: list[str]) -> None:
    """The verdict, and the claims that it does not rest on."""
    say(verdict)
    for line in others:
        say(f"  {line}")
