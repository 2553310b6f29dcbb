"""docs/replication.md, written from the rules, the matrix and the claims.

python -m tests.lab.guarantee_page
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.lab.guarantees.matrix import DEFAULTS, FAULTS, load_matrix, text_of_value
from eoctl.lab.sim.guarantees import SHORT, WORDS, range_words, survived_words
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

<!-- Made by `python -m tests.lab.guarantee_page`, which has the text. -->

`eoctl sim` simulates a replica set over real log dirs in virtual time. It follows the rules below. Its
checker judges by the clients' history and the files alone. This page has no speeds.

    eoctl sim table --acks all --min-insync-replicas 1
    eoctl sim table --acks all --min-insync-replicas 1 --witness loses.json
    eoctl sim run ./run --replay loses.json
    eoctl sim check ./run

The first command says which records these settings can lose, and prints a failure sequence of at most 12
steps. The others repeat that sequence over directories that stay, and report the loss.

## The rules
"""
_MATRIX = """
## What may be lost

The matrix has a cell for each choice of settings and each class of faults. `eoctl sim table --truncation
any` prints all cells. The verdicts mean:

- `none lost`: no fault was found in 2,000 or more scenarios with random faults. This is not a proof.
- `none found`: the same in fewer scenarios. `eoctl sim table -o jsonl` has the number.
- `may lose`: acknowledged or read records are lost, or their offsets were given to other records.
- `may duplicate`: a record has two offsets.
- `may diverge`: replicas differ below the high watermark, and nothing reports it.

A cell that may lose, duplicate or diverge has a shortest failure sequence in the package. `eoctl sim table
--witness FILE` writes it. `make test` repeats some of them, and `make explore` simulates new scenarios
for each cell without one. A cell may also have effects that the search did not find.
"""
_SAME = """
Some cells are equal, and were searched once:

- With acks 0 or 1 a producer is not idempotent.
- With one replica min.insync.replicas counts as 1, and no follower truncates.
- If no machine loses power, fsync changes nothing. A test compares both histories.

No Kafka release combines truncation at the high watermark with idempotence or ELR, so these cells do not
exist. Every simulated cluster has as many brokers as replicas.

The producer has one batch in flight. With more, an idempotent producer may write duplicates after its
broker restarts, because the broker then knows only the last batch of each producer. To see it, run
`eoctl sim explore --min-insync-replicas 2 --fsync batch --faults power,kill`, which finds seed 54. With
`--in-flight 1` it finds none. `test_repl_12_what_a_started_broker_forgot_is_sent_again` repeats it.

A weaker setting never loses less than a stronger setting, for acks, min.insync.replicas, unclean
elections, truncation, ELR and fsync (`test_a_weaker_setting_loses_no_less`). One exception comes from ELR.
With acks=1 a leader acknowledges records alone, and the eligible replica that leads next does not have
them. More replicas are not a stronger setting. With one replica, no other broker can lead without its
records.
"""
_END = """
## Availability after broker deaths

`eoctl sim scripts` lists four scenarios with replicas 0, 1, 2, ISR 0, 1 and min.insync.replicas 2.
`eoctl sim run ./run --script 2-both-dead` prints after each step what can be read and written.

- The last broker of the ISR leads again when it returns. Other brokers need an unclean election.
- Writes with acks=all wait for min.insync.replicas. Reads do not.
- A lower min.insync.replicas helps only if there is a leader.

## Consumers

With `eoctl sim run --consumer-commit before` the consumer commits before it handles records. If it dies in
between, it never handles them (at most once). With `after` it handles them again (at least once). `sim
check` reports `never-handled` and `handled-twice`. No broker or producer setting changes that, so neither
is a finding.

    eoctl sim run ./run --consumer-commit before --faults 'kill consumer at 50% handling, start consumer at 70%'
    eoctl sim check ./run

## Transactions

`eoctl sim run --transaction-records 10 --abort-every 5` simulates a transactional producer (KIP-98), its
coordinator, markers, and read_committed consumers (REPL-7, REPL-13). It uses transaction version 2
(KIP-890). A leader asks the coordinator before it accepts the first batch of a transaction. Each commit
or abort raises the producer epoch. The matrix has no transactions.

    eoctl sim run ./run --transaction-records 10 --abort-every 5 --faults 'kill leader at 40%, start all at 70%'
    eoctl sim check ./run

| claim | shown by |
|---|---|
| With min.insync.replicas=2 and each batch synced, committed transactions are read whole and aborted data never. This holds while brokers are killed, isolated, slow or lose power | `test_what_is_committed_is_there_and_what_is_aborted_is_not` |
| A consumer stops at the first transaction that is open or whose marker is not replicated | `test_repl_7_a_marker_that_is_not_replicated_leaves_its_transaction_unstable` |
| A late batch, from before an abort or from an older session, is refused and opens no transaction | `test_repl_13_what_comes_late_is_refused_and_opens_nothing` |
| If a marker is lost with its leader, the coordinator sends it to the next leader | `test_repl_13_a_marker_is_written_once_more_by_whoever_leads` |
| The next session of a killed producer aborts its open transaction | `test_what_a_killed_producer_has_begun_is_aborted` |
| Real brokers give the same records and markers when a leader dies in a transaction, and real clients read the same | `test_real_brokers_do_the_same`, `test_real_brokers_go_on_with_its_transactions` |
| A transaction that exceeds its timeout is aborted, and its producer refused | `test_repl_13_a_transaction_that_takes_too_long_is_aborted` |
| A commit is as safe as acks=all: if the only in-sync replica loses its disk, committed records are lost | `test_explore_plays_transactions_and_prints_the_calls_that_repeat_them` |
| The checker reports each of these broken rules: reading to the high watermark, ignoring aborts, unreplicated markers that count, one marker for all partitions | `test_a_broken_rule_is_condemned_and_the_rule_is_not` |

## Differences from Kafka

- One controller, which never fails. The page says nothing about the KRaft quorum.
- One transaction coordinator, which never fails, next to the controller. A node that is isolated from the
  controller is isolated from the coordinator. `__transaction_state` has one partition without replicas.
- While a leader waits for the coordinator's answer about a producer, later batches of this producer wait
  too. While markers of the former transaction are pending, the leader refuses at once, and the producer
  retries after 100 ms. A leader of 4.3 first retries itself (add.partitions.to.txn.retry.backoff.ms).
- A producer whose commit is refused begins a new session, as a restarted application does.
- No quotas, TLS, racks, tiered storage, reassignment, retention, compaction or wire protocol. Messages
  take 0.2 to 1 ms, in order on each link.
- A disk takes no time. A power loss keeps each file's unsynced writes up to a random point, torn, or as
  zeros. Writes older than 30 seconds are on disk.
- A resent batch (idempotence) ends the wait of a follower's fetch, which gets nothing. A real leader lets
  such a fetch wait on (ReplicaManager.addCompletePurgatoryAction). No records are lost by that.
- The high watermark waits while the ISR is smaller than min.insync.replicas, with and without ELR, as in
  4.3.1. Releases before 3.7 did not wait.
- `truncation hw` is the rule of releases before 0.11, in an otherwise modern broker.
- With `--consumer-commit` a consumer has its own offsets, outside transactions, in a coordinator that
  never fails. There are no groups that share partitions. A record takes a millisecond to handle.
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
    yield "| rule | statement | Kafka | shown by |"
    yield "|---|---|---|---|"
    for rule in REPLICATION:
        anchor = f"rules/replication.md#{rule.check_id.lower()}"
        tests = "<br>".join(named_for(rule.check_id))
        yield f"| [{rule.check_id}]({anchor}) | {rule.title} | `{rule.kafka}` | {tests} |"


def _claims() -> Iterator[str]:
    yield "| claim | verdict | cell | shortest failure sequence |"
    yield "|---|---|---|---|"
    by_cell = load_matrix().by_cell()
    for claim in CLAIMS:
        result = by_cell[claim.cell.canonical]
        what = f" that may {' or '.join(claim.never)}" if claim.never else ""
        scenario = f"none{what} in {result.seeds_count:,} scenarios"
        if claim.effect:
            witness = load_matrix().witnesses[result.witnesses[claim.effect]]
            scenario = f"{witness.records} records, seed {witness.seed}: `{witness.faults}`"
        yield f"| {claim.words} | {result.verdict} | {_cell_words(claim)} | {scenario} |"


def _cell_words(claim: Claim) -> str:
    said = [f"{SHORT[name]}={text_of_value(value)}" for name, value in claim.settings.items()]
    return ", ".join([claim.faults, *said])


def _counts() -> str:
    results = load_matrix().results
    none = [each.seeds_count for each in results if not each.effects]
    return (
        f"{len(results)} cells were searched with {sum(each.seeds_count for each in results):,}"
        f" scenarios. {len(results) - len(none)} may lose, duplicate or diverge. The other {len(none)}"
        f" do not in {range_words(none)} scenarios each."
    )


def page() -> str:
    """The whole page."""
    classes = "\n".join(f"- `{name}`: {WORDS[name]}" for name in FAULTS)
    defaults = ", ".join(f"{SHORT[name]}={text_of_value(each)}" for name, each in DEFAULTS.items())
    survived = "\n".join(f"- {each}" for each in survived_words(load_matrix().results))
    parts = [
        _BEGINNING, "\n".join(_rules()), _MATRIX, _counts(), _SAME, "The classes of faults:\n",
        classes, f"\n### Claims\n\nOther settings have their defaults: {defaults}.\n",
        "\n".join(_claims()), "\n", survived, _END,
    ]  # fmt: skip
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


if __name__ == "__main__":
    PAGE.write_text(page())
