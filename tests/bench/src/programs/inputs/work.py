"""Python at work: objects, dictionaries, strings, sets, sorting and JSON, each object out of malloc (PYTHONMALLOC=malloc).

Prints the same line in each round; `scripts.rs` knows which. Takes the number of rounds.
"""

import json
import sys


class Item:
    """An ordinary object: a dictionary of its own, strings, a list."""

    def __init__(self, number, dice):
        self.number = number
        self.name = f"item {number} " + "x" * dice.roll(60)
        self.worth = dice.roll(1000)
        self.tags = [f"tag {dice.roll(50)}" for _ in range(dice.roll(5))]

    def record(self):
        return {"number": self.number, "name": self.name, "worth": self.worth / 4, "tags": self.tags}


class Dice:
    """Random numbers that depend on nothing but how often they were asked for."""

    def __init__(self):
        self.state = 1

    def roll(self, below):
        self.state = (self.state * 1103515245 + 12345) % 2147483648
        return (self.state >> 8) % below


def grouped(items):
    groups = {}
    for item in items:
        for tag in item.tags:
            groups.setdefault(tag, []).append((item.worth, item.name))
    return sum(worth for group in groups.values() for worth, _ in sorted(group)[:100])


def through_json(items):
    text = json.dumps([item.record() for item in items])
    again = json.loads(text)
    assert again[-1]["name"] == items[-1].name
    return len(text), len({record["name"] for record in again})


def words(items):
    text = " ".join(item.name for item in items)
    count = {}
    for word in text.split():
        count[word] = count.get(word, 0) + 1
    return len(count), len(text.replace("x", "yz"))


def changes(items, dice):
    """Items come and go, so that the heap has holes."""
    for _ in range(15000):
        items[dice.roll(len(items))] = Item(0, dice)
    return sum(len(item.name) for item in items)


def main(rounds):
    for _ in range(rounds):
        dice = Dice()
        items = [Item(number, dice) for number in range(30000)]
        print(grouped(items), *through_json(items), *words(items), changes(items, dice))


main(int(sys.argv[1]))
