"""Streams of nearly HTTP: what reaches the upstream is framed right, judged, and no request that was hidden in a body.

If node or Go is installed, the same bytes go to a plain server in it, and one of the servers must read a forwarded
request as the same request. If nginx is installed, they go to one next to the proxy and to one in front of it
(`nginx.py`). Only nginx must read a request that came through nginx. The run names the programs that are not installed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import jsonschema

from tests.attacks import Found
from tests.attacks.nginx import HOW, MARK, Nginx, Read, start_nginx
from tests.serving.proxied import proxied
from tests.serving.wire import JSON_TYPE, Seen, Tool, answer, replies, tool

SCHEMA: Final = {
    "type": "object",
    "properties": {"case": {"type": "integer"}, "a": {"type": "integer", "maximum": 100}},
    "required": ["case", "a"],
    "additionalProperties": False,
}
ROUTES: Final = f"""
  - {{path: /t, upstream: tools, tool: t, repair: off, schema: {json.dumps(SCHEMA)}}}
  - {{path: /p, upstream: tools, passthrough: true, methods: [GET, POST, PUT]}}
"""
# The share of clients that close their sending side behind their stream, as scripts with `nc -N` do.
_HALF_CLOSED: Final = 0.3
_NODE: Final = """
const http = require('http');
const server = http.createServer((q, s) => {
  let b = ''; q.setEncoding('latin1'); q.on('data', d => b += d);
  q.on('end', () => { console.log(JSON.stringify([q.method, q.headers['x-case'] || '', b])); s.end('{}'); });
});
server.on('clientError', (e, socket) => socket.destroy());
server.listen(0, '127.0.0.1', () => console.log(JSON.stringify(['port', server.address().port])));
"""
_GO: Final = """
package main
import ("encoding/json"; "fmt"; "io"; "net"; "net/http")
func say(v []any) { text, _ := json.Marshal(v); fmt.Println(string(text)) }
func main() {
  listener, _ := net.Listen("tcp", "127.0.0.1:0")
  say([]any{"port", listener.Addr().(*net.TCPAddr).Port})
  http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
    body, err := io.ReadAll(q.Body)
    if err == nil { say([]any{q.Method, q.Header.Get("X-Case"), string(body)}) }
    w.Write([]byte("{}"))
  }))
}
"""


def attack(seed: int, tries: int) -> Found:
    """Sends `tries` streams to the proxy, and to the references that are there."""
    return asyncio.run(_attack(Random(seed), tries))


async def _attack(random: Random, tries: int) -> Found:
    found = Found(tries)
    script = replies(answer("200 OK", b"{}", JSON_TYPE))
    async with (
        _references() as others,
        tool(script) as server,
        proxied(ROUTES, server.url) as proxy,
        start_nginx(proxy.port) as nginx,
    ):
        if nginx is None:
            sys.stderr.write(f"http: {HOW}\n")
        for case in range(tries):
            stream = _stream(random, case)
            ends = random.random() < _HALF_CLOSED
            sending = [_send(port, stream, ends=ends) for port in (proxy.port, *(other.port for other in others))]
            if nginx is not None:  # it leaves a client that closes its sending side, sooner or later
                sending.append(_send(nginx.beside, stream, ends=False))
            await asyncio.gather(*sending)
            found.through += await _look(server, stream, others, nginx, found)
            if nginx is not None:
                await _send(nginx.front, stream, ends=False)
                await _look_behind_nginx(server, stream, nginx, found)
            if "INTERNAL_ERROR" in proxy.log.getvalue():
                found.add("a defect", stream)
                break
    return found


async def _look_behind_nginx(server: Tool, stream: bytes, nginx: Nginx, found: Found) -> None:
    """Looks at the requests that arrived through nginx and the proxy: nginx by itself must read them in the same
    stream."""
    for request in _take(server, through_nginx=True):
        method, target, _ = request.start.split(" ")
        if target.partition("?")[0] == "/t" and not _is_judged(request.body):
            found.add("an invalid call arrived through nginx", stream)
        elif not await nginx.reads((method, request.header("x-case") or "", request.body)):
            found.add(f"nginx alone does not read {request.start!r} {request.body!r}", stream)


def _take(server: Tool, *, through_nginx: bool) -> list[Seen]:
    """Returns what arrived through nginx, or directly, since the last question; the rest stays for the next one."""
    taken = [request for request in server.seen if (request.header(MARK) is not None) is through_nginx]
    server.seen[:] = [request for request in server.seen if (request.header(MARK) is not None) is not through_nginx]
    return taken


async def _look(server: Tool, stream: bytes, others: list[_Reference], nginx: Nginx | None, found: Found) -> int:
    """Looks at what arrived since the last look, for this stream or late for one before; gives how many requests."""
    arrived = _take(server, through_nginx=False)
    for request in arrived:
        method, target, _ = request.start.split(" ")
        case = request.header("x-case") or ""
        if case.startswith("hidden"):
            found.add("a hidden request arrived", stream)
        elif target.partition("?")[0] == "/t" and not _is_judged(request.body):
            found.add("an invalid call arrived", stream)
        elif target.partition("?")[0] not in ("/t", "/p"):
            found.add("another path arrived", stream)
        elif others and not await _is_read((method, case, request.body), others, nginx):
            found.add(f"no other server reads {request.start!r} {request.body!r}", stream)
    return len(arrived)


async def _is_read(request: Read, others: list[_Reference], nginx: Nginx | None) -> bool:
    """Returns whether another server has read the same request; on a busy machine it may do so a little later."""
    for _ in range(200):
        if any(request in other.read for other in others) or (nginx is not None and request in nginx.read()):
            return True
        await asyncio.sleep(0.05)
    return False


def _is_judged(body: bytes) -> bool:
    try:
        return jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(body))
    except ValueError:
        return False


async def _send(port: int, stream: bytes, *, ends: bool) -> None:
    """Sends a stream and reads for a moment. `ends`: behind it the client closes its side, and reads on."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with suppress(ConnectionError, TimeoutError):
        writer.write(stream)
        if ends:
            writer.write_eof()
        async with asyncio.timeout(0.4):
            await reader.read(-1)
    writer.close()


