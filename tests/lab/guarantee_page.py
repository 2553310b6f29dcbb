"""docs/replication.md, written from the rules, the matrix and the claims.

python -m tests.lab.guarantee_page
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.lab.guarantees.matrix import (
    DEFAULTS,
    FAULTS,
    all_cells,
    grouped,
    load_matrix,
    text_of_value,
)
from eoctl.lab.sim.guarantees import SHORT, WORDS, range_words, settings_of, survived_words
from recovery.rules.replication import REPLICATION
from tests.lab.claims import CLAIMS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.claims import Claim


ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "replication.md"
_TESTS = (
    "tests/lab/test_leader.py",
    "tests/lab/test_replication_rules.py",
    "tests/lab/test_transactions.py",
    "tests/lab/test_sim.py",
    "tests/lab/test_running_log_real.py",
    "tests/lab/test_diverged.py",
)
_BEGINNING = """\
# What replication guarantees, and what it loses

<!-- Made by `python -m tests.lab.guarantee_page`; its words are there. -->

`eoctl sim` plays a replica set over real log dirs, by the rules below, in virtual time; its checker
judges from the clients' history and the files alone. Nothing here is a figure of speed.

    eoctl sim table --acks all --min-insync-replicas 1
    eoctl sim table --acks all --min-insync-replicas 1 --witness loses.json
    eoctl sim run ./play --replay loses.json
    eoctl sim check ./play

The first says what can be lost with these settings, and tells one course of events that loses it, in at
most 12 steps. The others repeat that course over directories that stay, and condemn it.

## The rules
"""
_MATRIX = """
## What may be lost

A cell of the matrix is a choice of settings and a class of faults. `none lost`: nothing was found in 2,000
courses of events or more, each with faults drawn anew; `none found`: nor in fewer, and the number of them
is in `eoctl sim table -o jsonl`, and below. Neither is a proof. `may lose`:
records that were acknowledged, or read, are gone, or the offsets of such are given anew. `may duplicate`:
a record is there twice. `may diverge`: replicas differ below the high watermark, and nothing tells them.
Each of these has a course of events in the package, made as short as it goes, that `eoctl sim table
--witness FILE` writes; `make test` repeats a share of them, and each `make explore` plays courses that were
not played before in each cell that has none.
What a cell may do beside what it says was not found, which is no proof either.
"""
_SAME = """
Cells that are the same are tried once: with acks 0 or 1 a producer is not idempotent; with one replica
min.insync.replicas counts as 1 and nobody cuts; where no machine loses power, syncing changes nothing (a
test holds the histories of both against each other). No release cuts at the high watermark and has
idempotent producers or ELR, so these are no cells. Every cluster has as many brokers as replicas, and its
producer one batch in flight: with more, an idempotent one may have batches twice after its broker was
started again, as with a real broker, which then knows the last batch of each producer only. So does syncing
each batch not help: `eoctl sim explore --min-insync-replicas 2 --fsync batch --faults power,kill` finds
seed 54, where five batches wait for a dead follower as all machines lose power, and none with `--in-flight 1`
(`test_repl_12_what_a_started_broker_forgot_is_sent_again`; real brokers refuse the same batches, `test_courses`).

A weaker setting loses no less than a stronger one, in each cell (`test_a_weaker_setting_loses_no_less`): acks,
min.insync.replicas, unclean elections, the rule of truncation, ELR, fsync. One exception is none of the search but
of ELR: with acks=1 a leader acknowledges alone what the eligible replica that leads next does not have. More
replicas are no stronger setting: where there is only one, nobody leads without what it has.
"""
_ALL = """
### All of it

Cells that come to the same stand together; what is not named does not matter there.
"""
_END = """
## What serves when brokers are dead

`eoctl sim scripts` lists four courses of events: AR is 0, 1, 2, ISR 0, 1, min.insync.replicas 2, and
brokers die. `eoctl sim run ./play --script 2-both-dead` says after each action what is read and
written. In short: the last one that was in the ISR leads again when it comes back, nobody else does without
an unclean election; writes with acks=all wait for min.insync.replicas, reads do not; lowering
min.insync.replicas helps where there is a leader, and nowhere else.

