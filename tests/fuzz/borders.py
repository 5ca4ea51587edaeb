"""The one registry of borders, with the number of their cases in a full run."""

from tests.fuzz import checkpoints, command_lines, datafiles, grids, run_folders, studies, urls
from tests.fuzz.harness import Border

BORDERS: dict[str, Border] = {
    "checkpoints": Border(8000, checkpoints.prepare, checkpoints.open_border),
    "grids": Border(3000, grids.prepare, grids.open_border),
    "data-files": Border(2000, datafiles.prepare, datafiles.open_border),
    "command-lines": Border(700, command_lines.prepare, command_lines.open_border),
    "run-folders": Border(1300, run_folders.prepare, run_folders.open_border),
    "studies": Border(1000, studies.prepare, studies.open_border),
    "urls": Border(1000, urls.prepare, urls.open_border),
}
