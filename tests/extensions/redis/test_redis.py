"""The Redis store on real servers: how it gets in, how few round trips it takes, and that trouble ends there."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from proxy.config.model import UpstreamTls
from proxy.core.model.values import Episode, FailedAttempt
from proxy.extensions.redis import operations
from proxy.extensions.redis.operations import Keys, Operation, OperationQueue
from proxy.extensions.redis.redis_remote import Connections
from proxy.extensions.redis.redis_section import RedisSettings
from proxy.extensions.redis.remote import Unreachable
from proxy.interfaces import ConnectedStore, StateStore
from proxy.server.setup.services import SystemClock
from proxy.state import StoreChange, make_store
from tests.extensions.redis.server import BINARY, Server, needs_server, server, take_port
from tests.steady import until

SECRET = "planted-7b2f9c"
KEYS = Keys("toolproxy")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("redis")) as running:
        yield running


@contextlib.asynccontextmanager
async def opened(settings: RedisSettings) -> AsyncIterator[tuple[StateStore, list[StoreChange]]]:
    """A store and the changes that it reported."""
    told: list[StoreChange] = []
    store = make_store("redis", SystemClock(), 1000, settings, told.append)
    assert isinstance(store, ConnectedStore)
    await store.open()
    try:
        yield store, told
    finally:
        await store.close()


def attempt(name: str) -> FailedAttempt:
    return FailedAttempt(name, (f"line {name}",), f"id-{name}")


def episode(*names: str) -> Episode:
    kept = tuple(replace(attempt(name), number=number) for number, name in enumerate(names, 1))
    return Episode(len(names), kept, tuple((name, 1) for name in names), len(names))


async def counts(settings: RedisSettings) -> list[StoreChange]:
    """Counts a failure in two stores with the same settings; gives the changes that they reported. Both must have seen
    both."""
    async with opened(settings) as (one, told), opened(settings) as (two, told_too):
        await one.fail("c/tool", attempt("a"), 60)
        recorded = await two.fail("c/tool", attempt("b"), 60)
        assert told or told_too or recorded.episode == episode("a", "b")
        return told + told_too


# --- round trips ------------------------------------------------------------------------------------------------------
class Counted:
    """A server that counts round trips and answers with the number of the operation."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    async def run(self, batch: Sequence[Operation[Any]]) -> list[Any]:
        self.batches.append(len(batch))
        await asyncio.sleep(0)
        return [1000] * len(batch)


async def test_an_operation_is_one_round_trip_and_what_waits_shares_the_next() -> None:
    counted = Counted()
    call_route = OperationQueue(counted.run, 1000)
    await call_route.submit(operations.release(b"k"))
    await asyncio.gather(*(call_route.submit(operations.release(b"k")) for _ in range(300)))
    assert [1, 256, 44] == counted.batches


async def test_a_line_that_is_too_long_refuses_at_once() -> None:
    call_route = OperationQueue(Counted().run, 2)
    asked = [call_route.submit(operations.release(b"k")) for _ in range(3)]
    with pytest.raises(Unreachable, match="too many operations are waiting"):
        await asked[2]
    assert [1000, 1000] == await asyncio.gather(*asked[:2])


async def test_when_a_batch_gets_no_answer_nobody_behind_it_waits() -> None:
    async def dead(_batch: Sequence[Operation[Any]]) -> list[Any]:
        raise Unreachable("TimeoutError", sent=True)

    call_route = OperationQueue(dead, 1000)
    asked = await asyncio.gather(
        *(call_route.submit(operations.release(b"k")) for _ in range(300)), return_exceptions=True
    )
    assert [True] * 256 + [False] * 44 == [one.sent for one in asked if isinstance(one, Unreachable)]


async def test_commands_on_the_wire_are_one_per_operation(plain: Server) -> None:
    async with opened(plain.settings) as (store, told):
        await use_everything(store)  # the scripts are known now
        with plain.client() as client:
            client.config_resetstat()
            await use_everything(store)
            calls = {name: stat["calls"] for name, stat in client.info("commandstats").items()}
    assert (6, []) == (calls["cmdstat_evalsha"], told)
    assert {"cmdstat_eval", "cmdstat_multi", "cmdstat_script|load"}.isdisjoint(calls)


async def use_everything(store: StateStore) -> None:
    """Six operations that have to ask the server."""
    await store.look("c/k")
    await store.fail("c/k", attempt("a"), 60)
    await store.clear("c/k", forget=True)
    await store.reserve("c/cap", 9, 60)
    await store.release("c/cap")
    assert 0 == await store.count_taken("c/never", enough=1)


