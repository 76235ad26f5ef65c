"""Python at work: four threads with dictionaries, lists, JSON, compression and regular expressions, and subprocesses.

Prints one line; the test `python3` in tests/tests/programs.rs knows what it must be. Run with PYTHONMALLOC=malloc, so that
every object comes from malloc.
"""

import hashlib
import json
import re
import subprocess
import sys
import threading
import zlib


def records(seed, count):
    """`count` records that depend on `seed` only."""
    state = seed
    for number in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield {"id": number, "name": f"n{state % 1009}", "tags": [f"t{state >> shift & 7}" for shift in (8, 16, 24)]}


def work(seed, results):
    """Builds, groups, prints, packs and unpacks records; leaves a digest."""
    digest = hashlib.sha256()
    for turn in range(6):
        groups = {}
        for record in records(seed * 100 + turn, 4000):
            groups.setdefault(record["name"], []).append(record)
        text = json.dumps(groups, sort_keys=True)
        packed = zlib.compress(text.encode())
        again = json.loads(zlib.decompress(packed))
        assert again == groups
        names = re.findall(r'"name": "(n\d+)"', text)
        digest.update(f"{len(groups)} {len(text)} {len(names)}".encode())
        digest.update("".join(sorted(names)).encode())
    results[seed] = digest.hexdigest()


def in_threads():
    results = {}
    threads = [threading.Thread(target=work, args=(seed, results)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def in_processes():
    """Children started from several threads at once: each computes on its own heap."""
    program = "import sys; print(sum(len(str(i)) for i in range(int(sys.argv[1]))))"
    totals = [0] * 6

    def run(index):
        command = [sys.executable, "-c", program, str(20000 + index)]
        totals[index] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(totals))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return totals


if __name__ == "__main__":
    results = in_threads()
    whole = hashlib.sha256("".join(results[seed] for seed in sorted(results)).encode()).hexdigest()
    print(whole[:16], sum(in_processes()))
