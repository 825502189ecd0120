"""The page pool: accounting, sharing, eviction, prefix hits. Docstrings name real reports."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from minicache.page_pool import OutOfPages, PagePool

TEXT = list(range(100, 164))


def store(pool: PagePool, tokens: list[int], salt: str = "") -> list[int]:
    """What a request does that computes `tokens` and stays: hit, allocate, commit. Its pages."""
    hashes: list[bytes] = []
    pages = pool.share(tokens, hashes, salt)
    full, hit = len(tokens) // pool.page_size, len(pages)
    pages += pool.allocate(-(-len(tokens) // pool.page_size) - hit)
    pool.commit(pages, tokens, hashes, hit, full, salt)
    return pages


def hits(pool: PagePool, tokens: list[int], salt: str = "") -> list[int]:
    return pool.match(tokens, [], salt)


def counts(pool: PagePool) -> tuple[int, int, int]:
    """Free and not hittable, held, cached."""
    return pool.num_free - pool.num_cached, pool.num_held, pool.num_cached


# --- counting ----------------------------------------------------------------------------------


def test_a_new_pool_is_free():
    pool = PagePool(5, 4, debug=True)
    assert counts(pool) == (5, 0, 0)
    assert pool.allocate(5) == [0, 1, 2, 3, 4]
    assert counts(pool) == (0, 5, 0)


@pytest.mark.parametrize(("num_pages", "page_size"), [(0, 16), (-1, 16), (4, 0)])
def test_a_pool_that_holds_nothing_is_refused(num_pages, page_size):
    with pytest.raises(ValueError, match="at least 1"):
        PagePool(num_pages, page_size)


def test_allocate_takes_all_or_nothing():
    pool = PagePool(3, 4, debug=True)
    pool.allocate(1)
    with pytest.raises(OutOfPages, match="3 pages were asked for, but 2 of 3 are free"):
        pool.allocate(3)
    assert counts(pool) == (2, 1, 0)
    assert len(pool.allocate(2)) == 2


def test_the_same_page_twice_in_one_free_is_refused_whole():
    """vllm#42571, dynamo#13398: a page twice in one free was linked twice into the free list."""
    pool = PagePool(4, 4, debug=True)
    first, second = pool.allocate(2)
    with pytest.raises(ValueError, match=f"Page {first} was freed 2 times"):
        pool.free([second, first, first])
    assert counts(pool) == (2, 2, 0)
    pool.free([second, first])
    assert counts(pool) == (4, 0, 0)


def test_two_slots_of_one_request_may_point_at_one_page():
    """vllm#42571: then both references are given back, in one call or two, and no third."""
    pool = PagePool(4, 2, debug=True)
    pages = store(pool, TEXT[:2])
    assert pool.share(TEXT[:4], []) == pages
    pool.free(pages * 2)
    assert counts(pool) == (3, 0, 1)
    with pytest.raises(ValueError, match="not held as often"):
        pool.free(pages)


@pytest.mark.parametrize("page", [-1, 4, 99])
def test_freeing_a_page_that_is_not_there_is_refused(page):
    pool = PagePool(4, 4, debug=True)
    pool.allocate(4)
    with pytest.raises(ValueError, match="was freed"):
        pool.free([0, page])
    assert counts(pool) == (0, 4, 0)


def test_check_notices_a_page_in_two_places():
    """The integrity check is itself worth a test: it must be able to fail."""
    pool = PagePool(4, 4)
    (page,) = pool.allocate(1)
    pool._free.append(page)
    with pytest.raises(AssertionError, match="two places"):
        pool.check()


def test_check_notices_a_page_twice_in_the_free_list():
    pool = PagePool(4, 4)
    pool._free.append(3)
    with pytest.raises(AssertionError, match="twice"):
        pool.check()


def test_check_notices_a_hash_that_points_nowhere():
    pool = PagePool(4, 4)
    pages = store(pool, TEXT[:8])
    pool._key_of[pages[0]] = None
    with pytest.raises(AssertionError, match="disagree"):
        pool.check()


def test_states_say_where_every_page_is():
    pool = PagePool(4, 2, debug=True)
    held = store(pool, TEXT[:3])
    pool.share(TEXT[:3], [])
    pool.free(store(pool, TEXT[10:12]))
    states = pool.states()
    assert states[held[0]] == (2, True)
    assert states[held[1]] == (1, False)
    assert sorted(states) == [(0, False), (0, True), (1, False), (2, True)]


# --- hits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 2, 3, 16])
def test_a_hit_leaves_one_token_to_compute(page_size):
    """nano-vllm#144, nano-vllm#199: a full hit left nothing to compute, and crashed."""
    pool = PagePool(64, page_size, debug=True)
    tokens = TEXT[: 2 * page_size]
    pages = store(pool, tokens)
    assert hits(pool, tokens) == pages[:1]
    assert hits(pool, [*tokens, 5]) == pages
    assert hits(pool, tokens[:1]) == []


