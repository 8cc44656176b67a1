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
import contextlib
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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.forked import Command  # noqa: E402

PATIENCE = 300.0
"""Seconds after which a client that waits counts as hanging."""

DOCUMENTS = [f"{'a wing gives lift, ' * (1 + i % 5)}number {i}" for i in range(20)]
GOOD = {"query": "does a wing give lift", "documents": DOCUMENTS}


class Answered(NamedTuple):
    """What became of a request.

    Attributes:
        status: of the answer; 0 where the connection was cut without one, -1 where there was none.
        body: what came behind the head.
    """

    status: int
    body: bytes


def head(*lines: str) -> bytes:
    """A request's head."""
    return "\r\n".join(["POST /rerank HTTP/1.1", "Host: x", "Connection: close", *lines, "", ""]).encode()


def post(body: Any) -> list[bytes]:
    """A whole request."""
    data = json.dumps(body).encode()
    return [head(f"Content-Length: {len(data)}"), data]


def send(port: int, parts: Sequence[bytes], pause: float = 0.0) -> Answered:
    """Send pieces, while reading what comes, until the other side closes or a whole answer is there."""
    try:
        connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    except OSError:
        return Answered(-1, b"")
    received = bytearray()

    def write() -> None:
        with suppress(OSError):
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)

    writing = threading.Thread(target=write, daemon=True)
    with connection:
        writing.start()
        with suppress(ConnectionError):  # a time-out is not suppressed: that is a client that hangs
            while part := connection.recv(1 << 16):
                received += part
                if _is_whole(bytes(received)):
                    break
    writing.join(PATIENCE)
    return _read(bytes(received))


def _is_whole(received: bytes) -> bool:
    top, found, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", top)
    return bool(found and length and len(body) >= int(length[1]))


def _read(received: bytes) -> Answered:
    top, _, body = received.partition(b"\r\n\r\n")
    status, length = re.match(rb"HTTP/1.1 (\d+)", top), re.search(rb"(?i)content-length: (\d+)", top)
    return Answered(int(status[1]) if status else 0, body[: int(length[1])] if length else body)


