"""Counters that a visitor drops: checked, seen by nobody else, and gone after the visit."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shipped import shipped

from app.explorer import dropped
from app.explorer.catalogue import read_catalogue, start_folders
from app.explorer.dropped import FOLDER, MAX_MB, MOST_FILES, STATE, forget, keep, safe_name, with_dropped
from models.errors import CountLensError
from models.find import CHECKPOINT, SHIPPED

SOUND = (SHIPPED / shipped("mod10/lstm-1L") / CHECKPOINT).read_bytes()


def file(name: str, content: bytes = SOUND, size: int | None = None) -> Any:
    return SimpleNamespace(name=name, size=len(content) if size is None else size, getbuffer=BytesIO(content).getbuffer)


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A visit of its own."""
    state: dict[str, Any] = {}
    monkeypatch.setattr(dropped, "st", SimpleNamespace(session_state=state))
    return state


def test_what_is_dropped_is_a_counter_of_this_visit(session: dict[str, Any]) -> None:
    shared = read_catalogue(start_folders([]))
    name = keep(file("my counter.safetensors"))
    found = with_dropped(shared)
    assert name == f"{FOLDER}/my-counter"
    assert found.entries[name].info is not None
    assert found.entries[name].info.family == "lstm"
    assert name not in shared.entries
    place = found.entries[name].path
    session.clear()  # another visitor, or the visit's end
    assert with_dropped(shared) is shared
    assert not place.exists()


def test_a_broken_file_is_listed_with_its_reason_and_without_the_servers_paths() -> None:
    names = [keep(file("cut.safetensors", SOUND[:3000])), keep(file("foreign.safetensors", b"PK\x03\x04 nothing"))]
    found = with_dropped(read_catalogue(start_folders([])))
    reasons = [found.entries[name].broken or "" for name in names]
    assert "truncated" in reasons[0]
    assert "is not a safetensors file" in reasons[1]
    assert not any("/tmp" in found.readable(reason) for reason in reasons)


def test_too_large_and_too_many_are_refused() -> None:
    with pytest.raises(CountLensError, match=f"larger than {MAX_MB} MB"):
        keep(file("x.safetensors", b"", size=MAX_MB * 2**20 + 1))
    for number in range(MOST_FILES):
        keep(file(f"{number}.safetensors", b"x"))
    keep(file("0.safetensors", b"y"))  # the same again
    with pytest.raises(CountLensError, match="forget them first"):
        keep(file("more.safetensors", b"x"))
    forget()
    assert keep(file("more.safetensors", b"x")) == f"{FOLDER}/more"


@pytest.mark.parametrize(
    "name", ["../../x.safetensors", "/etc/passwd", "a\x00b", "\u202e", ".", "..", "x" * 500, "a/b\\c"]
)
def test_no_name_leads_out_of_the_folder(name: str, session: dict[str, Any]) -> None:
    assert "/" not in safe_name(name)
    keep(file(name))
    folder = Path(session[STATE].name).resolve()
    assert all(path.is_relative_to(folder / FOLDER) for path in folder.rglob(CHECKPOINT))
    assert len(list((folder / FOLDER).iterdir())) == 1


def test_the_browser_is_told_the_same_limit() -> None:
    import tomllib

    config = tomllib.loads((Path(dropped.__file__).parents[1] / ".streamlit/config.toml").read_text())
    assert config["server"]["maxUploadSize"] == MAX_MB


def test_in_a_browser_a_dropped_counter_can_be_looked_at_by_its_visitor_alone(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "mine.safetensors").write_bytes(SOUND)
    tab = visit().open("")
    tab.page.locator("input[type=file]").set_input_files(tmp_path / "mine.safetensors")
    tab.page.get_by_text("Dropped here: dropped/mine").wait_for()
    assert tab.page.locator(".st-key-counter input").input_value() == f"{FOLDER}/mine"
    tab.page.locator("[data-testid=stMain] a", has_text="Behaviour").click()
    tab.page.wait_for_url("**/behaviour*")
    tab.settle()
    assert tab.page.locator(".st-key-counter input").input_value() == f"{FOLDER}/mine"
    assert tab.data()
    other = visit().open(f"behaviour?counter={FOLDER}%2Fmine")
    assert other.page.get_by_text("The link asked for").count() == 1
    assert tab.said == other.said == []


def test_states_offers_recurrent_counters_to_who_comes_with_a_transformer(
    open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page("states", counter=shipped("selective/ape-2L"))
    assert "is a transformer" in app.info[0].value
    labels = [button.label for button in app.button]
    assert labels[0].startswith("selective/")
    button = next(button for button in app.button if shipped("selective/lstm-1L") in button.label.replace("\\", ""))
    button.click().run()
    assert app.sidebar.selectbox[0].value == shipped("selective/lstm-1L")
    assert figures(app)
