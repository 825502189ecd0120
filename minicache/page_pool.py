"""Which page belongs to whom: allocate, share, free, evict. Pages are numbers here, not tensors.

A page is in exactly one of three places. *Free*: nobody's, and nothing of use is in it. *Held*: by
one request or more. *Cached*: nobody holds it, but it still stores the keys and values of a known
piece of text, and serves the next request that begins with that text, or is evicted when free pages
run out.

A page of text is known by a chained hash: sha256 over the hash of the page before it (which starts
from a salt) and its own tokens. Equal hashes mean equal text from the first token on.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

from minicache.arguments import check_whole


class OutOfPages(RuntimeError):
    """More pages were asked for than are free or cached. Nothing was taken."""


def sha256_digest(data: bytes) -> bytes:
    """The 32-byte sha256 of `data`: the hash that a `PagePool` uses unless it is given another."""
    return sha256(data).digest()


def _root(salt: str) -> bytes:
    """What the first page has in place of a parent's hash. No page's text begins like this."""
    return sha256(b"salt of a prefix cache: " + salt.encode(errors="surrogatepass")).digest()


class PageState(NamedTuple):
    """Where a page is: held by so many requests, and whether a new request can hit it.

    Free: no holders, not hittable. Cached: no holders, hittable.
    """

    holders: int
    hittable: bool


class PagePool:
    """`num_pages` pages of `page_size` tokens, shared by all requests.

    Every call either succeeds as a whole or raises and changes nothing.
    """

    def __init__(
        self,
        num_pages: int,
        page_size: int = 16,
        *,
        prefix_caching: bool = True,
        debug: bool = False,
        digest: Callable[[bytes], bytes] = sha256_digest,
    ) -> None:
        """With `debug`, the whole pool is checked after every change. Raises `ValueError`."""
        check_whole("num_pages", num_pages)
        check_whole("page_size", page_size)
        if num_pages < 1 or page_size < 1:
            raise ValueError(
                f"A pool of {num_pages} pages of {page_size} tokens holds nothing; "
                "both numbers must be at least 1."
            )
        self.num_pages = num_pages
        self.page_size = page_size
        self.prefix_caching = prefix_caching
        self.debug = debug
        self._digest = digest
        self._pack = struct.Struct(f"<{page_size}i").pack
        self._refs = [0] * num_pages
        self._free = list(range(num_pages - 1, -1, -1))
        self._idle: OrderedDict[int, None] = OrderedDict()
        """Pages that nobody holds but that can be hit, the next to be evicted first."""
        self._key_of: list[bytes | None] = [None] * num_pages
        self._text_of: list[bytes | None] = [None] * num_pages
        """What each hittable page stores (see `_identify`), so that a hash collision is noticed."""
        self._by_key: dict[bytes, int] = {}

    @property
    def num_free(self) -> int:
        """Pages that `allocate` can hand out: the free ones, and the cached ones it would evict."""
        return len(self._free) + len(self._idle)

    @property
    def num_held(self) -> int:
        """Pages held by at least one request."""
        return self.num_pages - self.num_free

    @property
    def num_cached(self) -> int:
        """Pages that nobody holds and that can still be hit; `num_free` counts them too."""
        return len(self._idle)

    def allocate(self, count: int) -> list[int]:
        """Take `count` pages, each held once: free ones first, then cached ones, oldest first.

        Raises `OutOfPages`.
        """
        if count > self.num_free:
            raise OutOfPages(
                f"{count} pages were asked for, but {self.num_free} of {self.num_pages} are free."
            )
        pages: list[int] = []
        for _ in range(count):
            page = self._free.pop() if self._free else self._evict()
            self._refs[page] = 1
            pages.append(page)
        if self.debug:
            self.check()
        return pages

    def match(self, tokens: Sequence[int], hashes: list[bytes], salt: str = "") -> list[int]:
        """The pages that already store the longest known beginning of `tokens`, in order.

        At most `len(tokens) - 1` tokens are matched: one is left to compute, for its logits are
        wanted. `hashes` keeps the page hashes of `tokens`; it is extended as far as was looked.
        The pages are not held: see `share`.
        """
        pages: list[int] = []
        if not self.prefix_caching:
            return pages
        for index in range((len(tokens) - 1) // self.page_size):
            text, key = self._identify(index, tokens, hashes, salt)
            page = self._by_key.get(key)
            if page is None or self._text_of[page] != text:
                break
            pages.append(page)
        return pages

    def share(self, tokens: Sequence[int], hashes: list[bytes], salt: str = "") -> list[int]:
        """`match`, and hold the pages found once more each."""
        pages = self.match(tokens, hashes, salt)
        for page in pages:
            self._refs[page] += 1
            self._idle.pop(page, None)
        if self.debug:
            self.check()
        return pages

    def commit(
        self,
        pages: Sequence[int],
        tokens: Sequence[int],
        hashes: list[bytes],
        first: int,
        last: int,
        salt: str = "",
    ) -> None:
        """Make a request's full pages `[first, last)` hittable: what they hold is stored now.

        `pages`, `tokens` and `hashes` are the request's own. Text that another page already stores
        stays with that page; this one then simply goes free with its request.
        """
        if not self.prefix_caching:
            return
        for index in range(first, last):
            text, key = self._identify(index, tokens, hashes, salt)
            if key not in self._by_key:
                page = pages[index]
                self._by_key[key], self._key_of[page], self._text_of[page] = page, key, text
        if self.debug:
            self.check()

    def free(self, pages: Sequence[int]) -> None:
        """One holder lets go of `pages`. Those that nobody holds any more become cached or free.

        The last page goes first, so that of one text the tail is evicted before the head.
        Raises `ValueError` if a page is held by fewer than let go of it.
        """
        for page, count in Counter(pages).items():
            if not 0 <= page < self.num_pages or self._refs[page] < count:
                raise ValueError(
                    f"Page {page} was freed {count} times at once, but is not held as often; "
                    "free every page once for each time it was allocated or shared."
                )
        for page in reversed(pages):
            self._refs[page] -= 1
            if self._refs[page] == 0:
                self._retire(page)
        if self.debug:
            self.check()

    def states(self) -> list[PageState]:
        """Where every page is, by number: for pictures and checks."""
        return [
            PageState(refs, key is not None)
            for refs, key in zip(self._refs, self._key_of, strict=True)
        ]

    def check(self) -> None:
        """Raise `AssertionError` unless every page is in exactly one place and the hashes agree."""
        free, idle = set(self._free), set(self._idle)
        held = {page for page, refs in enumerate(self._refs) if refs > 0}
        assert len(free) == len(self._free), "a page is twice in the free list"
        assert all(refs >= 0 for refs in self._refs), "a page has fewer than no holders"
        assert not (free & idle or free & held or idle & held), "a page is in two places"
        assert free | idle | held == set(range(self.num_pages)), "a page is in no place"
        keyed = {page: key for page, key in enumerate(self._key_of) if key is not None}
        hittable = {page: key for key, page in self._by_key.items()}
        assert hittable == keyed, "the hash map and the pages disagree"
        assert idle <= keyed.keys(), "a cached page cannot be hit"
        assert not free & keyed.keys(), "a free page can be hit"

    def _identify(
        self, index: int, tokens: Sequence[int], hashes: list[bytes], salt: str
    ) -> tuple[bytes, bytes]:
        """Text and hash of one full page. The text is the parent's hash, then the page's tokens.

        Pages are asked for from the first on, and each hash is computed once.
        """
        start = index * self.page_size
        parent = hashes[index - 1] if index else _root(salt)
        text = parent + self._pack(*tokens[start : start + self.page_size])
        if index == len(hashes):
            hashes.append(self._digest(text))
        return text, hashes[index]

    def _retire(self, page: int) -> None:
        """Put a page that nobody holds where it belongs."""
        if self._key_of[page] is None:
            self._free.append(page)
        else:
            self._idle[page] = None

    def _evict(self) -> int:
        """Forget the text of the page that has been idle longest, and return the page."""
        page, _ = self._idle.popitem(last=False)
        key = self._key_of[page]
        assert key is not None
        del self._by_key[key]
        self._key_of[page] = self._text_of[page] = None
        return page