class Service(NamedTuple):
    """A service that runs.

    Attributes:
        port: where.
        process: what runs it.
    """

    port: int
    process: Command

    def ask(self, body: Any = GOOD) -> Answered:
        return send(self.port, post(body))

    def holds(self) -> dict[str, float]:
        """Memory in MB, open files and threads of its process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = {name: int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "Threads")}  # type: ignore[index]
        files = len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))
        return {"memory, MB": found["VmRSS"] / 1024, "files": files, "threads": found["Threads"]}


@contextmanager
def service(model: str, *words: str, port: int = 0) -> Iterator[Service]:
    """``rerank serve``, stopped at the end if it still runs."""
    process = Command(["serve", f"m={model}", f"--port={port}", *words])
    end = time.monotonic() + PATIENCE
    try:
        while not (found := re.search(r"at http://127\.0\.0\.1:(\d+)\n", process.said)):
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"the service did not start ({process.poll()}): {process.said}")
            time.sleep(0.02)
        while send(int(found[1]), [b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"]).status != 200:
            time.sleep(0.02)
        yield Service(int(found[1]), process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(PATIENCE)


def scores_in(body: bytes) -> list[tuple[int, float]]:
    """Indices and scores of an answer; rounded, as batches of other requests round otherwise."""
    return [(one["index"], round(one["relevance_score"], 3)) for one in json.loads(body)["results"]]


def try_overload(model: str, connections: int = 100, queue: int = 16) -> bool:
    """Print what happens to more clients than there are places; whether all is right."""
    right = True
    print("| clients | answers | seconds until a new one is answered |\n|---|---|---:|", flush=True)
    with service(model, f"--queue={queue}", f"--timeout={PATIENCE / 3:g}") as running:
        wanted = running.ask().body
        first_held, (first, data) = running.holds(), post(GOOD)
        slow = [first, *(data[i : i + 1] for i in range(15)), data[15:]]
        idle: list[bytes] = [b""]
        for name, parts, pause in (
            (f"{connections} at once", post(GOOD), 0.0),
            (f"{connections} at once, of which each sends a byte a second, 15 times", slow, 1.0),
            (f"{connections} that connect and send nothing, beside as many that ask", idle, 0.0),
        ):
            held = []
            if parts is idle:
                held = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(connections)]
                parts = post(GOOD)
            with ThreadPoolExecutor(connections) as pool:
                answers = list(pool.map(lambda _, p=parts, w=pause: send(running.port, p, w), range(connections)))
            ends = Counter(answered.status for answered in answers)
            right &= not {*ends} - {200, 429} and all(one.body.count(b"\n") == 1 for one in answers)
            right &= all(scores_in(one.body) == scores_in(wanted) for one in answers if one.status == 200)
            started = time.perf_counter()
            right &= running.ask().status == 200
            shown = ", ".join(f"{count} × {status}" for status, count in sorted(ends.items()))
            print(f"| {name} | {shown} | {time.perf_counter() - started:.2f} |", flush=True)
            for one in held:
                one.close()
        time.sleep(2)
        print(f"\nfirst {first_held}, afterwards {running.holds()}")
        right &= running.holds()["files"] <= first_held["files"]
    return right


def try_kills(model: str, times: int, seed: int) -> bool:
    """Print how often a service that is killed under load leaves something wrong; whether it never does."""
    rng, wrong = random.Random(seed), Counter[str]()
    names = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -9}  # and the exit codes
    ends: dict[int, Counter[str]] = {number: Counter() for number in names}
    seconds: dict[int, list[float]] = {number: [] for number in names}
    with service(model) as running:
        wanted, port = running.ask().body, running.port
    before = written(model)
    for time_number in range(times):
        number = list(names)[time_number % len(names)]
        with service(model, port=port) as running:
            if scores_in(running.ask().body) != scores_in(wanted):
                wrong["other scores after a kill"] += 1
            outcome, code, took = one_kill(running, number, rng.random(), wanted)
        print(f"{signal.Signals(number).name}: {code}, {dict(outcome)}, {took:.1f} s", file=sys.stderr, flush=True)
        ends[number] += outcome
        seconds[number].append(took)
        wrong["exit code"] += code != names[number]
        for name in outcome:
            wrong[name] += outcome[name] * (
                name not in ("answered", "accepted, and cut", "not accepted", "no connection")
            )
        if number != signal.SIGKILL:
            wrong["accepted, and not answered"] += outcome["accepted, and cut"]
        with contextlib.closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                wrong["the port is taken"] += 1
    wrong["files were written"] += written(model) != before
    print("| signal | services | requests answered | accepted, and cut | cut before | seconds to the end, at most |")
    print("|---|---:|---:|---:|---:|---:|")
    for number, outcome in ends.items():
        shown = [outcome[name] for name in ("answered", "accepted, and cut", "not accepted")]
        cells = [len(seconds[number]), *shown, f"{max(seconds[number], default=0):.1f}"]
        print(f"| {signal.Signals(number).name} | {' | '.join(map(str, cells))} |")
    print(f"\nwrong: {dict(+wrong) or 'nothing'}", flush=True)
    return not +wrong


def one_kill(running: Service, number: int, moment: float, wanted: bytes) -> tuple[Counter[str], int, float]:
    """Load a service, send the signal; how requests ended, its exit code, and the seconds that it took to end."""
    ends, stop = Counter[str](), threading.Event()

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


def in_two_steps(port: int, slow: bool, wanted: bytes) -> str:
    """Ask, and send the body when the service has said that it reads it; how that ended.

    Args:
        port: where.
        slow: whether the second half of the body follows a second later.
        wanted: the right answer.
    """
    data = json.dumps(GOOD).encode()
    try:
        connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    except ConnectionError:
        return "no connection"
    with connection:
        received = b""
        with suppress(ConnectionError):
            connection.sendall(head("Expect: 100-continue", f"Content-Length: {len(data)}"))
            received = connection.recv(1 << 16)
        if not received.startswith(b"HTTP/1.1 100"):
            return f"refused by {_read(received).status}" if received else "not accepted"
        received = received.partition(b"\r\n\r\n")[2]
        with suppress(ConnectionError):
            connection.sendall(data[:50])
            time.sleep(float(slow))
            connection.sendall(data[50:])
            while not _is_whole(received) and (part := connection.recv(1 << 16)):
                received += part
    if not _is_whole(received):
        return "accepted, and cut"
    answered = _read(received)
    if answered.status != 200:
        return f"accepted, and refused by {answered.status}"
    return "answered" if scores_in(answered.body) == scores_in(wanted) else "other scores"


def try_soak(model: str, minutes: float, requests: int, seed: int) -> bool:
    """Print what a service holds while it answers for long; whether it stays as it was."""
    words = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("n", "r", "st", "l")]
    pause, part = minutes * 60 / requests, requests // 10
    right, first = True, dict[str, float]()

    def one(number: int, due: float) -> tuple[str, float]:
        rng = random.Random(f"{seed} {number}")
        texts = [" ".join(rng.choices(words, k=rng.randint(1, 16))) for _ in range(50)]
        parts = post({"query": " ".join(rng.choices(words, k=5)), "documents": texts})
        time.sleep(max(due - time.monotonic(), 0))
        if number % 100 == 50:
            with socket.create_connection(("127.0.0.1", running.port)) as connection:
                connection.sendall(parts[0] + parts[1][:500])
            return "cut off", 0.0
        started = time.perf_counter()
        answered = send(running.port, post({"query": 7, "documents": texts}) if number % 100 == 99 else parts)
        return str(answered.status), time.perf_counter() - started

    print(
        "| minutes | answers | p50, ms | p95, ms | memory, MB | files | threads |\n|---:|---|---:|---:|---:|---:|---:|",
        flush=True,
    )
    with service(model) as running, ThreadPoolExecutor(4) as pool:
        before, begun = running.ask().body, time.monotonic()
        for row in range(10):
            numbers = range(row * part, (row + 1) * part)
            ends = list(pool.map(one, numbers, [begun + number * pause for number in numbers]))
            counts, holds = Counter(end for end, _ in ends), running.holds()
            times = sorted(seconds * 1000 for end, seconds in ends if end == "200")
            right &= counts == Counter({"200": part - 2 * (part // 100), "400": part // 100, "cut off": part // 100})
            first = first or holds
            shown = ", ".join(f"{count} × {end}" for end, count in sorted(counts.items()))
            p50, p95 = times[len(times) // 2], times[len(times) * 95 // 100]
            held = " | ".join(f"{value:.0f}" for value in holds.values())
            print(f"| {(time.monotonic() - begun) / 60:.0f} | {shown} | {p50:.0f} | {p95:.0f} | {held} |", flush=True)
        time.sleep(2)
        last = running.holds()
        right &= scores_in(running.ask().body) == scores_in(before)
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
        if options.what == "kills":
            right = try_kills(options.model, options.times, options.seed)
        elif options.what == "soak":
            right = try_soak(options.model, options.minutes, options.requests, options.seed)
        else:
            right = try_overload(options.model)
    sys.exit(not right)


if __name__ == "__main__":
    main()
