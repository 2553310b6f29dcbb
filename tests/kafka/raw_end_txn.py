"""Commits that a client asks for which only knows id, producer id and epoch.

No client library sends them by themselves: Flink sets the fields of Kafka's own by reflection. Up to
version 4 of the request it is the older protocol of transactions, from 5 on the one that raises the
epoch.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

END_TXN_KEY = 26
TIMEOUT_S = 30.0
CLIENT_ID = b"eoctl-tests"
OLDER, RAISING = 4, 5
NONE = 0
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED = 47, 48, 51, 90


class Ended(NamedTuple):
    """What a broker says; who the producer is from now on, from version 5 of the request on."""

    error_code: int
    producer_id: int = -1
    producer_epoch: int = -1


def commit(
    bootstrap: str, transactional_id: str, producer_id: int, epoch: int, *, version: int
) -> Ended:
    """Ask for a commit, and wait for the answer."""
    host, _, port = bootstrap.rpartition(":")
    name = transactional_id.encode()
    body = b"".join(
        (
            struct.pack(">hhih", END_TXN_KEY, version, 1, len(CLIENT_ID)) + CLIENT_ID + b"\0",
            bytes([len(name) + 1]) + name,
            struct.pack(">qh?", producer_id, epoch, True) + b"\0",
        )
    )
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as answers:
            (size_bytes,) = struct.unpack(">i", answers.read(4))
            answer = answers.read(size_bytes)
    error_code = struct.unpack_from(">h", answer, 4 + 1 + 4)[0]  # behind correlation id, tags, time
    if version < RAISING:
        return Ended(error_code)
    return Ended(error_code, *struct.unpack_from(">qh", answer, 4 + 1 + 4 + 2))
