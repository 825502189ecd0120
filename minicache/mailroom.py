"""Who gets which delta, when several readers turn one engine and a step has mail for them all."""

from __future__ import annotations

from minicache.engine import Delta, Engine


class Mailroom:
    """Boxes by request id. Whoever finds an empty box turns the engine, and files what it brings.

    So two streams read by turns, or a `generate` between two words of a stream, lose nothing.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._boxes: dict[str, list[Delta]] = {}

    def rent(self, id: str) -> None:
        """Keep the deltas of request `id` from now on."""
        self._boxes[id] = []

    def give_up(self, id: str) -> None:
        """Nobody reads the deltas of `id` any more; those that are there are thrown away."""
        self._boxes.pop(id, None)

    def collect(self, id: str) -> list[Delta]:
        """What has come for `id`. With nothing there, one step is run first.

        Raises `RuntimeError` when nothing can come any more.
        """
        if not self._boxes[id]:
            if not self._engine.has_work:
                raise RuntimeError(
                    f"{id!r} has not ended, but the engine has nothing left to do: its last delta "
                    "was read by another call of engine.step()."
                )
            self.turn()
        mail, self._boxes[id] = self._boxes[id], []
        return mail

    def turn(self) -> None:
        """Run one step and file its deltas. Those without a box stay for `engine.step()`."""
        others: list[Delta] = []
        for delta in self._engine.step():
            self._boxes.get(delta.id, others).append(delta)
        self._engine.put_back(others)