async def test_a_server_that_has_forgotten_the_scripts_is_given_them_again(plain: Server) -> None:
    async with opened(plain.settings) as (store, told):
        await store.fail("forgotten", attempt("a"), 60)
        with plain.client() as client:
            client.script_flush()
        assert 2 == (await store.fail("forgotten", attempt("b"), 60)).episode.count
    assert [] == told


# --- trouble ----------------------------------------------------------------------------------------------------------
async def test_a_server_that_hangs_holds_nobody_up_for_longer_than_its_timeouts(tmp_path: Path) -> None:
    with server(tmp_path) as running:
        settings = replace(running.settings, connect_timeout=0.1, operation_timeout=0.2)
        async with opened(settings) as (store, told):
            await store.fail("k", attempt("a"), 60)
            assert running.process is not None
            running.process.send_signal(signal.SIGSTOP)
            began = asyncio.get_running_loop().time()
            recorded = await store.fail("k", attempt("b"), 60)
            took = asyncio.get_running_loop().time() - began
            running.process.send_signal(signal.SIGCONT)
    assert (2, False) == (recorded.episode.count, told[0].up)
    assert "Timeout" in told[0].reason
    assert took < 2


async def test_a_store_comes_back_by_itself(tmp_path: Path) -> None:
    with server(tmp_path) as running:
        async with opened(running.settings) as (store, told):
            await store.fail("k", attempt("a"), 60)
            running.kill()
            assert 2 == (await store.fail("k", attempt("b"), 60)).episode.count
            running.start()  # empty: it kept nothing
            await until(lambda: told[-1].up)
            assert episode("b", "c") == (await store.fail("k", attempt("c"), 60)).episode


async def test_a_key_that_something_else_wrote_fails_no_call(plain: Server) -> None:
    with plain.client() as client:
        client.set("toolproxy:a:{foreign}", "text", px=5000)
    async with opened(plain.settings) as (store, told):
        assert 1 == (await store.fail("foreign", attempt("a"), 60)).episode.count
    assert "ResponseError: WRONGTYPE" == told[0].reason


async def test_a_replica_is_no_place_to_write_to(tmp_path: Path, plain: Server) -> None:
    with server(tmp_path, "--replicaof", "127.0.0.1", str(plain.port)) as second:
        async with opened(second.settings) as (_, told):
            assert "ReadOnlyError" == told[0].reason


async def test_an_operation_that_is_cancelled_leaves_the_connection_in_order(plain: Server) -> None:
    async with opened(plain.settings) as (store, told):
        for number in range(20):
            waiting = asyncio.create_task(store.fail("cancelled", attempt(str(number)), 60))
            await asyncio.sleep(0)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
        assert (await store.fail("other", attempt("a"), 60)).episode == episode("a")
    assert [] == told


# --- getting in -------------------------------------------------------------------------------------------------------
async def test_a_database_a_prefix_and_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with server(tmp_path, "--unixsocket", str(path)) as running:
        settings = replace(running.settings, hosts=(), unix_socket=str(path), database=3, prefix="mine")
        assert [] == await counts(settings)
        with Redis(port=running.port, db=3) as client:
            assert b"mine:a:{c}/tool" in set(client.scan_iter())


async def test_a_password_and_an_acl_user(tmp_path: Path) -> None:
    rule = ["--user", "app", "on", f">{SECRET}", "~toolproxy:*", *ACL.split()]
    with server(tmp_path, *rule, "--user", "default", "off") as running:
        assert [] == await counts(replace(running.settings, username="app", password=SECRET))
        refused = await counts(replace(running.settings, username="app", password=f"{SECRET}-wrong"))
    assert {"AuthenticationError"} == {change.reason for change in refused}
    assert SECRET not in repr(refused) + repr(replace(running.settings, password=SECRET))


