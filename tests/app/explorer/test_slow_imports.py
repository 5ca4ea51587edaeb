import gc
import sys
from pathlib import Path

import pytest

from app.explorer.slow_imports import import_without_collection


def test_garbage_is_not_collected_during_the_import_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes_collection.py").write_text("import gc\nwas_enabled = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert import_without_collection("notes_collection").was_enabled is False
    assert gc.isenabled()
    del sys.modules["notes_collection"]


def test_an_import_that_fails_leaves_collection_as_it_was() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_without_collection("app.explorer.there_is_no_such_page")
    assert gc.isenabled()