## What a consumer makes of it

`eoctl sim run --consumer-commit before` has the consumer commit its offset before it handles what it was
given: when it ends in between, those records are lost for it (at most once). With `after` it is given them
again (at least once). `sim check` says which: `never-handled`, `handled-twice`. No setting of brokers or
producers changes that, so neither is a finding.

    eoctl sim run ./play --consumer-commit before --faults 'kill consumer at 50% handling, start consumer at 70%'
    eoctl sim check ./play

## Transactions

`eoctl sim run --transaction-records 10 --abort-every 5` plays a transactional producer (KIP-98), its
coordinator, markers in the logs, and consumers that read read_committed (REPL-7, REPL-13), by transaction
version 2 (KIP-890): a leader asks the coordinator before it takes the first batch of a transaction, and each
end raises the epoch of the producer.

    eoctl sim run ./play --transaction-records 10 --abort-every 5 --faults 'kill leader at 40%, start all at 70%'
    eoctl sim check ./play

| claim | shown by |
|---|---|
| what was told to be committed is read whole, and nothing of what was aborted, while brokers are killed, cut off, slow or lose power, with min.insync.replicas=2 and each batch synced | `test_what_is_committed_is_there_and_what_is_aborted_is_not` |
| a reader stops at the first transaction that is open, or whose marker is not replicated yet | `test_repl_7_a_marker_that_is_not_replicated_leaves_its_transaction_unstable` |
| what comes late, from before an abort or from an older session, is refused, and opens no transaction that nobody ends | `test_repl_13_what_comes_late_is_refused_and_opens_nothing` |
| a marker that dies with its leader is written by the next one | `test_repl_13_a_marker_is_written_once_more_by_whoever_leads` |
| a producer that is killed at any moment leaves no half of a transaction: its next session aborts what was open | `test_what_a_killed_producer_has_begun_is_aborted` |
| real brokers do the same with a leader that dies in a transaction, record by record, marker by marker, and give a read_committed client what ours is given, also after runs with faults | `test_real_brokers_do_the_same`, `test_real_brokers_go_on_with_its_transactions` |
| a transaction that takes too long is aborted, and its producer refused | `test_repl_13_a_transaction_that_takes_too_long_is_aborted` |
| committing is as safe as acks=all is: with one replica in sync that loses its disk, what was committed is lost | `test_explore_plays_transactions_and_prints_the_calls_that_repeat_them` |
| reading to the high watermark, not naming what was aborted, a marker that counts before it is replicated, one marker for all: each is condemned | `test_a_broken_rule_is_condemned_and_the_rule_is_not` |

The matrix above has no transactions.

## What is not Kafka

- One controller, which never fails: nothing is said of the KRaft quorum.
- One transaction coordinator, which never fails either, beside the controller: a node that is cut off from
  the one is from the other. Its `__transaction_state` has one partition, without replicas, which the metadata
  log knows as the controller's own. Where a leader waits for its word on a producer, what that one sends
  meanwhile waits, too. Where markers of the transaction before are still being written, it tells the producer
  so at once, and the producer sends again after 100 ms; a leader of 4.3 asks again itself for a while first
  (add.partitions.to.txn.retry.backoff.ms). A producer that was refused to commit begins a new session, as an
  application does that is restarted.
- No quotas, TLS, racks, tiered storage, reassignment, retention or compaction; no wire protocol: messages
  are values, late by 0.2 to 1 ms and in order on each link.
- A disk takes no time. What it forgets at a loss of power is drawn: of each file what was not synced is kept
  to a point, torn, or zeros; what has waited for 30 seconds is on the disk.
- A batch that is known again (idempotence) wakes a follower's fetch that waits, with the default of
  replica.fetch.min.bytes, and it is given nothing. A real leader looks at the waiting fetches then, too
  (ReplicaManager.addCompletePurgatoryAction), and lets those wait on that have nothing to be given. It loses
  nothing, and courses of events that were saved stay what they are.