def documented_acl() -> str:
    """The permissions that docs/scaling.md says are enough."""
    text = (Path(__file__).parents[3] / "docs" / "scaling.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("ACL SETUSER"))
    return line.partition("~toolproxy:* ")[2]


ACL = documented_acl()


async def test_the_documented_permissions_are_enough_for_everything(tmp_path: Path) -> None:
    rule = ["--user", "app", "on", f">{SECRET}", "~toolproxy:*", *ACL.split()]
    with server(tmp_path, *rule, "--user", "default", "off") as running:
        settings = replace(running.settings, username="app", password=SECRET)
        async with opened(settings) as (store, told):
            await use_everything(store)
            await store.fail("c/k", attempt("a"), 60)
            assert [("c/k", episode("a"))] == await store.list_episodes()
        remote = Connections(settings)
        try:
            merged = await remote.run([operations.merge_used(KEYS.count("c/cap"), 2, 60)])
        finally:
            await remote.close()
    assert ([], [1]) == (told, merged)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs_server()
    folder = tmp_path_factory.mktemp("tls")
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    for name in ("server", "stranger"):
        files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
        words = ["openssl", *made.split(), "-addext", "subjectAltName=IP:127.0.0.1", *files]
        subprocess.run(words, check=True, capture_output=True)
    return folder


async def test_accepts_tls_with_a_pinned_certificate_and_rejects_a_stranger(tmp_path: Path, certificates: Path) -> None:
    port = take_port()
    files = ["--tls-cert-file", f"{certificates}/server.pem", "--tls-key-file", f"{certificates}/server.key"]
    trusted = UpstreamTls(
        ca=f"{certificates}/server.pem", cert=f"{certificates}/server.pem", key=f"{certificates}/server.key"
    )
    with server(tmp_path, "--tls-port", str(port), *files, "--tls-ca-cert-file", f"{certificates}/server.pem") as one:
        settings = replace(one.settings, hosts=(("127.0.0.1", port),), tls=trusted)
        assert [] == await counts(settings)
        strange = await counts(replace(settings, tls=replace(trusted, ca=f"{certificates}/stranger.pem")))
    assert [False, False] == [change.up for change in strange]
    assert "SSL" in strange[0].reason.upper() or "CERTIFICATE" in strange[0].reason.upper()


# --- several servers --------------------------------------------------------------------------------------------------
@pytest.mark.large
async def test_sentinels_know_the_primary_and_after_a_failover_the_new_one(tmp_path: Path) -> None:
    with server(tmp_path, "--requirepass", SECRET) as first, contextlib.ExitStack() as stack:
        words = ("--replicaof", "127.0.0.1", str(first.port), "--masterauth", SECRET, "--requirepass", SECRET)
        second = stack.enter_context(server(tmp_path, *words))
        config = tmp_path / "sentinel.conf"
        config.write_text(
            f"sentinel monitor tools 127.0.0.1 {first.port} 1\nsentinel auth-pass tools {SECRET}\n"
            "sentinel down-after-milliseconds tools 500\nsentinel failover-timeout tools 3000\n"
        )
        guard = stack.enter_context(sentinel(config))
        settings = replace(
            first.settings, topology="sentinel", hosts=(("127.0.0.1", guard),), service="tools", password=SECRET
        )
        assert [] == await counts(settings)
        with Redis(port=guard) as client, Redis(port=second.port, password=SECRET) as replica:
            await until(lambda: replica.info("replication").get("master_link_status") == "up")
            await until(lambda: client.sentinel_slaves("tools") != [])
            async with opened(settings) as (store, told):
                first.kill()
                await store.fail("c/tool", attempt("c"), 60)
                await until(lambda: told != [] and told[-1].up)
                assert 4 == (await store.fail("c/tool", attempt("d"), 60)).episode.count
            assert b'3 c id-c ["line c"]' in set(replica.hvals("toolproxy:a:{c}/tool"))


@contextlib.contextmanager
def sentinel(config: Path) -> Iterator[int]:
    """A sentinel; gives its port."""
    port = take_port()
    words = [str(BINARY), str(config), "--port", str(port), "--bind", "127.0.0.1", "--logfile", f"{config}.log"]
    process = subprocess.Popen([*words, "--sentinel"])
    try:
        Server(config.parent, port=port).wait()
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.mark.large
async def test_a_cluster_keeps_each_conversation_in_one_place_and_all_of_them(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        nodes = []
        for number in range(3):
            words = ("--cluster-enabled", "yes", "--cluster-config-file", f"nodes-{number}.conf")
            nodes.append(stack.enter_context(server(tmp_path, *words)))
        await form_cluster(nodes)
        settings = replace(nodes[0].settings, topology="cluster", hosts=(("127.0.0.1", nodes[0].port),))
        async with opened(settings) as (store, told):
            keys = [f"conversation {number}/tool" for number in range(60)]
            await asyncio.gather(*(store.fail(key, attempt("a"), 60) for key in keys))
            assert set(keys) == {key for key, _ in await store.list_episodes()}
            await use_everything(store)
        sizes = [node_size(node) for node in nodes]
    assert [] == told
    assert min(sizes) > 5


def node_size(node: Server) -> int:
    """Returns how many keys a node holds."""
    with node.client() as client:
        return int(client.dbsize())


async def form_cluster(nodes: list[Server]) -> None:
    """Assigns a third of the slots to each of three nodes and lets them meet."""
    thirds = [(0, 5460), (5461, 10922), (10923, 16383)]
    for node, (first, last) in zip(nodes, thirds, strict=True):
        with node.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
    for node in nodes:
        with node.client() as client:
            await until(lambda client=client: "cluster_state:ok" in said(client))  # type: ignore[misc]


def said(client: Redis) -> str:
    """Returns what a node says of its cluster."""
    return str(client.execute_command("CLUSTER", "INFO"))  # type: ignore[no-untyped-call]
