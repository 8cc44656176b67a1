"""What `rerank serve` makes of more clients than it takes, of being killed, and of a long day.

    python scripts/try/service.py overload --model runs/x/best
    python scripts/try/service.py kills --model runs/x/best [--times 40]
    python scripts/try/service.py soak --model runs/x/best [--minutes 60] [--requests 10000]

Each prints a Markdown table of docs/serve.md, and ends with 1 if something in it is wrong. The service is a process of
its own, a fork of one that has imported everything. ``--model`` has to be a cross-encoder that reads nothing but texts.

overload: a hundred connections at once where sixteen requests may be inside, and as many clients that send a byte a
    second. Right is: every request is answered or refused, and the service answers at once when they are gone.
kills: eight clients ask without a pause, one more has sent half of its request, and at a random moment a signal comes,
    TERM, INT and KILL in turn. A request is accepted when the service has said ``100 Continue`` to it. Right is, for
    TERM and INT: all that were accepted are answered with the scores of an undisturbed service, and the exit code is
    143 or 130. For all three: no client waits for ever, nothing was written, and the next service, on the same port,
    answers.
soak: four clients send requests of 50 passages of random words and lengths, evenly over the minutes; every hundredth
    is cut off in its middle, and every hundredth is broken. A row a tenth of the time: what came, how long it took, and
    what the process holds. Right is: 200 for all that are whole and 400 for the broken ones, the same request has the
    same scores at the end as at the beginning, and there are no more files and threads at the end than after a tenth,
    and at most 5 % more memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))  # for the tests

from tests.serving.client import Client, process, read_all

PATIENCE = 300.0
"""Seconds after which a client that waits counts as hanging."""

DOCUMENTS = [f"{'a wing gives lift, ' * (1 + i % 5)}number {i}" for i in range(20)]
GOOD = {"query": "does a wing give lift", "documents": DOCUMENTS}
DATA = json.dumps(GOOD).encode()


def scores_in(answer: Any) -> list[tuple[int, float]]:
    """Indices and scores of an answer; rounded, as batches of other requests round otherwise."""
    return [(one["index"], round(one["relevance_score"], 3)) for one in answer["results"]]


def holds(running: Client) -> dict[str, float]:
    """Memory in MB, open files and threads of a service."""
    assert running.process is not None
    place = Path(f"/proc/{running.process.pid}")
    status = (place / "status").read_text()
    found = {name: int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "Threads")}  # type: ignore[index]
    files = len(list((place / "fd").iterdir()))
    return {"memory, MB": found["VmRSS"] / 1024, "files": files, "threads": found["Threads"]}


def try_overload(model: str, connections: int = 100, queue: int = 16) -> bool:
    """Print what happens to more clients than there are places; whether all is right."""
    right = True
    print("| clients | answers | seconds until a new one is answered |\n|---|---|---:|", flush=True)
    with process(f"m={model}", f"--queue={queue}", f"--timeout={PATIENCE / 3:g}") as running:
        wanted, first = scores_in(running.ask(GOOD)[1]), holds(running)

        def slowly(_: int) -> tuple[int, Any]:
            sent, rest = running.half(DATA)
            with suppress(ConnectionError):
                for byte in rest[:15]:
                    time.sleep(1)
                    sent.sendall(bytes([byte]))
                sent.sendall(rest[15:])
            head, _, body = read_all(sent).partition(b"\r\n\r\n")
            return int(head.split()[1]), json.loads(body)

        def at_once(_: int) -> tuple[int, Any]:
            return running.ask(GOOD)

        for name, ask, idle in (
            (f"{connections} at once", at_once, 0),
            (f"{connections} at once, of which each sends a byte a second, 15 times", slowly, 0),
            (f"{connections} that connect and send nothing, beside as many that ask", at_once, connections),
        ):
            held = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(idle)]
            with ThreadPoolExecutor(connections) as pool:
                answers = list(pool.map(ask, range(connections)))
            ends = Counter(status for status, _ in answers)
            right &= not {*ends} - {200, 429}
            right &= all(scores_in(answer) == wanted for status, answer in answers if status == 200)
            started = time.perf_counter()
            right &= running.ask(GOOD)[0] == 200
            shown = ", ".join(f"{count} × {status}" for status, count in sorted(ends.items()))
            print(f"| {name} | {shown} | {time.perf_counter() - started:.2f} |", flush=True)
            for one in held:
                one.close()
        time.sleep(2)
        last = holds(running)
        print(f"\nfirst {first}, afterwards {last}")
        right &= last["files"] <= first["files"]
    return right


SIGNALS = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -9}
"""And the exit codes of a service that gets them."""


def try_kills(model: str, times: int, seed: int) -> bool:
    """Print how often a service that is killed under load leaves something wrong; whether it never does."""
    rng, wrong = random.Random(seed), Counter[str]()
    ends: dict[int, Counter[str]] = {number: Counter() for number in SIGNALS}
    seconds: dict[int, list[float]] = {number: [] for number in SIGNALS}
    with process(f"m={model}") as running:
        wanted, port = scores_in(running.ask(GOOD)[1]), running.port
    before = written(model)
    for turn in range(times):
        number = list(SIGNALS)[turn % len(SIGNALS)]
        with process(f"m={model}", port=port) as running:
            wrong["other scores after a kill"] += scores_in(running.ask(GOOD)[1]) != wanted
            outcome, code, took = one_kill(running, number, rng.random(), wanted)
        print(f"{number.name}: {code}, {dict(outcome)}, {took:.1f} s", file=sys.stderr, flush=True)
        ends[number] += outcome
        seconds[number].append(took)
        wrong["exit code"] += code != SIGNALS[number]
        fine = {"answered", "accepted, and cut", "not accepted", "no connection"}
        for name in outcome.keys() - fine:
            wrong[name] += outcome[name]
        if number != signal.SIGKILL:
            wrong["accepted, and not answered"] += outcome["accepted, and cut"]
    wrong["files were written"] += written(model) != before
    print("| signal | services | requests answered | accepted, and cut | cut before | seconds to the end, at most |")
    print("|---|---:|---:|---:|---:|---:|")
    for number, outcome in ends.items():
        shown = [outcome[name] for name in ("answered", "accepted, and cut", "not accepted")]
        cells = [len(seconds[number]), *shown, f"{max(seconds[number], default=0):.1f}"]
        print(f"| {signal.Signals(number).name} | {' | '.join(map(str, cells))} |")
    print(f"\nwrong: {dict(+wrong) or 'nothing'}", flush=True)
    return not +wrong


def one_kill(running: Client, number: int, moment: float, wanted: Any) -> tuple[Counter[str], int, float]:
    """Load a service, send the signal; how requests ended, its exit code, and the seconds that it took to end."""
    ends, stop = Counter[str](), threading.Event()
    assert running.process is not None

    def work(slow: bool) -> None:
        while not stop.is_set():
            try:
                end = in_two_steps(running.port, slow, wanted)
            except TimeoutError:
                end = "hung"
            ends[end] += 1
            if end in ("hung", "no connection"):
                return

    with ThreadPoolExecutor(9) as pool:
        working = [pool.submit(work, i == 8) for i in range(9)]
        time.sleep(0.2 + moment)
        running.process.send_signal(number)
        started = time.monotonic()
        code = running.process.wait(PATIENCE)
        took = time.monotonic() - started
        stop.set()
        for one in working:
            one.result()
    return ends, code, took


def in_two_steps(port: int, slow: bool, wanted: Any) -> str:
    """Ask, and send the body when the service has said that it reads it; how that ended.

    Args:
        port: where.
        slow: whether the second half of the body follows a second later.
        wanted: the right scores.
    """
    try:
        connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    except ConnectionError:
        return "no connection"
    head = f"POST /rerank HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {len(DATA)}\r\n\r\n"
    with connection:
        received = b""
        with suppress(ConnectionError):
            connection.sendall(head.encode())
            received = connection.recv(1 << 16)
        if not received.startswith(b"HTTP/1.1 100"):
            return f"refused by {received.split()[1].decode()}" if received else "not accepted"
        with suppress(ConnectionError):
            connection.sendall(DATA[:50])
            time.sleep(float(slow))
            connection.sendall(DATA[50:])
        top, _, body = read_all(connection).partition(b"\r\n\r\n")
    if not body.endswith(b"\n"):
        return "accepted, and cut"
    status = top.split()[1].decode()
    if status != "200":
        return f"accepted, and refused by {status}"
    return "answered" if scores_in(json.loads(body)) == wanted else "other scores"


def try_soak(model: str, minutes: float, requests: int, seed: int) -> bool:
    """Print what a service holds while it answers for long; whether it stays as it was."""
    words = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("n", "r", "st", "l")]
    pause, part = minutes * 60 / requests, requests // 10
    right, first = True, dict[str, float]()

    def one(number: int, due: float) -> tuple[str, float]:
        rng = random.Random(f"{seed} {number}")
        texts = [" ".join(rng.choices(words, k=rng.randint(1, 16))) for _ in range(50)]
        asked = {"query": " ".join(rng.choices(words, k=5)), "documents": texts}
        time.sleep(max(due - time.monotonic(), 0))
        if number % 100 == 50:
            running.half(json.dumps(asked).encode())[0].close()
            return "cut off", 0.0
        started = time.perf_counter()
        status, _ = running.ask(asked | ({"query": 7} if number % 100 == 99 else {}))
        return str(status), time.perf_counter() - started

    print(
        "| minutes | answers | p50, ms | p95, ms | memory, MB | files | threads |\n|---:|---|---:|---:|---:|---:|---:|",
        flush=True,
    )
    with process(f"m={model}") as running, ThreadPoolExecutor(4) as pool:
        before, begun = scores_in(running.ask(GOOD)[1]), time.monotonic()
        for row in range(10):
            numbers = range(row * part, (row + 1) * part)
            ends = list(pool.map(one, numbers, [begun + number * pause for number in numbers]))
            counts, held = Counter(end for end, _ in ends), holds(running)
            times = sorted(seconds * 1000 for end, seconds in ends if end == "200")
            right &= counts == Counter({"200": part - 2 * (part // 100), "400": part // 100, "cut off": part // 100})
            first = first or held
            shown = ", ".join(f"{count} × {end}" for end, count in sorted(counts.items()))
            p50, p95 = times[len(times) // 2], times[len(times) * 95 // 100]
            cells = [(time.monotonic() - begun) / 60, shown, p50, p95, *held.values()]
            print(f"| {' | '.join(cell if isinstance(cell, str) else f'{cell:.0f}' for cell in cells)} |", flush=True)
        time.sleep(2)
        last = holds(running)
        right &= scores_in(running.ask(GOOD)[1]) == before
    print(f"\nafter a tenth {first}, at the end {last}")
    fine = last["memory, MB"] <= 1.05 * first["memory, MB"]
    return right and fine and all(last[name] <= first[name] for name in ("files", "threads"))


def written(model: str) -> dict[str, tuple[int, int]]:
    """Size and time of all files of the ranker and of the library's own folder."""
    places = [Path(model), Path(os.environ["RERANK_HOME"])]
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["overload", "kills", "soak"])
    parser.add_argument("--model", required=True, help="a cross-encoder's folder")
    parser.add_argument("--times", type=int, default=40, help="kills: how many")
    parser.add_argument("--minutes", type=float, default=60, help="soak: how long")
    parser.add_argument("--requests", type=int, default=10000, help="soak: how many")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["RERANK_HOME"] = home
        ways: dict[str, Callable[[], bool]] = {
            "overload": lambda: try_overload(options.model),
            "kills": lambda: try_kills(options.model, options.times, options.seed),
            "soak": lambda: try_soak(options.model, options.minutes, options.requests, options.seed),
        }
        sys.exit(not ways[options.what]())


if __name__ == "__main__":
    main()