def test_pages_are_hittable_only_after_commit():
    """vllm#43569: hashes registered before the keys and values were written."""
    pool = PagePool(8, 2, debug=True)
    pages, hashes = pool.allocate(2), []
    assert hits(pool, TEXT[:5]) == []
    pool.commit(pages, TEXT[:4], hashes, 0, 1)
    assert hits(pool, TEXT[:5]) == pages[:1]
    pool.commit(pages, TEXT[:4], hashes, 1, 2)
    assert hits(pool, TEXT[:5]) == pages


def test_pages_that_were_never_committed_go_free_unhittable():
    pool = PagePool(8, 2, debug=True)
    pages = pool.allocate(3)
    pool.commit(pages, TEXT[:6], [], 0, 1)
    pool.free(pages)
    assert counts(pool) == (7, 0, 1)


def test_the_same_tokens_after_another_beginning_are_another_text():
    pool = PagePool(8, 2, debug=True)
    store(pool, [1, 1, 2, 2])
    assert hits(pool, [3, 3, 2, 2, 9]) == []
    assert hits(pool, [2, 2, 9]) == []


def test_salts_keep_texts_apart():
    """vllm#12621: what one user stored must not be guessable for another; a salt separates them."""
    pool = PagePool(8, 2, debug=True)
    mine = store(pool, TEXT[:4], salt="mine")
    assert hits(pool, TEXT[:5], salt="mine") == mine
    assert hits(pool, TEXT[:5], salt="yours") == []
    assert hits(pool, TEXT[:5]) == []


def test_keys_are_sha256_of_parent_and_tokens():
    """vllm#12621, vllm#15297: Python's own hash was predictable. This fixes what a key is."""
    pool = PagePool(8, 2)
    hashes: list[bytes] = []
    pool.match([1, 2, 3], hashes, "salt")
    root = sha256(b"salt of a prefix cache: salt").digest()
    first = sha256(root + (1).to_bytes(4, "little") + (2).to_bytes(4, "little")).digest()
    assert hashes == [first]


@pytest.mark.parametrize("digest", [lambda text: b"same", lambda text: bytes([len(text) % 2])])
def test_a_collision_is_a_miss(digest):
    """vllm#15297: with a hash that always collides, nobody is served somebody else's pages."""
    pool = PagePool(8, 2, debug=True, digest=digest)
    store(pool, [1, 2, 3, 4])
    assert hits(pool, [5, 6, 7]) == []
    assert hits(pool, [1, 2, 1, 2, 9]) == hits(pool, [1, 2, 5, 6, 9]) == [0]
    store(pool, [5, 6, 7, 8])
    pool.check()


def test_hashes_are_computed_once_and_only_as_far_as_needed():
    calls = Counter()

    def digest(text: bytes) -> bytes:
        calls[text] += 1
        return sha256(text).digest()

    pool = PagePool(16, 2, digest=digest)
    hashes: list[bytes] = []
    assert pool.share(TEXT[:20], hashes) == []
    assert len(hashes) == 1  # the first page missed: no need to look on
    pages = pool.allocate(10)
    pool.commit(pages, TEXT[:20], hashes, 0, 5)
    pool.commit(pages, TEXT[:20], hashes, 5, 10)
    assert len(calls) == 10 and set(calls.values()) == {1}


def test_text_that_is_stored_already_is_not_stored_twice():
    """Two requests that compute the same prompt at once: one copy is kept, the other goes free."""
    pool = PagePool(8, 2, debug=True)
    first, second = pool.allocate(2), pool.allocate(2)
    pool.commit(first, TEXT[:4], [], 0, 2)
    pool.commit(second, TEXT[:4], [], 0, 2)
    pool.free(second)
    assert counts(pool) == (6, 2, 0)
    assert hits(pool, TEXT[:5]) == first


def test_without_prefix_caching_nothing_is_kept():
    pool = PagePool(8, 2, prefix_caching=False, debug=True)
    pages = store(pool, TEXT[:8])
    assert hits(pool, TEXT[:8]) == []
    pool.free(pages)
    assert counts(pool) == (8, 0, 0)


# --- eviction ----------------------------------------------------------------------------------


def test_free_pages_are_taken_before_cached_ones():
    pool = PagePool(4, 2, debug=True)
    pool.free(store(pool, TEXT[:4]))
    pool.allocate(2)
    assert counts(pool) == (0, 2, 2)
    assert len(hits(pool, TEXT[:5])) == 2


def test_the_tail_of_a_text_is_evicted_before_its_head():
    pool = PagePool(4, 2, debug=True)
    pages = store(pool, TEXT[:8])
    pool.free(pages)
    assert pool.allocate(1) == pages[3:]
    assert hits(pool, TEXT[:9]) == pages[:3]
    assert pool.allocate(2) == [pages[2], pages[1]]
    assert hits(pool, TEXT[:9]) == pages[:1]


def test_the_text_unused_for_longest_is_evicted_first():
    pool = PagePool(4, 2, debug=True)
    old, new = TEXT[:2], TEXT[10:12]
    pool.free(store(pool, old))
    pool.free(store(pool, new))
    pool.free(pool.share([*old, 1], []))  # used again: now the newer of the two
    pool.allocate(3)
    assert hits(pool, [*old, 1]) and not hits(pool, [*new, 1])


