"""The iteration order of a java.util.HashMap, after any insertions and removals (SNAP-8).

A bucket is a list in the order of insertion. If a ninth key would join a list, a table of less than
64 buckets doubles instead. In a larger table the bucket becomes a red-black tree by hash and key
(JDK 8 and later). The keys of a tree also stay in a list, which is iterated:

- A new key is inserted right behind its parent in the tree.
- The root of the tree moves to the front when it becomes the root.

A table that doubles splits each list in its order. A half of six keys or less becomes a plain list
again. A larger half becomes a new tree, whose root moves to the front. Removal undoes a small tree
by its shape, not by a count: the root lacks a child, or its left child has no left child.

Kafka keeps producers in such a map since 3.5. Before, it used a map of Scala with another order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator


# -- orders that come from Java's hash maps, and java.lang.String's hash
#
# Kafka writes producer snapshots in the iteration order of a java.util.HashMap (rule SNAP-8). Its
# tools print in such orders, and coordinators pick partitions by String.hashCode.


Key = TypeVar("Key")

INITIAL_BUCKETS = 16
TREE_BUCKET_ENTRIES = 8  # one more entry makes a tree, or makes a table smaller than 64 grow
MIN_TREE_BUCKETS = 64


def string_hash(text: str) -> int:
    """Return java.lang.String.hashCode as an unsigned 32-bit number, over UTF-16 code units."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for pos in range(0, len(units), 2):
        value = (31 * value + (units[pos] << 8 | units[pos + 1])) & 0xFFFFFFFF
    return value


def coordinator_partition(key: str, count: int) -> int:
    """Return which of `count` partitions of an internal topic has the records of a key.

    Utils.abs(key.hashCode()) % count. The smallest number, whose absolute value does not fit,
    counts as 0.
    """
    unsigned = string_hash(key)
    signed = unsigned - (1 << 32) if unsigned >> 31 else unsigned
    return 0 if signed == -INT32_MAX - 1 else abs(signed) % count


def long_hash(value: int) -> int:
    """Return java.lang.Long.hashCode as an unsigned 32-bit number."""
    unsigned = value & 0xFFFFFFFFFFFFFFFF
    return (unsigned ^ (unsigned >> 32)) & 0xFFFFFFFF


def spread(key_hash: int) -> int:
    """Fold the upper half of a hash into the lower, as HashMap does before it picks a bucket."""
    return key_hash ^ (key_hash >> 16)


class HashMapCapacity:
    """The number of buckets of a java.util.HashMap during insertions and removals.

    It never shrinks.
    """

    def __init__(self) -> None:
        self.buckets_count = INITIAL_BUCKETS

    def insert(self, key: Key, present: Collection[Key], key_hash: Callable[[Key], int]) -> None:
        """Count one new key next to the present keys."""
        if self.buckets_count < MIN_TREE_BUCKETS:
            mask = self.buckets_count - 1
            bucket = spread(key_hash(key)) & mask
            neighbours = sum(spread(key_hash(each)) & mask == bucket for each in present)
            if neighbours >= TREE_BUCKET_ENTRIES:
                self.buckets_count *= 2
        if len(present) + 1 > self.buckets_count * 3 // 4:
            self.buckets_count *= 2


# -- java hash map


LIST_AGAIN_ENTRIES = 6  # at most, in a half of a split tree
LEFT, RIGHT = 0, 1
_NO_CHILDREN: list[_Node | None] = []  # of a key in no tree; in a tree each key has its own list


class _Node:
    """A key in the list of its bucket and, if the bucket is a tree, in the tree."""

    __slots__ = ("children", "following", "is_red", "key", "parent", "preceding", "rank")

    def __init__(self, key: Any, hash_bits: int) -> None:
        self.key = key
        self.rank = (hash_bits - (1 << 32) if hash_bits >> 31 else hash_bits, key)
        self.following: _Node | None = None
        self.preceding: _Node | None = None
        self.parent: _Node | None = None
        self.children = _NO_CHILDREN
        self.is_red = False

    def leave_tree(self) -> None:
        """Clear parent, children and colour."""
        self.parent = None
        self.children = _NO_CHILDREN
        self.is_red = False


