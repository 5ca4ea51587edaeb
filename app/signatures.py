"""The commands of `countlens`: each signature is a command line, each docstring its help.

Heavy imports wait until a command runs.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta
from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction, arg

from app.axes import Axes
from app.options import PatchOptions, StudyOptions, SweepOptions
from models.border import check_options
from models.errors import CountLensError
from models.ranges import Length, RowCount, Seed
from training.config import TrainConfig


def train(
    config: Annotated[TrainConfig, OmitArgPrefixes],
    out: Path | None = None,
    resume: Path | None = None,
    like: str | None = None,
    quiet: bool = False,
) -> None:
    """Train a counter, score it in and out of distribution, and save it.

    Options left out are the preset's for the task and scheme. A run that was stopped, even killed, goes
    on with --resume and ends as if it had never stopped.

    For example:
      countlens train --task mod10 --position ape
      countlens train --task selective --bos --position nope --n-layers 1 --seed 2
      countlens train --resume runs/mod10/ape-2L/seed0
      countlens train --like mod10/ape-2L --out runs/again

    Args:
        config: What to train.
        out: Folder of the run (runs/TASK/ARCHITECTURE/SEED).
        resume: A run folder to go on with; it brings its own options.
        like: A checkpoint to train again from scratch, with all its options: the same weights, bit for bit, on the
            same machine.
        quiet: No progress bar.
    """
    from app.commands.train import run_training

    run_training(config, out, resume, like, progress=not quiet)


def evaluate(
    checkpoint: Positional[str],
    data: Path | None = None,
    train_length: Length | None = None,
    ood_length: Length | None = None,
    rows: RowCount = 1024,
    json: bool = False,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
) -> None:
    """Score a checkpoint on its own task, or on a data file.

    For example:
      countlens eval mod10/ape-2L
      countlens eval runs/mod10/ape-2L/seed0 --data my_rows.jsonl --json
      countlens eval mod10/lstm-1L --train-length 100 --ood-length 1000

    Args:
        checkpoint: A counter's name, a run folder, or a .safetensors file.
        data: A JSONL file: one [[input tokens], [labels]] per line, "-1" where nothing is scored.
        train_length: Score in distribution on rows of this length (as trained).
        ood_length: Score beyond that, up to this length (as trained).
        rows: Rows to draw of each split, without --data.
        json: Print one JSON object.
        device: Where to run.
    """
    from app.commands.evaluate import run_evaluation

    run_evaluation(checkpoint, data, (train_length, ood_length), rows, json, device)


def list_counters(folders: Positional[tuple[Path, ...]] = (), json: bool = False) -> None:
    """List the counters, the shipped ones and those in ./runs, with their scores.

    Args:
        folders: Look here instead.
        json: Print one JSON list.
    """
    from app.commands.listing import print_counters

    print_counters(folders, json)


def tasks(json: bool = False, figure: Path | None = None) -> None:
    """List the tasks, with an example of each.

    Args:
        json: Print one JSON list.
        figure: Write a page (.html) instead: how often a kind of token occurs in the rows of selective counting.
    """
    from app.commands.tasks import print_tasks, write_counts_figure

    if figure is not None:
        write_counts_figure(figure)
        print(f"wrote {figure}")
        return
    print_tasks(json)


def export(
    checkpoint: Positional[str],
    out: Positional[Path],
    format: Literal["hooked-transformer", "bridge"] = "hooked-transformer",
) -> None:
    """Write a transformer counter as files for plain TransformerLens.

    Args:
        checkpoint: A counter's name, a run folder, or a .safetensors file.
        out: Folder for model.safetensors and config.json; it must not hold any yet.
        format: hooked-transformer is for TransformerLens 2.x and 3.x, bridge for 4.x.
    """
    from app.commands.export import run_export

    run_export(checkpoint, out, format)


def sweep(
    axes: Annotated[dict[str, Any], arg(constructor=Axes), OmitArgPrefixes],
    options: Annotated[SweepOptions, arg(name="")],
    grid: Positional[Path | None] = None,
) -> None:
    """Train a grid of runs, several at a time. Stopped or killed, the same command goes on; nothing is done twice.

    The grid is a small TOML file, or axes: options of `countlens train`, each with one value or several. Its runs are
    written to a manifest, OUT/GRID.jsonl, one line per run, and trained into OUT/NAME. A run that fails is noted with
    its error and does not stop the others.

    A grid file, in which a list is an axis and every option of `countlens train` is a key:
      task = "mod10"
      architecture = ["ape", "rope", "lstm"]
      seeds = 3

    A file with several such cells begins each with a line [[cells]]; what stands above them holds for all.

    For example:
      countlens sweep checkpoints/zoo.toml
      countlens sweep --task mod10 selective --architecture nope rope lstm --n-layers 1 2 --bos both --seeds 3
      countlens sweep --task mod10 --lr 1e-3 2e-3 --steps 200 --seed 100 101
      countlens sweep grid.toml --dry-run --gpu h100
      countlens sweep grid.toml --index 7             # one line of the manifest, for a job array
      countlens sweep grid.toml --engine ray --address auto --gpus 0.25

    Args:
        axes: A run for each combination of these values; what is left out is the preset's.
        options: What to do with the runs.
        grid: A grid file (.toml) or a manifest (.jsonl).
    """
    from app.commands.sweep import run_command

    check_options(options)
    run_command(grid, axes, options)


def tables(
    scores: tuple[Path, ...] = (),
    runs: Path | None = None,
    table: tuple[str, ...] = (),
    csv: str | None = None,
    json: bool = False,
) -> None:
    """Show the paper's tables with ours beside them, cell by cell: where both succeed, both fail, or differ.

    Success is at least 95 %, in and out of distribution each. A table of best seeds is set beside our best seed, a
    table of medians beside our median. The differences are listed with the reason, where one is known.

    For example:
      countlens tables
      countlens tables --table counting_results bos
      countlens tables --runs runs --csv mine.csv

    Args:
        scores: Score tables to read (the shipped checkpoints/scores.csv, unless --runs is given).
        runs: Read the finished runs below this folder; with --scores too, they win over a line of the same name.
        table: Only these tables, by the names that are printed beside their titles, as counting_results or bos.
        csv: Write one line for each side of each cell to this file instead; - prints them.
        json: Print one JSON object.
    """
    from app.commands.tables import print_tables

    print_tables(scores, runs, table, csv, json)


def ship(
    manifest: Positional[Path],
    out: Path = Path("checkpoints"),
    max_mb: Annotated[float, Meta(gt=0, le=10**6)] = 110.0,
    scores_only: tuple[str, ...] = (),
) -> None:
    """Ship a sweep's counters: the best seed of each, the scores of all seeds, and a card that describes them.

    The best seed has the best mean of IND and OOD. A seed that was shipped before and is no longer the best is
    removed; the scores of seeds that were shipped before stay, if they were trained with the same recipe. Runs that
    are not finished are named and left out.

    For example:
      countlens ship runs/zoo.jsonl
      countlens ship sweeps/wide.jsonl --out my-zoo
      countlens ship runs/zoo.jsonl --scores-only '*/lstm-4L' '*/rwkv6-4L'

    Args:
        manifest: The sweep's manifest, a JSONL file beside its runs.
        out: Folder of the zoo.
        max_mb: Refuse to make the zoo larger than this.
        scores_only: Cells whose weights stay behind, as patterns such as */lstm-4L; the zoo has their scores alone.
    """
    from app.commands.ship import run_ship

    run_ship(manifest, out, max_mb, scores_only)


def probe(
    name: Positional[str | None] = None,
    checkpoint: Positional[str | None] = None,
    json: bool = False,
    csv: bool = False,
    seed: Seed = 0,
    seeds: tuple[str, ...] = (),
    runs: Path | None = None,
    quiet: bool = False,
) -> None:
    """Ask one question about the inside of a counter. Without arguments: list the probes.

    With --seeds it is asked of a cell, that is, of counters that differ only in their seed: how many say what, and the
    number behind it with an interval over seeds. Seeds whose weights are not there are named.

    For example:
      countlens probe
      countlens probe mod_pca mod10/ape-2L
      countlens probe anchor mod10/ape-2L --seeds all
      countlens probe attention selective-bos/rope-1L --csv > attention.csv

    Args:
        name: Which probe.
        checkpoint: A counter's name, a run folder, or a .safetensors file.
        json: Print the whole result as one JSON object.
        csv: Print the numbers as a tidy table.
        seed: Of everything that is drawn at random.
        seeds: Ask these seeds of the counter's cell, as 0 1 2, or all.
        runs: With --seeds: a folder of runs to look into before the shipped counters and ./runs.
        quiet: With --seeds: no progress bar.
    """
    from app.commands.probe import print_probes, run_probe, run_probe_on_seeds

    if name is None:
        print_probes()
        return
    if checkpoint is None:
        raise CountLensError(f"which counter shall {name} look at? Name one; `countlens list` shows what there is")
    if json and csv:
        raise CountLensError("--json and --csv exclude each other: give one")
    form: Literal["json", "csv", "text"] = "json" if json else "csv" if csv else "text"
    if seeds:
        run_probe_on_seeds(name, checkpoint, seeds, runs, form, seed, progress=not quiet)
    else:
        run_probe(name, checkpoint, form, seed)


def patch(
    checkpoint: Positional[str],
    options: Annotated[PatchOptions, arg(name="")],
    json: bool = False,
    csv: bool = False,
    html: Path | None = None,
) -> None:
    """Patch activations between two rows that differ in one thing, and see which patches move the answers.

    A pair of rows is shift (the same row at other positions), start (another start number), swap (one token of
    another kind) or bos_replaced. What is left out is chosen to fit the counter. Where the pair changes labels,
    an effect is the share of the clean answers that a patch brings back; where it holds them (shift), the change
    in how many are right.

    For example:
      countlens patch mod10/ape-2L
      countlens patch mod10/ape-2L --pair shift --sites resid_post,head_z --html patching.html
      countlens patch selective/lstm-1L --sites state_step --metric probability --csv > states.csv

    Args:
        checkpoint: A counter's name, a run folder, or a .safetensors file.
        options: What to patch.
        json: Print the whole result as one JSON object.
        csv: Print the numbers as a tidy table.
        html: Write a page that opens offline to this file.
    """
    from app.commands.patch import run_patch

    if json + csv + (html is not None) > 1:
        raise CountLensError("--json, --csv and --html exclude each other: give one")
    check_options(options)
    run_patch(checkpoint, options, "json" if json else "csv" if csv else "text", html)


def report(
    checkpoints: Positional[tuple[str, ...]] = (),
    out: Path = Path("report"),
    probes: tuple[str, ...] = (),
    seed: Seed = 0,
    seeds: tuple[str, ...] = (),
    runs: Path | None = None,
    quiet: bool = False,
) -> None:
    """Run every probe on some counters and write report.html, report.json and one CSV file per probe.

    The page opens offline. The same counters and seed give the same report.json, byte for byte. With --seeds it is
    about cells: for every probe, what each seed says, and the spread over seeds.

    For example:
      countlens report mod10/ape-2L mod10/spe-2L --out report
      countlens report runs/mine --probes mod_pca bos
      countlens report mod10/ape-2L --seeds all --runs sweeps/fresh

    Args:
        checkpoints: Names of counters, run folders, or .safetensors files.
        out: Folder for the files.
        probes: Only these (all).
        seed: Of everything that is drawn at random.
        seeds: Ask these seeds of each counter's cell, as 0 1 2, or all.
        runs: With --seeds: a folder of runs to look into before the shipped counters and ./runs.
        quiet: No progress bar.
    """
    from app.commands.probe import run_report

    run_report(checkpoints, out, probes, seed, seeds, runs, progress=not quiet)


def study(
    options: Annotated[StudyOptions, arg(name="")],
    name: Positional[str | None] = None,
) -> None:
    """Carry out a study: train its grid, measure every run, and judge the claims that its protocol made beforehand.

    Without a name: list the studies. The verdict, with intervals over seeds and what would refute it, goes to
    OUT/NAME/study.html, which opens offline, and to result.json, runs.csv and claims.csv beside it. Stopped or killed,
    the same command goes on.

    For example:
      countlens study
      countlens study rope_periods --dry-run
      countlens study rope_periods --quick
      countlens study rope_periods --workers 8 --out /shared/studies

    Args:
        options: How to carry it out.
        name: Which study.
    """
    from app.commands.study import print_studies, run_study

    check_options(options)
    if name is None:
        print_studies()
        return
    run_study(name, options)


def explore(
    folder: Annotated[tuple[Path, ...], UseAppendAction] = (),
    port: Annotated[int, Meta(ge=1, le=65_535)] | None = None,
    address: str = "localhost",
    browser: bool = True,
) -> None:
    """Open the explorer in a browser: pick a counter, see how it counts, change something, see what breaks.

    It shows the shipped counters and those in ./runs, and reads nothing outside of these folders. Only this machine
    can reach it, unless --address says otherwise.

    For example:
      countlens explore
      countlens explore --folder sweeps/wide --folder /shared/runs --port 8600 --no-browser
      countlens explore --address 0.0.0.0

    Args:
        folder: A folder with more counters; may be given several times.
        port: Where to serve (8501, or the next that is free).
        address: Where to listen; 0.0.0.0 is every address of this machine, for everyone in its network.
        browser: Open a browser.
    """
    from app.commands.explore import run_explorer

    run_explorer(port, folder, browser, address)


COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "sweep": sweep,
    "eval": evaluate,
    "list": list_counters,
    "tasks": tasks,
    "export": export,
    "probe": probe,
    "patch": patch,
    "report": report,
    "study": study,
    "explore": explore,
    "tables": tables,
    "ship": ship,
}
