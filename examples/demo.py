"""What `cargo demo` runs: four threads that build, sort, print and parse records. Prints what it did."""

import json
import random
import threading


def work(seed, totals):
    random.seed(seed)
    for _ in range(5):
        records = [{"id": i, "name": "n" * random.randrange(60), "worth": random.random()} for i in range(10000)]
        by_name = {}
        for record in sorted(records, key=lambda record: record["worth"]):
            by_name.setdefault(record["name"], []).append(record)
        again = json.loads(json.dumps(by_name))
        totals[seed] = totals.get(seed, 0) + sum(len(group) for group in again.values())


totals = {}
threads = [threading.Thread(target=work, args=(seed, totals)) for seed in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"{sum(totals.values())} records sorted, printed as JSON and parsed again in {len(threads)} threads")
