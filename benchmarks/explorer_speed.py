"""The explorer under load: a change on every page, many users at once, and memory over many changes.

A server is started, and sessions speak to it as a browser does, without drawing: what is measured is the server's part.

    python benchmarks/explorer_speed.py --changes 500 --users 50 --pages
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import time
from pathlib import Path
from urllib.parse import urlencode

import websockets
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from app.commands.explore import streamlit_command
from models.find import SHIPPED, find_checkpoint

PORT = 8765


def shipped(cell: str) -> str:
    """The name of the shipped counter of a cell."""
    return find_checkpoint(cell).parent.relative_to(SHIPPED).as_posix()


ATTENTION, RECURRENT = shipped("mod10/ape-2L"), shipped("mod10/lstm-1L")
# A page, a counter, a widget and the values that it is set to. The page Paper has no widget: it is opened again.
CHANGES: tuple[tuple[str, str, str, tuple[object, ...]], ...] = (
    ("behaviour", ATTENTION, "length", tuple(range(30, 40))),
    ("behaviour", ATTENTION, "move", ("first token +3", "first five +3") * 5),
    ("first-token", ATTENTION, "read", ("shift", "first token") * 5),
    ("pid-pca", ATTENTION, "modulus", tuple(range(3, 13))),
    ("attention", ATTENTION, "shift", tuple(range(1, 11))),
    ("bos-ablation", ATTENTION, "L0", ("false", "true") * 5),
    ("patching", ATTENTION, "position", tuple(range(1, 11))),
    ("patching", ATTENTION, "length", tuple(range(10, 20))),
    ("states", RECURRENT, "source", tuple(range(10, 20))),
    ("training", ATTENTION, "moving", ("components", "accuracy") * 5),
    ("paper", ATTENTION, "", ("",) * 5),
)


class Session:
    """A visit: what a browser says to the server, and what it hears."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self.socket = socket
        self.charts = 0  # that the last page had

    async def open(self, page: str, **parameters: object) -> float:
        """The seconds until a page with these parameters in its URL is complete."""
        message = BackMsg()
        message.rerun_script.query_string = urlencode(parameters)
        message.rerun_script.page_name = page
        message.rerun_script.is_history_navigation = True  # so that the URL wins over what the session has
        begun = time.perf_counter()
        self.charts = 0
        await self.socket.send(message.SerializeToString())
        while True:
            answer = ForwardMsg.FromString(await self.socket.recv())
            self.charts += answer.delta.new_element.HasField("plotly_chart") or answer.HasField("ref_hash")
            assert not answer.delta.new_element.HasField("exception")
            if answer.HasField("script_finished"):
                return time.perf_counter() - begun

    async def shift(self, shift: int) -> float:
        """The same, of the page Behaviour with this shift."""
        seconds = await self.open("behaviour", counter=ATTENTION, shift=shift)
        assert self.charts >= 2, "the page has two charts"
        return seconds


def megabytes(process: subprocess.Popen[bytes]) -> float:
    """The memory of the server, in MB."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) / 1024


def processor_seconds(process: subprocess.Popen[bytes]) -> float:
    """The CPU seconds of the server so far: on a busy machine they say more than the clock."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def connect() -> Session:
    """A new session, once the server is up."""
    for _ in range(300):
        try:
            return Session(
                await websockets.connect(
                    f"ws://localhost:{PORT}/_stcore/stream", max_size=None, subprotocols=["streamlit"]
                )
            )
        except OSError:
            await asyncio.sleep(0.1)
    raise TimeoutError("the server does not answer")


async def rest(process: subprocess.Popen[bytes]) -> None:
    """Waits until the server has imported what it imports in the background."""
    before = -1.0
    while processor_seconds(process) - before > 0.1:
        before = processor_seconds(process)
        await asyncio.sleep(2)


async def measure_pages(process: subprocess.Popen[bytes]) -> None:
    """Prints the first visit of each page and its changes, the second time round: results are kept, figures are not."""
    for page, counter, widget, values in CHANGES:
        session = await connect()
        opened = await session.open(page, counter=counter)
        await rest(process)
        for _ in range(2):
            begun = processor_seconds(process)
            changes = [{widget: value} if widget else {} for value in values]
            seconds = [await session.open(page, counter=counter, **change) for change in changes]
            computed = (processor_seconds(process) - begun) / len(values)
        clock = f"opened in {opened:.1f} s; a change: median {1000 * statistics.median(seconds):.0f} ms"
        print(f"{page:13} {widget:9} {clock}, {1000 * computed:.0f} ms of one core", flush=True)
        await session.socket.close()


async def measure(process: subprocess.Popen[bytes], changes: int, users: int) -> None:
    """Prints the first visit, changes on one page, memory, and many users at once."""
    session = await connect()
    begun = processor_seconds(process)
    opened = await session.shift(0)
    print(f"first visit, with all imports: {opened:.1f} s, {processor_seconds(process) - begun:.1f} s of one core")
    for step in range(70):
        await session.shift(1 + step)
    await rest(process)
    before, begun = megabytes(process), processor_seconds(process)
    seconds = [await session.shift(1 + step % 70) for step in range(changes // 2)]
    halfway = megabytes(process)
    seconds += [await session.shift(1 + step % 70) for step in range(changes - changes // 2)]
    computed = (processor_seconds(process) - begun) / changes
    clock = f"median {1000 * statistics.median(seconds):.0f} ms, worst {1000 * max(seconds):.0f} ms"
    print(f"a change: {clock}; {1000 * computed:.0f} ms of one core")
    growth = f"{halfway - before:+.1f} MB in the first half, {megabytes(process) - halfway:+.1f} MB in the second"
    print(f"memory over {changes} changes: {growth}, on {before:.0f} MB")
    sessions = [await connect() for _ in range(users)]
    waits = await asyncio.gather(*(session.shift(2 + user) for user, session in enumerate(sessions)))
    print(f"{users} users open it at once: median {statistics.median(waits):.2f} s, worst {max(waits):.2f} s")
    waits = await asyncio.gather(*(session.shift(30 + user % 40) for user, session in enumerate(sessions)))
    print(f"{users} users change it at once: median {statistics.median(waits):.2f} s, worst {max(waits):.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--users", type=int, default=10)
    parser.add_argument("--pages", action="store_true", help="measure a change on every page as well")
    args = parser.parse_args()
    process = subprocess.Popen(streamlit_command(PORT, (), browser=False), stdout=subprocess.DEVNULL)
    try:
        asyncio.run(measure(process, args.changes, args.users))
        if args.pages:
            asyncio.run(measure_pages(process))
    finally:
        process.terminate()


if __name__ == "__main__":
    main()
