import gc
import subprocess
import sys

import pytest

from app.explorer import slow_imports
from app.explorer.registry import PAGES


def test_the_server_has_imported_every_page_before_it_answers() -> None:
    code = """import app.main, gc, sys
print(gc.isenabled(), gc.get_freeze_count() > 100_000, *sorted(name for name in sys.modules if ".pages." in name))"""
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.split() == ["True", "True", *sorted(f"app.explorer.pages.{page.module}" for page in PAGES.values())]


def test_an_import_that_fails_leaves_collection_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Broken:
        def load(self) -> None:
            seen.append(gc.isenabled())
            raise ImportError

    monkeypatch.setattr(slow_imports, "PAGES", {"broken": Broken()})
    with pytest.raises(ImportError):
        slow_imports.import_pages()
    assert seen == [False]
    assert gc.isenabled()
