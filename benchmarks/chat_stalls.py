"""The cost of one long streamed answer for the proxy, and the time that it keeps another client waiting.

The model streams 16 MB of text as fast as the proxy takes it: words, HTML, `<` and JSON. The proxy relays the answer
unread, or reads it with `text_calls: leaked`, in turn. `ratio` is the CPU time of reading by that of relaying. A wait
is the longest time that another client waits for a small answer in the meantime. On a busy machine it includes the
machine's own delays, so the wait beside a relayed answer is printed too.

    python -m benchmarks.chat_stalls
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.chat import CONFIG, HEAD, PLAYERS, Connection, running, serve_answers, write_chunks

TEXTS: Final = {"words": "plain words ", "HTML": '<div class="a"><b>x</b></div>\n', "<": "<", "JSON": "[1, 2], "}
_RELAYED: Final = PLAYERS["relayed unread"]
_READ: Final = PLAYERS["read"]


def write_events(text: str, size: int, piece: int) -> list[bytes]:
    """The events of a streamed text of so many characters, each with a piece of it, in chunks of HTTP."""
    whole = (text * (size // len(text) + 1))[:size]
    deltas = [{"content": whole[at : at + piece]} for at in range(0, size, piece)]
    return write_chunks(deltas, "stop")


async def serve_model(size: int, piece: int) -> None:
    """Answers with the text that a request names, or with a small answer."""
    texts = {name: write_events(text, size, piece) for name, text in TEXTS.items()}

    async def answer(kind: str, writer: asyncio.StreamWriter) -> None:
        events = texts.get(kind)
        writer.write(HEAD if events is not None else HEAD.replace(b"text/event-stream", b"application/json"))
        for event in events or (b"2\r\n{}\r\n",):
            writer.write(event)
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    await serve_answers(answer)


def ask(port: int, pid: int, path: str, kind: str) -> tuple[float, float]:
    """The CPU seconds of the proxy for one answer, and the longest wait of another client in milliseconds."""
    done, waits = threading.Event(), [0.0]

    def wait_beside() -> None:
        other = Connection(port)
        while not done.is_set():
            waits.append(other.ask(_RELAYED, "none")[1])
            time.sleep(0.005)
        other.close()

    beside = threading.Thread(target=wait_beside)
    beside.start()
    connection = Connection(port)
    used = machine.cpu_seconds(pid)
    connection.read_all(path, kind)
    used = machine.cpu_seconds(pid) - used
    done.set()
    beside.join()
    connection.close()
    return used, max(waits)


def measure(rounds: int, size: int, piece: int) -> None:
    """Prints the medians of the rounds for each text."""
    near, far = machine.cores() or (None, None)
    model_words = ["benchmarks.chat_stalls", "--serve", "--size", str(size), "--piece", str(piece)]
    print(
        f"{'':8}{'relayed CPU s':>14}{'read CPU s':>12}{'ratio':>7}{'wait beside relayed ms':>24}{'beside read ms':>16}"
    )
    with tempfile.TemporaryDirectory() as folder, running(model_words, near) as (model, _):
        config = Path(folder) / "config.yaml"
        written = CONFIG.format(port=machine.free_port(), model=model)
        config.write_text(written.replace("model: {}}", "model: {text_calls: leaked}}"))
        with running(["proxy", "serve", str(config)], far) as (port, pid):
            for kind in TEXTS:
                turns = [[ask(port, pid, path, kind) for path in (_RELAYED, _READ)] for _ in range(rounds)]
                relayed, read = zip(*turns, strict=True)
                (relay_cpu, relay_wait), (read_cpu, read_wait) = (
                    [statistics.median(each) for each in zip(*ways, strict=True)] for ways in (relayed, read)
                )
                ratio = statistics.median(mine[0] / base[0] for base, mine in turns)
                print(f"{kind:8}{relay_cpu:14.3f}{read_cpu:12.3f}{ratio:7.2f}{relay_wait:24.1f}{read_wait:16.1f}")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=16 * 1024 * 1024, help="characters of a text")
    parser.add_argument("--piece", type=int, default=1_000, help="characters of an event")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve_model(options.size, options.piece))
    else:
        measure(options.rounds, options.size, options.piece)


if __name__ == "__main__":
    main()
