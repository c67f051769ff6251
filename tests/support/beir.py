"""Generate a BEIR folder: the same on every machine, with graded, negative and missing judgments."""

import json
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from random import Random

MACHINES = (
    "gripper lathe drone crane conveyor printer welder rover mower loader excavator tractor elevator turbine pump "
    "compressor boiler furnace mixer grinder press saw drill planer router sewing-machine loom kiln winch forklift "
)
PARTS = (
    "battery bearing belt brake cable camera chain clutch controller encoder fan filter frame gearbox hinge lamp "
    "motor nozzle piston pulley relay sensor spring switch tank thermostat valve wheel "
)
ACTS = ("clean", "replace", "calibrate", "inspect", "lubricate", "store")
OPENINGS = (
    "To {act} the {part} of a {machine}, switch off the power and wait",
    "A {machine} runs quietly once someone has taken care to {act} its {part}",
    "Every month the operator should {act} the {part}, or the {machine} will stop",
)
REMARKS = (
    "Write the date into the log",
    "Wear gloves and keep children away",
    "The manual has a drawing of it",
    "Two people are needed for the heavy models",
    "It takes half an hour in most workshops",
)
QUESTIONS = (
    "How do I {act} a {machine}'s {part}?",
    "what happens when nobody bothers to {act} the {part} of the {machine}",
    "{machine} {part} {act}",
)


def write_beir(folder: Path, documents: int = 1000, queries: int = 200) -> None:
    """Write corpus, queries and `qrels/test.tsv`; the folder must not exist."""
    random = Random(20260115)
    subjects = list(product(MACHINES.split(), PARTS.split()))
    random.shuffle(subjects)
    (folder / "qrels").mkdir(parents=True)
    chosen = [(*subjects[n % len(subjects)], random.choice(ACTS)) for n in range(documents)]
    corpus = [
        {
            "_id": f"doc-{n:04d}",
            "title": f"{machine} {part}",
            "text": f"{random.choice(OPENINGS).format(machine=machine, part=part, act=act)}. {random.choice(REMARKS)}.",
        }
        for n, (machine, part, act) in enumerate(chosen)
    ]
    targets = random.sample(range(documents), queries)
    questions = [
        {"_id": f"q{n:03d}", "text": _question(random, *chosen[document])} for n, document in enumerate(targets)
    ]
    judgments = [
        (f"q{n:03d}", f"doc-{other:04d}", grade)
        for n, document in enumerate(targets)
        for other, grade in _judge(random, document, chosen)
    ]
    _write_lines(folder / "corpus.jsonl", map(json.dumps, corpus))
    _write_lines(folder / "queries.jsonl", map(json.dumps, questions))
    rows = ("\t".join(map(str, row)) for row in judgments)
    _write_lines(folder / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", *rows])


def _question(random: Random, machine: str, part: str, act: str) -> str:
    return random.choice(QUESTIONS).format(machine=machine, part=part, act=act)


def _judge(random: Random, about: int, chosen: list[tuple[str, str, str]]) -> list[tuple[int, int]]:
    """Grade documents: 3 the document itself, 2 the same part and machine, 1 some of the same machine, else 0."""
    machine, part, _ = chosen[about]
    found = [(about, 3)]
    for other, (its_machine, its_part, _) in enumerate(chosen):
        if other == about or random.random() < 0.5:  # half of the judgments are missing
            continue
        if its_machine == machine:
            found.append((other, 2 if its_part == part else random.choice((0, 0, 1))))
        elif its_part == part:
            found.append((other, 0))
    return found


def _write_lines(file: Path, lines: Iterable[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