- The high watermark waits while the ISR is smaller than min.insync.replicas, with ELR and without, as brokers
  of 4.3.1 do. Releases before 3.7 did not wait.
- `truncation hw` is the rule of releases before 0.11, in an otherwise present-day broker.
- With `--consumer-commit` a consumer has offsets of its own, kept by a coordinator that never fails and is no
  broker, and in no transaction; there are no groups that share partitions. It handles a record in a
  millisecond.
"""


def named_for(check_id: str) -> Iterator[str]:
    """Names of the tests of a rule, as links."""
    prefix = f"test_{check_id.lower().replace('-', '_')}_"
    by_docstring = f"{check_id},"
    for path in _TESTS:
        for node in ast.parse((ROOT / path).read_text()).body:
            if isinstance(node, ast.FunctionDef):
                said = ast.get_docstring(node) or ""
                if node.name.startswith(prefix) or said.startswith(by_docstring):
                    yield f"`{node.name}`"


def _rules() -> Iterator[str]:
    yield "| rule | what holds | Kafka | shown by |"
    yield "|---|---|---|---|"
    for rule in REPLICATION:
        anchor = f"rules/replication.md#{rule.check_id.lower()}"
        tests = "<br>".join(named_for(rule.check_id))
        yield f"| [{rule.check_id}]({anchor}) | {rule.title} | `{rule.kafka}` | {tests} |"


def _claims() -> Iterator[str]:
    yield "| claim | found | in the cell | shortest course |"
    yield "|---|---|---|---|"
    by_cell = load_matrix().by_cell()
    for claim in CLAIMS:
        result = by_cell[claim.cell.canonical]
        what = f" that may {' or '.join(claim.never)}" if claim.never else ""
        course = f"none{what} in {result.seeds_count:,} courses"
        if claim.effect:
            witness = load_matrix().witnesses[result.witnesses[claim.effect]]
            course = f"{witness.records} records, seed {witness.seed}: `{witness.faults}`"
        yield f"| {claim.words} | {result.verdict} | {_cell_words(claim)} | {course} |"


def _cell_words(claim: Claim) -> str:
    said = [f"{SHORT[name]}={text_of_value(value)}" for name, value in claim.settings.items()]
    return ", ".join([claim.faults, *said])


def _matrix() -> Iterator[str]:
    by_cell = load_matrix().by_cell()
    yield "| settings | faults | verdict |"
    yield "|---|---|---|"
    cells = {each: by_cell[each.canonical].verdict for each in all_cells()}
    for group in grouped(cells):
        settings = ", ".join(settings_of(group, {})) or "any"
        yield f"| {settings} | {group.text_of('faults')} | {group.comes_to} |"


def _counts() -> str:
    results = load_matrix().results
    none = [each.seeds_count for each in results if not each.effects]
    return (
        f"{len(results)} cells were tried with {sum(each.seeds_count for each in results):,} courses of"
        f" events: {len(results) - len(none)} may lose, duplicate or diverge, and"
        f" {len(none)} do not in {range_words(none)} courses each."
    )


def page() -> str:
    """The whole page."""
    classes = "\n".join(f"- `{name}`: {WORDS[name]}" for name in FAULTS)
    defaults = ", ".join(f"{SHORT[name]}={text_of_value(each)}" for name, each in DEFAULTS.items())
    survived = "\n".join(f"- {each}" for each in survived_words(load_matrix().results))
    parts = [
        _BEGINNING, "\n".join(_rules()), _MATRIX, _counts(), _SAME, "What befalls the cluster:\n",
        classes, f"\n### Claims\n\nWhat is not named is as by default: {defaults}.\n",
        "\n".join(_claims()), "\n", survived,
        _ALL,
        "\n".join(_matrix()), _END,
    ]  # fmt: skip
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


if __name__ == "__main__":
    PAGE.write_text(page())
