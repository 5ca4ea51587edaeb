"""The explorer under load: the time of a change, of ten users at once, and memory over many changes.

A server is started, and sessions speak to it as a browser does, without drawing: what is measured is the server's part.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

import websockets
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from app.commands.explore import streamlit_command
from models.find import SHIPPED, find_checkpoint

PORT = 8765
COUNTER = quote(find_checkpoint("mod10/ape-2L").parent.relative_to(SHIPPED).as_posix(), safe="")


class Session:
    """A user on the page Behaviour."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self.socket = socket

    async def ask(self, shift: int) -> float:
        """The seconds until the page with this shift is complete."""
        message = BackMsg()
        message.rerun_script.query_string = f"counter={COUNTER}&shift={shift}"
        message.rerun_script.page_name = "behaviour"
        message.rerun_script.is_history_navigation = True  # so that the URL wins over what the session has
        begun = time.perf_counter()
        await self.socket.send(message.SerializeToString())
        charts = 0
        while True:
            answer = ForwardMsg.FromString(await self.socket.recv())
            charts += answer.delta.new_element.HasField("plotly_chart") or answer.HasField("ref_hash")
            assert not answer.delta.new_element.HasField("exception")
            if answer.HasField("script_finished"):
                assert charts >= 2, "the page has two charts"
                return time.perf_counter() - begun


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


async def measure(process: subprocess.Popen[bytes], changes: int, users: int) -> None:
    """Measures and prints all three."""
    session = await connect()
    print(f"first visit, with all imports: {await session.ask(0):.1f} s")
    for step in range(70):
        await session.ask(1 + step)
    await rest(process)
    before, begun = megabytes(process), processor_seconds(process)
    seconds = [await session.ask(1 + step % 70) for step in range(changes // 2)]
    halfway = megabytes(process)
    seconds += [await session.ask(1 + step % 70) for step in range(changes - changes // 2)]
    computed = (processor_seconds(process) - begun) / changes
    clock = f"median {1000 * statistics.median(seconds):.0f} ms, worst {1000 * max(seconds):.0f} ms"
    print(f"a change: {clock}; {1000 * computed:.0f} ms of one core")
    growth = f"{halfway - before:+.1f} MB in the first half, {megabytes(process) - halfway:+.1f} MB in the second"
    print(f"memory over {changes} changes: {growth}, on {before:.0f} MB")
    sessions = [await connect() for _ in range(users)]
    waits = await asyncio.gather(*(session.ask(2 + user) for user, session in enumerate(sessions)))
    print(f"{users} users open it at once: median {statistics.median(waits):.2f} s, worst {max(waits):.2f} s")
    waits = await asyncio.gather(*(session.ask(30 + user) for user, session in enumerate(sessions)))
    print(f"{users} users change it at once: median {statistics.median(waits):.2f} s, worst {max(waits):.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--users", type=int, default=10)
    args = parser.parse_args()
    process = subprocess.Popen(streamlit_command(PORT, (), browser=False), stdout=subprocess.DEVNULL)
    try:
        asyncio.run(measure(process, args.changes, args.users))
    finally:
        process.terminate()


if __name__ == "__main__":
    main()
