"""The pool of child processes: results, limits, and what is left of a job that was given up."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.offload.child import MOST_SHARED
from proxy.offload.pool import Done, GaveUp, Limit, OffloadPool, Shared
from tests.steady import until

JOBS = "tests.offload.jobs"


@pytest.fixture
async def pool() -> AsyncIterator[OffloadPool]:
    pool = OffloadPool(size=1, memory=256 << 20, max_waiting=1)
    yield pool
    await pool.close()


async def test_a_job_gives_back_what_its_function_gives_back(pool: OffloadPool) -> None:
    payload = bytes(range(256)) * 10_000
    assert Done(payload) == await pool.run(f"{JOBS}:echo", payload, seconds=60)


async def test_one_child_does_one_job_after_the_other(pool: OffloadPool) -> None:
    first = await pool.run(f"{JOBS}:process_id", b"", seconds=60)
    assert first == await pool.run(f"{JOBS}:process_id", b"", seconds=60)
    assert pool.children == 1


async def test_a_job_beyond_its_deadline_is_killed_and_the_next_one_is_done(pool: OffloadPool) -> None:
    process = await pool.run(f"{JOBS}:process_id", b"", seconds=60)
    assert isinstance(process, Done)
    assert GaveUp(Limit.DEADLINE) == await pool.run(f"{JOBS}:run_for_ever", b"", seconds=0.3)
    assert pool.children == 0
    assert not is_alive(int(process.result))
    assert Done(b"next") == await pool.run(f"{JOBS}:echo", b"next", seconds=60)


async def test_sends_a_shared_payload_once_while_it_is_recent(pool: OffloadPool) -> None:
    async def ask(shared: int) -> Done | GaveUp:
        return await pool.run(f"{JOBS}:count_shared", b"a", Shared(b"schema %d " % shared), seconds=60)

    assert [Done(b"aschema 7 1"), Done(b"aschema 7 1"), Done(b"aschema 8 2"), Done(b"aschema 7 2")] == [
        await ask(number) for number in (7, 7, 8, 7)
    ]
    for number in range(10, 10 + MOST_SHARED):
        await ask(number)
    assert Done(b"aschema 7 %d" % (3 + MOST_SHARED)) == await ask(7)


async def test_a_new_child_is_sent_what_the_one_before_had(pool: OffloadPool) -> None:
    shared = Shared(b"s")
    assert Done(b"as1") == await pool.run(f"{JOBS}:count_shared", b"a", shared, seconds=60)
    assert GaveUp(Limit.CRASH, "exit 7") == await pool.run(f"{JOBS}:die", b"", seconds=60)
    assert Done(b"as1") == await pool.run(f"{JOBS}:count_shared", b"a", shared, seconds=60)


@pytest.mark.large
async def test_a_job_may_use_its_seconds_of_cpu_time_however_long_the_clock_runs(pool: OffloadPool) -> None:
    assert GaveUp(Limit.DEADLINE) == await pool.run(f"{JOBS}:run_for_ever", b"", seconds=0.1, patience=600)
    assert Done(b"slept") == await pool.run(f"{JOBS}:sleep", b"0.3", seconds=0.1, patience=600)


async def test_a_job_that_needs_too_much_memory_is_given_up_and_the_next_one_is_done(pool: OffloadPool) -> None:
    assert GaveUp(Limit.MEMORY) == await pool.run(f"{JOBS}:fill_memory", b"", seconds=60)
    assert Done(b"next") == await pool.run(f"{JOBS}:echo", b"next", seconds=60)


async def test_a_payload_that_does_not_fit_into_a_child_is_given_up(pool: OffloadPool) -> None:
    assert GaveUp(Limit.MEMORY) == await pool.run(f"{JOBS}:echo", bytes(300 << 20), seconds=60)


async def test_reports_a_child_that_ends_with_its_exit_code(pool: OffloadPool) -> None:
    assert GaveUp(Limit.CRASH, "exit 7") == await pool.run(f"{JOBS}:die", b"", seconds=60)


async def test_reports_an_exception_by_its_name_and_never_by_its_text(pool: OffloadPool) -> None:
    assert GaveUp(Limit.CRASH, "ValueError") == await pool.run(f"{JOBS}:quote_a_value", b"value", seconds=60)


async def test_a_job_that_prints_does_not_disturb_its_result(pool: OffloadPool) -> None:
    assert Done(b"result") == await pool.run(f"{JOBS}:print_and_answer", b"", seconds=60)


async def test_more_jobs_than_may_wait_are_refused_at_once(pool: OffloadPool) -> None:
    running = asyncio.ensure_future(pool.run(f"{JOBS}:sleep", b"0.2", seconds=60))
    waiting = asyncio.ensure_future(pool.run(f"{JOBS}:sleep", b"0", seconds=60))
    await asyncio.sleep(0)
    assert GaveUp(Limit.BUSY) == await pool.run(f"{JOBS}:echo", b"", seconds=60)
    assert [Done(b"slept"), Done(b"slept")] == [await running, await waiting]


async def test_a_job_whose_deadline_passes_while_it_waits_leaves_its_place(pool: OffloadPool) -> None:
    running = asyncio.ensure_future(pool.run(f"{JOBS}:sleep", b"1", seconds=60))
    await asyncio.sleep(0)
    assert GaveUp(Limit.BUSY) == await pool.run(f"{JOBS}:echo", b"", seconds=0.01)
    assert Done(b"slept") == await running
    assert Done(b"next") == await pool.run(f"{JOBS}:echo", b"next", seconds=60)


async def test_a_cancelled_caller_kills_the_child_that_works_for_it(pool: OffloadPool) -> None:
    process = await pool.run(f"{JOBS}:process_id", b"", seconds=60)
    assert isinstance(process, Done)
    job = asyncio.ensure_future(pool.run(f"{JOBS}:run_for_ever", b"", seconds=60))
    await asyncio.sleep(0.05)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert not is_alive(int(process.result))
    assert Done(b"next") == await pool.run(f"{JOBS}:echo", b"next", seconds=60)


async def test_an_idle_child_is_ended() -> None:
    pool = OffloadPool(size=1, idle_seconds=0.0)
    assert Done(b"") == await pool.run(f"{JOBS}:echo", b"", seconds=60)
    await until(lambda: not pool.children)
    assert Done(b"") == await pool.run(f"{JOBS}:echo", b"", seconds=60)
    await pool.close()


async def test_a_closed_pool_leaves_no_child_and_takes_no_job() -> None:
    pool = OffloadPool(size=2)
    process = await pool.run(f"{JOBS}:process_id", b"", seconds=60)
    assert isinstance(process, Done)
    await pool.close()
    assert not is_alive(int(process.result))
    assert GaveUp(Limit.CLOSED) == await pool.run(f"{JOBS}:echo", b"", seconds=60)


async def test_a_child_ends_with_its_parent() -> None:
    """The child reads its parent's pipe: it ends when the parent is gone, however the parent went."""
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import asyncio\n"
        "from proxy.offload.pool import OffloadPool\n"
        "async def main():\n"
        "    pool = OffloadPool()\n"
        f"    print((await pool.run('{JOBS}:process_id', b'', seconds=60)).result.decode(), flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n",
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    assert is_alive(child)
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await until(lambda: not is_alive(child))


def is_alive(process_id: int) -> bool:
    """Returns whether the process runs; one that has ended and was not waited for yet does not."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