# --- the streams ------------------------------------------------------------------------------------------------------
def _stream(random: Random, case: int) -> bytes:
    def pick(sane: str, *odd: str) -> str:
        return sane if random.random() < 0.93 else random.choice(odd)

    body = json.dumps({"case": case, "a": random.choice((1, 100, 101))})
    hidden = f"POST /p HTTP/1.1\r\nHost: h\r\nX-Case: hidden-{case}\r\nContent-Length: 0\r\n\r\n"
    body = random.choice((body, body, body, body + " " * 4, hidden))
    size = str(len(body))
    length = pick(
        size, f"+{size}", f"0{size}", f"{size},{size}", f"{size}\t", f"0x{len(body):x}", "", "9" * 20, f"-{size}"
    )
    coding = pick("chunked", "Chunked", "xchunked", "identity", "chunked, identity", "gzip, chunked", "\x0bchunked", "")
    name = pick("Content-Length", "Content-Length ", "Content_Length", "content-length", "X\r\nContent-Length")
    fields = [("Host", pick("h", "h:80", "", "h h", "h,i")), ("X-Case", str(case))]
    fields.append(("Content-Type", pick("application/json", "text/plain", "application/json; charset=utf-7")))
    framing, wire = random.choice(("length", "length", "chunks", "chunks", "both", "twice")), body
    if framing != "chunks":
        fields += [(name, length)] * (2 if framing == "twice" else 1)
    if framing in ("chunks", "both"):
        fields.append((pick("Transfer-Encoding", "Transfer-Encoding ", "transfer_encoding"), coding))
        head = pick(f"{len(body):x}", f"0{len(body):x}", f"{len(body):x};a=b", f"{len(body):x} ", f"+{len(body):x}")
        wire = f"{head}{pick(chr(13) + chr(10), chr(10))}{body}\r\n{pick('0', '00', '0;x', '')}\r\n\r\n"
    if random.random() < 0.1:
        fields.append((pick("Connection", "Upgrade", "Expect", "TE"), random.choice(("close", "h2c", "x", "trailers"))))
    random.shuffle(fields)
    ends = [pick("\r\n", "\n", "\r", "\r\r\n") for _ in fields]
    head = "".join(f"{key}: {value}{end}" for (key, value), end in zip(fields, ends, strict=True))
    path = pick(random.choice(("/t", "/t", "/p")), "//t", "/p/../t", "/t?x=1", "http://h/t", "/%74", "*")
    line = f"{pick('POST', 'PUT', 'GET', 'post')} {path} {pick('HTTP/1.1', 'HTTP/1.0', 'HTTP/2.0', 'http/1.1')}\r\n"
    return f"{line}{head}{pick(chr(13) + chr(10), chr(10))}{wire}".encode("latin-1", "replace")


# --- the references ---------------------------------------------------------------------------------------------------
class _Reference:
    """A plain server of others, and what it has read: (method, case, body)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.port = 0
        self.read: set[tuple[str, str, bytes]] = set()

    async def listen(self) -> None:
        """Takes what the server says, its port first."""
        if self.process.stdout is None:
            raise ValueError("a reference talks through a pipe")
        async for line in self.process.stdout:
            said: Any = json.loads(line)
            if said[0] == "port":
                self.port = said[1]
            else:
                self.read.add((said[0], said[1], said[2].encode("latin-1", "replace")))


@asynccontextmanager
async def _references() -> AsyncIterator[list[_Reference]]:
    started: list[tuple[_Reference, asyncio.Task[None]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for words in await asyncio.to_thread(_commands, Path(folder)):
            process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
            reference = _Reference(process)
            started.append((reference, asyncio.create_task(reference.listen())))
        try:
            async with asyncio.timeout(300):
                while not all(reference.port for reference, _ in started):
                    await asyncio.sleep(0.01)
            yield [reference for reference, _ in started]
        finally:
            for reference, task in started:
                with suppress(ProcessLookupError):
                    reference.process.kill()
                await reference.process.wait()
                task.cancel()


def _commands(folder: Path) -> list[list[str]]:
    """Returns how each reference that can run here is started."""
    import subprocess

    found: list[list[str]] = []
    if (node := shutil.which("node")) is not None:
        (folder / "server.js").write_text(_NODE)
        found.append([node, str(folder / "server.js")])
    if (go := shutil.which("go")) is not None:
        (folder / "server.go").write_text(_GO)
        built = folder / "server"
        made = subprocess.run([go, "build", "-o", str(built), str(folder / "server.go")], check=False, cwd=folder)
        found += [[str(built)]] if made.returncode == 0 else []
    return found
