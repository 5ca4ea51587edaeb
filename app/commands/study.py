"""`countlens study`"""

import sys

from app.commands.live_table import watch
from app.commands.probe import one_thread
from app.commands.sweep import print_estimate
from app.escape import say
from app.options import StudyOptions
from app.report.study import PAGE, write_study
from probes.studies.conduct import StudyFolder, conduct
from probes.studies.registry import STUDIES, get_study
from probes.studies.result import describe


def print_studies() -> None:
    """Prints the name and the question of every study."""
    width = max(map(len, STUDIES))
    for name, study in sorted(STUDIES.items(), key=lambda item: item[1].number):
        print(f"{name:{width}}  {study.protocol.question}")


def run_study(name: str, options: StudyOptions) -> None:
    """Carries a study out, writes its files and prints the verdict; with --dry-run, prints protocol and cost."""
    folder = StudyFolder.below(options.out, name, options.quick)
    if options.dry_run:
        print_protocol(name)
        print_estimate(folder.remaining(), options.engine_options.workers, "a100", None)
        return
    with one_thread():
        watch(conduct(folder, options.engine, options.engine_options), folder.remaining(), options.quiet)
        result = folder.result()
        write_study(result, folder.path)
    say(result.verdict.sentence)
    for judged in result.claims:
        if not judged.claim.is_primary:
            say(f"  {describe(judged)}")
    print(f"Refuted if {result.verdict.would_change}")
    for run, reason in result.missing.items():
        say(f"  not in the table: {run}: {reason}", sys.stderr)
    print(f"wrote {PAGE} and its data to {folder.path}")
    if result.missing:
        sys.exit(1)


def print_protocol(name: str) -> None:
    """Prints the question, hypothesis, runs and claims of a study, as they were written before its runs."""
    protocol = get_study(name).protocol
    print(f"{protocol.question}\n\nHypothesis: {protocol.hypothesis}\n\nRuns: {protocol.grid}\n\nClaims:")
    for claim in protocol.claims:
        kind = "" if claim.is_primary else " (not primary)"
        print(f"  {claim.name}{kind}: {claim.statement}\n    Refuted if {claim.refuted_by}.")
    print(f"\nLeft out: {protocol.left_out}\n")