class _Bucket:
    """The list of a bucket, and the root of its tree if it is one."""

    __slots__ = ("first", "last", "root", "size")

    def __init__(self) -> None:
        self.first: _Node | None = None
        self.last: _Node | None = None
        self.root: _Node | None = None
        self.size = 0

    def __iter__(self) -> Iterator[_Node]:
        node = self.first
        while node is not None:
            following = node.following
            yield node
            node = following

    # -- the list

    def chain_behind(self, node: _Node, before: _Node | None) -> None:
        """Insert a node behind another node, or at the front."""
        after = self.first if before is None else before.following
        node.preceding, node.following = before, after
        if before is None:
            self.first = node
        else:
            before.following = node
        if after is None:
            self.last = node
        else:
            after.preceding = node
        self.size += 1

    def unchain(self, node: _Node) -> None:
        """Remove a node from the list."""
        before, after = node.preceding, node.following
        if before is None:
            self.first = after
        else:
            before.following = after
        if after is None:
            self.last = before
        else:
            after.preceding = before
        self.size -= 1

    def _root_first(self) -> None:
        if self.root is not None and self.root is not self.first:
            self.unchain(self.root)
            self.chain_behind(self.root, None)

    # -- the tree

    def plant(self) -> None:
        """Make a tree of the list."""
        self.root = None
        for node in self:
            self._grow(node)
        self._root_first()

    def fell(self) -> None:
        """Become a plain list again."""
        for node in self:
            node.leave_tree()
        self.root = None

    def put(self, node: _Node) -> None:
        """Add a new node."""
        if self.root is None:
            self.chain_behind(node, self.last)
            return
        self.chain_behind(node, self._grow(node))
        self._root_first()

    def _grow(self, node: _Node) -> _Node | None:
        """Insert a node into the tree. Returns its parent."""
        parent, below = None, self.root
        side = LEFT
        while below is not None:
            parent, side = below, int(node.rank > below.rank)
            below = below.children[side]
        node.parent, node.children = parent, [None, None]
        if parent is not None:
            parent.children[side] = node
        node.is_red = True
        self._repair_reds(node)
        return parent

    def _rotate(self, top: _Node, side: int) -> None:
        """Rotate `top` to this side, so that its child on the other side rises."""
        riser = top.children[1 - side]
        assert riser is not None
        inner = riser.children[side]
        top.children[1 - side] = inner
        if inner is not None:
            inner.parent = top
        self._replace(top, riser)
        riser.children[side] = top
        top.parent = riser

    def _replace(self, node: _Node, other: _Node | None) -> None:
        """Replace a node by another as the child of its parent."""
        parent = node.parent
        if other is not None:
            other.parent = parent
        if parent is None:
            self.root = other
        else:
            parent.children[int(parent.children[RIGHT] is node)] = other

    def _repair_reds(self, node: _Node) -> None:
        """Restore the colours after an insertion: no red node has a red parent, the root black."""
        while (parent := node.parent) is not None and parent.is_red:
            top = parent.parent
            if top is None:
                break
            side = int(top.children[RIGHT] is parent)
            uncle = top.children[1 - side]
            if uncle is not None and uncle.is_red:
                parent.is_red = uncle.is_red = False
                top.is_red = True
                node = top
                continue
            if parent.children[1 - side] is node:
                self._rotate(parent, side)
                node, parent = parent, node
            parent.is_red = False
            top.is_red = True
            self._rotate(top, 1 - side)
        if node.parent is None:
            self.root = node
            node.is_red = False

    # -- removal

    def take_out(self, node: _Node) -> None:
        """Remove a node from the list and the tree."""
        self.unchain(node)
        root = self.root
        if root is None or self.first is None:
            self.root = None
            return
        left = root.children[LEFT]
        if root.children[RIGHT] is None or left is None or left.children[LEFT] is None:
            self.fell()
            return
        self._prune(node)
        self._root_first()

    def _prune(self, node: _Node) -> None:
        """Remove a node from the tree."""
        if None not in node.children:
            self._change_places(node, self._successor(node))
        only = next((each for each in node.children if each is not None), None)
        if only is not None:
            self._replace(node, only)
            if not node.is_red:
                self._repair_blacks(only)
            return
        # As a leaf it stands for the missing black until that is balanced.
        if not node.is_red:
            self._repair_blacks(node)
        self._replace(node, None)

    @staticmethod
    def _successor(node: _Node) -> _Node:
        found = node.children[RIGHT]
        assert found is not None
        while (lower := found.children[LEFT]) is not None:
            found = lower
        return found

    def _change_places(self, node: _Node, lower: _Node) -> None:
        """Exchange places and colours of a node and its successor."""
        node.is_red, lower.is_red = lower.is_red, node.is_red
        (left, right), rest = node.children, lower.children[RIGHT]
        above_lower = lower.parent
        self._replace(node, lower)
        if right is lower:
            right = node
        else:
            assert above_lower is not None
            above_lower.children[LEFT] = node
        lower.children, node.children = [left, right], [None, rest]
        for parent in (above_lower, lower, node):
            for child in () if parent is None else parent.children:
                if child is not None:
                    child.parent = parent

    def _repair_blacks(self, node: _Node) -> None:
        """Restore equal numbers of blacks on all paths, if one is missing above `node`."""
        while (parent := node.parent) is not None and not node.is_red:
            side = int(parent.children[RIGHT] is node)
            sibling = parent.children[1 - side]
            if sibling is not None and sibling.is_red:
                sibling.is_red, parent.is_red = False, True
                self._rotate(parent, side)
                sibling = parent.children[1 - side]
            if sibling is None:
                node = parent
                continue
            near, far = sibling.children[side], sibling.children[1 - side]
            if far is None or not far.is_red:
                if near is None or not near.is_red:
                    sibling.is_red = True
                    node = parent
                    continue
                near.is_red, sibling.is_red = False, True
                self._rotate(sibling, 1 - side)
                sibling, far = near, sibling
            sibling.is_red, parent.is_red, far.is_red = parent.is_red, False, False
            self._rotate(parent, side)
            return
        node.is_red = False