def test_shared_pages_are_never_evicted():
    """atlas#373: eviction set the count of a shared page to zero, and it got a second owner."""
    pool = PagePool(4, 2, debug=True)
    pages = store(pool, TEXT[:4])
    other = pool.share(TEXT[:5], [])
    pool.free(pages)  # the first owner ends; the second runs on
    taken = pool.allocate(2)
    assert not set(taken) & set(other)
    with pytest.raises(OutOfPages):
        pool.allocate(1)
    assert pool.states()[other[0]] == (1, True)


def test_an_evicted_page_is_no_longer_hittable():
    pool = PagePool(2, 2, debug=True)
    pool.free(store(pool, TEXT[:4]))
    pages = pool.allocate(2)
    assert hits(pool, TEXT[:5]) == []
    pool.free(pages)
    assert counts(pool) == (2, 0, 0)


def test_a_hit_takes_its_page_out_of_eviction():
    pool = PagePool(2, 2, debug=True)
    pool.free(store(pool, TEXT[:2]))
    page = pool.share(TEXT[:3], [])
    assert counts(pool) == (1, 1, 0)
    assert pool.allocate(1) != page


# --- any sequence of operations ----------------------------------------------------------------


class PoolMachine(RuleBasedStateMachine):
    """Owners allocate, write, commit, share and free; a model knows what each page stores.

    The alphabet has two tokens and pages of one to three, so that texts meet all the time.
    """

    operations = 0

    @initialize(
        num_pages=st.integers(1, 12),
        page_size=st.integers(1, 3),
        weak=st.booleans(),
        caching=st.sampled_from([True, True, True, False]),
    )
    def start(self, num_pages, page_size, weak, caching):
        digest = (lambda text: b"same") if weak else (lambda text: sha256(text).digest())
        self.pool = PagePool(
            num_pages, page_size, prefix_caching=caching, debug=True, digest=digest
        )
        self.stored: dict[int, tuple[str, tuple[int, ...]]] = {}
        self.owners: list[tuple[list[int], list[int], list[bytes], str, list[int]]] = []

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=14), salt=st.sampled_from("ab"))
    def begin(self, tokens, salt):
        """A request: hits what it can, takes the rest, or takes nothing."""
        type(self).operations += 1
        pool, before, hashes = self.pool, self.pool.states(), []
        pages = pool.share(tokens, hashes, salt)
        assert len(pages) * pool.page_size < len(tokens)
        for index, page in enumerate(pages):
            assert self.stored[page] == (salt, tuple(tokens[: (index + 1) * pool.page_size]))
        need = -(-len(tokens) // pool.page_size) - len(pages)
        if need > pool.num_free:
            with pytest.raises(OutOfPages):
                pool.allocate(need)
            pool.free(pages)
            assert pool.states() == before
            return
        held = {page for owner in self.owners for page in owner[0]} | set(pages)
        fresh = pool.allocate(need)
        assert len(set(fresh)) == need and not set(fresh) & held
        for page in fresh:
            self.stored.pop(page, None)
        self.owners.append((pages + fresh, tokens, hashes, salt, [len(pages)]))

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def commit(self, data):
        """An owner's next full pages have been written."""
        type(self).operations += 1
        pages, tokens, hashes, salt, done = data.draw(st.sampled_from(self.owners))
        full = len(tokens) // self.pool.page_size
        last = data.draw(st.integers(done[0], max(full, done[0])))
        for index in range(done[0], last):
            text = tuple(tokens[: (index + 1) * self.pool.page_size])
            self.stored[pages[index]] = (salt, text)
        self.pool.commit(pages, tokens, hashes, done[0], last, salt)
        done[0] = last

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def end(self, data):
        """An owner lets go; nobody can let go of the same pages again unless others hold them."""
        type(self).operations += 1
        index = data.draw(st.integers(0, len(self.owners) - 1))
        pages = self.owners.pop(index)[0]
        self.pool.free(pages)
        others = Counter(page for owner in self.owners for page in owner[0])
        if any(not others[page] for page in pages):
            before = self.pool.states()
            with pytest.raises(ValueError, match="was freed"):
                self.pool.free(pages)
            assert self.pool.states() == before

    @invariant()
    def holders_are_owners(self):
        if not hasattr(self, "pool"):
            return
        holders = Counter(page for owner in self.owners for page in owner[0])
        states = self.pool.states()
        assert [state.holders for state in states] == [holders[p] for p in range(len(states))]
        assert sum(counts(self.pool)) == self.pool.num_pages


def test_any_sequence_of_operations():
    """Invariant 1 after every operation; and every hit stores the text it is hit for."""
    PoolMachine.operations = 0
    run_state_machine_as_test(
        PoolMachine,
        settings=settings(
            max_examples=150, stateful_step_count=50, deadline=None, derandomize=True, database=None
        ),
    )
    assert PoolMachine.operations >= 5_000