class JavaHashMap(Generic[Key]):
    """The keys of a java.util.HashMap, made without a capacity.

    Attributes:
        buckets_count: size of its table, which never shrinks.
        has_lost: whether a key was ever removed. Then the order is no function of the inserted
            keys.
    """

    def __init__(self, key_hash: Callable[[Key], int], keys: Iterable[Key] = ()) -> None:
        self.buckets_count = INITIAL_BUCKETS
        self.has_lost = False
        self._key_hash = key_hash
        self._buckets: dict[int, _Bucket] = {}
        self._nodes: dict[Key, _Node] = {}
        for key in keys:
            self.put(key)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Key]:
        for place in sorted(self._buckets):
            for node in self._buckets[place]:
                yield node.key

    def put(self, key: Key) -> None:
        """Insert a key. A present key keeps its place."""
        if key in self._nodes:
            return
        node = self._nodes[key] = _Node(key, spread(self._key_hash(key)))
        place = node.rank[0] & (self.buckets_count - 1)
        bucket = self._buckets.setdefault(place, _Bucket())
        bucket.put(node)
        if bucket.root is None and bucket.size > TREE_BUCKET_ENTRIES:
            if self.buckets_count < MIN_TREE_BUCKETS:
                self._double()
            else:
                bucket.plant()
        if len(self._nodes) > self.buckets_count * 3 // 4:
            self._double()

    def remove_all(self, keys: Collection[Key]) -> None:
        """Remove keys one by one, as `keySet().removeAll` does for less than all keys."""
        for key in keys:
            node = self._nodes.pop(key, None)
            if node is None:
                continue
            self.has_lost = True
            place = node.rank[0] & (self.buckets_count - 1)
            self._buckets[place].take_out(node)
            if not self._buckets[place].size:
                del self._buckets[place]

    def copy(self) -> JavaHashMap[Key]:
        """Return an independent copy."""
        other = JavaHashMap(self._key_hash)
        other.buckets_count, other.has_lost = self.buckets_count, self.has_lost
        twins: dict[_Node | None, _Node | None] = {None: None}
        for key, node in self._nodes.items():
            twin = other._nodes[key] = _Node(key, node.rank[0] & 0xFFFFFFFF)
            twin.is_red = node.is_red
            twins[node] = twin
        for node, copied in zip(self._nodes.values(), other._nodes.values(), strict=True):
            copied.following, copied.preceding = twins[node.following], twins[node.preceding]
            copied.parent = twins[node.parent]
            copied.children = [twins[each] for each in node.children]
        for place, bucket in self._buckets.items():
            copied_bucket = other._buckets[place] = _Bucket()
            copied_bucket.first, copied_bucket.last = twins[bucket.first], twins[bucket.last]
            copied_bucket.root, copied_bucket.size = twins[bucket.root], bucket.size
        return other

    def _double(self) -> None:
        halves: dict[int, _Bucket] = {}
        for place, bucket in self._buckets.items():
            pair = _Bucket(), _Bucket()
            for node in bucket:
                half = pair[bool(node.rank[0] & self.buckets_count)]
                half.chain_behind(node, half.last)
            for half, other, new_place in zip(
                pair, reversed(pair), (place, place + self.buckets_count), strict=True
            ):
                if bucket.root is not None:
                    if half.size <= LIST_AGAIN_ENTRIES:
                        half.fell()
                    elif other.size:
                        half.plant()
                    else:
                        half.root = bucket.root
                if half.size:
                    halves[new_place] = half
        self.buckets_count *= 2
        self._buckets = halves


def hash_map_order(keys: Iterable[Key], key_hash: Callable[[Key], int]) -> list[Key]:
    """Return the order in which a HashMap iterates over keys inserted in the given order."""
    return list(JavaHashMap(key_hash, keys))
