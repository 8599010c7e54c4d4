"""Join several stores behind one address. Each store is one schema of a database, and complete in
itself. Each conversation is in one of the stores.

A hash of a conversation's id gives the number of its store. A companion conversation (``ID/+NAME``)
is in the store of ``ID``. A fork is in the store of its parent. If the hash of a fork's id gives
another store, that store records in which store the fork is. A conversation's key modulo the number
of stores is the number of its store. A query by id or by key goes to one store. All other queries
go to all stores in one round trip, and their results are joined.

A position in several stores contains one number for each store. Followers read the events of each
store in order, so they also read the events of each conversation in order. Events of different
stores have no order.

See docs/internals/decisions/0076-one-table.md.
"""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b, sha256
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, cast

import psycopg
from psycopg import conninfo

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.eventstore.errors import (
    InvalidArgument,
    InvalidOption,
    StoreRefused,
    StoreUnavailable,
)
from foldlog.eventstore.recorders.base import Columns, Recorder, Transaction, makes_missing_events
from foldlog.eventstore.recorders.postgres import setup
from foldlog.eventstore.recorders.postgres.open_transaction import OpenTransaction
from foldlog.eventstore.recorders.postgres.positions import Part
from foldlog.eventstore.recorders.postgres.reading import (
    PostgresReader,
    Query,
    Question,
    ReadSession,
)
from foldlog.eventstore.recorders.postgres.recorder import PostgresRecorder
from foldlog.eventstore.recorders.postgres.status import Lag, Status
from foldlog.eventstore.recorders.postgres.wire import PREFIX_END, Parameter, Wire, bigints
from foldlog.eventstore.recorders.postgres.writing import PostgresTransaction
from foldlog.eventstore.recorders.types import (
    Conversation,
    PlacedRow,
    Position,
    as_text,
    utf8,
)

T = TypeVar("T")

_COMPANION_MARK: Final = "/+"
_POSITION_MAX: Final = 2**63 - 1
_KNOWN_MAX: Final = 10_000
"""The number of conversations whose store this process remembers (``Stores.note_home``)."""
_QUESTIONS_MAX: Final = 16
"""The number of queries without news that this process remembers (``Stores.note_nothing``)."""
Snapshots = list[list[Columns]]
"""One snapshot of each server. The snapshot of a server changes with every commit. While the
snapshots do not change, nothing was committed.
"""


class _Joined(NamedTuple):
    """How the rows of several stores become one result: in which order, and whether the last
    parameter of the query limits their number.
    """

    order: Callable[[Columns], Any] | None = None
    backwards: bool = False
    is_limited: bool = False

    def __call__(
        self, answers: Sequence[list[Columns]], parameters: tuple[Parameter, ...]
    ) -> list[Columns]:
        rows = [row for answer in answers for row in answer]
        if self.order is not None:
            rows.sort(key=self.order, reverse=self.backwards)
        return rows[: cast(int, parameters[-1])] if self.is_limited else rows


_TOGETHER: Final[Mapping[str, _Joined]] = {
    "ids": _Joined(itemgetter(1), is_limited=True),
    "activity": _Joined(itemgetter(1, 2), backwards=True, is_limited=True),
    "activity_with_all": _Joined(itemgetter(1, 2), backwards=True, is_limited=True),
    "to_list_again": _Joined(),
    "news": _Joined(),
    "published_news": _Joined(),
    "unfinished": _Joined(itemgetter(1)),
    "with_bytes": _Joined(),
}
"""The queries for which one statement reads all stores of a server. A row of a joined result begins
with the number of its store.
"""
_ANY_STORE: Final = frozenset({"now", "trackings"})
"""The queries about all stores that one store answers."""


class StoresReader(PostgresReader):
    """A read transaction on each server. The transaction on a server begins with the first query on
    one of the server's stores.
    """

    def __init__(self, stores: Stores, sessions: Mapping[Server, ReadSession]) -> None:
        self._stores = stores
        self._sessions = sessions
        self._home: int | None = None

    def ask_ahead(self, questions: Iterable[tuple[str, Sequence[Any]]]) -> None:
        """Ask nothing ahead: the questions may belong to several servers."""

    # -- questions that concern several stores

    def value(self, name: str) -> str:
        kind, _, _ = name.partition(" ")
        if kind == "tracking":
            rows = self._query_one(0, "store_value", name)
            return as_text(rows[0][0]) if rows else ""
        if name == "last_position":
            last_positions = [answer[0][0] for answer in self._query_each_store(name)]
            return str(Position.of(max(last_positions), last_positions))
        if name == "data_version":
            return str(hash(tuple(answer[0][0] for answer in self._query_each_server(name))))
        if name == "bytes_pending" and self._home is None:
            return "pending" if self._query_together("with_bytes") else ""
        return super().value(name)

    def conversation(
        self, name: str | int, expected: Conversation | None = None
    ) -> Conversation | None:
        if isinstance(name, str):
            self._home = self._stores.home(name)
        return super().conversation(name, expected)

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        after = self._stores.position(after_position)
        if self._stores.nothing_since(after, snapshots := self._query_each_server("snapshot")):
            return []
        numbers = self._stores_with_news(after)
        if not numbers:
            self._stores.note_nothing(after, snapshots)
            return []
        starts = [after.parts[number] for number in numbers]
        blocks_after: list[Query] = [("publications", (start, start + 1)) for start in starts]
        live_after: list[Query] = [
            ("live_rows", (start + 1, _POSITION_MAX, limit)) for start in starts
        ]
        answers = self._ask_each([*numbers, *numbers], blocks_after + live_after)
        pages = []
        for number, start, blocks, live in zip(
            numbers, starts, answers, answers[len(numbers) :], strict=False
        ):
            if blocks:
                page = PostgresReader(partial(self._query_one, number)).placed_rows(start, limit)
            else:
                page = self._placed_rows(live)
            pages.append([(row.position, number, row) for row in page])
        placed = list[PlacedRow]()
        for position_in_store, number, row in heapq.merge(*pages, key=itemgetter(0)):
            if len(placed) == limit:
                break
            after = after.moved(number, position_in_store)
            placed.append(row._replace(position=after))
        return placed

    def place_after(self, position: int) -> tuple[int, str, int] | None:
        after = self._stores.position(position)
        for number in self._stores.numbers:
            next_row = PostgresReader(partial(self._query_one, number)).place_after(
                after.parts[number]
            )
            if next_row is not None:
                return after.moved(number, next_row[0]), *next_row[1:]
        return None

    def touched(
        self, after_position: int, min_version: int
    ) -> tuple[int, Sequence[tuple[int, int]]]:
        if after_position == 0:
            last = self._stores.position(self.value("last_position"))
            return last, [(key, version) for key, version in self.ask_all("all_visible")]
        after = self._stores.position(after_position)
        until = after
        question = ("touched", min_version, after)
        if self._stores.nothing_since(question, snapshots := self._query_each_server("snapshot")):
            return after, []
        numbers = self._stores_with_news(after)
        to_list_again = self.to_list_again(min_version)
        if not numbers and not to_list_again:
            self._stores.note_nothing(question, snapshots)
        for number, [(last,)] in zip(
            numbers, self._ask_each(numbers, [("last_position", ())] * len(numbers)), strict=True
        ):
            until = until.moved(number, last)
        answers = self._ask_each(
            numbers,
            [
                ("touched", (after.parts[number], until.parts[number], min_version))
                for number in numbers
            ],
        )
        touched = {(key, version) for answer in answers for key, version in answer}
        return until, [*touched.union(to_list_again)]

    def unlisted(self, key: int, until: int) -> tuple[int, bool]:
        parts = self._stores.position(until).parts
        numbers = self._stores.numbers
        answers = self._ask_each(
            numbers, [("unlisted", (key, parts[number])) for number in numbers]
        )
        return (
            sum(unlisted for [(unlisted, _)] in answers),
            all(is_given for [(_, is_given)] in answers),
        )

    def changed_since(self, after_position: int, events: int) -> tuple[int, Sequence[int] | None]:
        after = self._stores.position(after_position)
        until = self._stores.position(self.value("last_position"))
        numbers = self._stores.numbers
        starts = [after.parts[number] for number in numbers]
        many: list[Query] = [
            ("event_behind", (start, _POSITION_MAX, events // len(numbers))) for start in starts
        ]
        if any(self._ask_each(numbers, many)):
            return until, None
        touched: list[Query] = [("touched", (start, _POSITION_MAX, 0)) for start in starts]
        answers = self._ask_each(numbers, touched)
        return until, [*{key for answer in answers for key, _ in answer}]

    def next_touched(
        self, after_position: int, events: int
    ) -> tuple[int, int | None, Sequence[tuple[int, int]]]:
        after = until = self._stores.position(after_position)
        question = ("next_touched", after)
        if self._stores.nothing_since(question, snapshots := self._query_each_server("snapshot")):
            return after, None, []
        numbers = self._stores_with_news(after)
        if not numbers:
            self._stores.note_nothing(question, snapshots)
        times = list[int]()
        touched = set[tuple[int, int]]()
        for number in numbers:
            [(last,)] = self._query_one(number, "last_position")
            end = last
            for statement in ("event_behind", "publication_behind"):
                for position, recorded_at in self._query_one(
                    number, statement, after.parts[number], last, events
                ):
                    end = min(end, position)
                    if position < last:
                        times.append(int.from_bytes(recorded_at))
            until = until.moved(number, end)
            touched.update(
                (key, version)
                for key, version in self._query_one(number, "touched", after.parts[number], end, 0)
            )
        return until, min(times, default=None), [*touched]

    def has_reached(self, reached: str, position: int) -> bool:
        return self._stores.track(reached).has_reached(position)

    def _as_conversation(self, columns: Columns) -> Conversation:
        conversation = super()._as_conversation(columns)
        erasure = conversation.erasure
        if erasure is None or erasure.position is None:
            return conversation
        place = Position.in_store(
            erasure.position, self._stores.store_of(conversation.key), self._stores.count
        )
        return conversation._replace(erasure=erasure._replace(position=place))

    def with_bytes_pending(self) -> list[int]:
        """Return the numbers of the stores whose files contain deleted bytes."""
        return [number for number, _ in self._query_together("with_bytes")]

    def lags(self) -> list[Lag]:
        """Return how far each follower is behind in all stores together."""
        lags = []
        for follower, reached in self.trackings():
            position = self._stores.track(reached)
            questions: list[Query] = [("lag", (part,)) for part in position.parts]
            answers = self._ask_each(self._stores.numbers, questions)
            events = sum(count for [(count, _)] in answers)
            lags.append(Lag(follower, position, events, max(age_s for [(_, age_s)] in answers)))
        return lags

    # -- which stores are asked

    def ask_all(self, statement: str, *parameters: Parameter) -> list[Columns]:
        return list(chain.from_iterable(self._query_each_store(statement, *parameters)))

    def ask(self, statement: str, *parameters: Parameter) -> list[Columns]:
        if statement == "conversation":
            return self._by_name(cast(str, parameters[0]))
        if statement in ("unfinished", "to_list_again") and self._home is None:
            return [row[1:] for row in self._query_together(statement, *parameters)]
        if statement == "conversations":
            return self._ask_own("conversation_of", "ids", *parameters)
        if statement == "id_from":
            return [(name,) for _, name, _ in self._query_together("ids", parameters[0], 1)]
        if statement == "listed":
            return self._listed(*parameters)
        if statement == "store_value":
            number = (self._home or 0) if parameters == ("bytes_pending",) else 0
            return self._query_one(number, statement, *parameters)
        if statement in _ANY_STORE:
            return self._query_server(statement, *parameters)
        key = parameters[0]
        if key == 0 and self._home is None:
            return self.ask_all(statement, *parameters)
        return self._query_one(self._number(key), statement, *parameters)

    def _query_server(self, statement: str, *parameters: Parameter) -> list[Columns]:
        if statement == "trackings":
            facts = self._query_one(0, "facts_of", "tracking ")
            return [
                (name.removeprefix(b"tracking "), as_text(value)) for name, value in facts if value
            ]
        return self._query_one(self._home or 0, statement, *parameters)

    def _number(self, key: Parameter) -> int:
        """Return the number of the store to which a query about the conversation ``key`` goes.
        Later queries that are not about one conversation go to the same store.
        """
        if not key:  # the query is not about one conversation
            return self._home or 0
        self._home = self._stores.store_of(cast(int, key))
        return self._home

    def _by_name(self, name: str) -> list[Columns]:
        """Return the row of a conversation, and remember its store."""
        # One round trip reads the conversation, and whether another store has it.
        home = self._stores.home(name)
        rows, home_rows = self._ask_each(
            [home, home], [("conversation", (name,)), ("store_value", (home_fact(name),))]
        )
        if not rows and home_rows:
            home = self._stores.note_home(name, int(home_rows[0][0]))
            rows = self._query_one(home, "conversation", name)
        self._home = home
        return rows

    def _listed(self, *parameters: Parameter) -> list[Columns]:
        digests, at, key, count, limit = parameters
        if count == 1:
            return self._ask_own("listed_one", "activity", digests, at, key, limit)
        return self._ask_own("listed_one", "activity_with_all", *parameters)

    def _ask_own(self, statement: str, chosen: str, *parameters: Parameter) -> list[Columns]:
        """Ask all stores the query ``chosen``, which names conversations. Then ask the store of
        each conversation the query ``statement``, which returns its row.
        """
        rows = self._query_together(chosen, *parameters)
        questions: list[Query] = [(statement, (key,)) for _, _, key in rows]
        answers = self._ask_each([number for number, *_ in rows], questions)
        return list(chain.from_iterable(answers))

    def _stores_with_news(self, after: Position) -> list[int]:
        """Return the numbers of the stores that have an event after a position."""
        parts = bigints(after.parts)
        news = self._query_each_together([("news", (parts,)), ("published_news", (parts,))])
        return sorted({number for rows in news for number, _ in rows})

    def _query_together(self, statement: str, *parameters: Parameter) -> list[Columns]:
        return self._query_each_together([(statement, parameters)])[0]

    def _query_each_together(self, questions: Sequence[Query]) -> list[list[Columns]]:
        """Ask the stores of each server together: see ``_TOGETHER``."""
        answers = [
            self._sessions[server].ask_each(
                [(server.bind_together, *question) for question in questions]
            )
            for server in self._stores.servers
        ]
        return [
            _TOGETHER[statement]([answer[index] for answer in answers], parameters)
            for index, (statement, parameters) in enumerate(questions)
        ]

    def _query_each_server(self, statement: str) -> list[list[Columns]]:
        """Ask one store of each server. On Citus, ask each store."""
        numbers = [number for server in self._stores.servers for number in server.numbers_of_nodes]
        return self._ask_each(numbers, [(statement, ())] * len(numbers))

    def _query_each_store(self, statement: str, *parameters: Parameter) -> list[list[Columns]]:
        numbers = self._stores.numbers
        return self._ask_each(numbers, [(statement, parameters)] * len(numbers))

    def _query_one(self, number: int, statement: str, *parameters: Parameter) -> list[Columns]:
        return self._ask_each([number], [(statement, parameters)])[0]

    def _ask_each(self, numbers: Sequence[int], questions: Sequence[Query]) -> list[list[Columns]]:
        """Ask each store in ``numbers`` the question at the same place of ``questions``, in one
        round trip for each server. Return the answers in this order.
        """
        questions_of_server: dict[Server, list[tuple[int, Question]]] = {}
        for index, (number, (statement, parameters)) in enumerate(
            zip(numbers, questions, strict=True)
        ):
            server, store = self._stores.server_of(number)
            questions_of_server.setdefault(server, []).append(
                (index, (store.bind, statement, parameters))
            )
        answers: list[list[Columns]] = [[] for _ in questions]
        for server, indexed_questions in questions_of_server.items():
            for (index, _), answer in zip(
                indexed_questions,
                self._sessions[server].ask_each([question for _, question in indexed_questions]),
                strict=True,
            ):
                answers[index] = answer
        return answers


@Transaction.register
class StoresTransaction:
    """A write transaction on one server. A ``StoresTransaction`` has one transaction for each store
    that the work uses, and passes each call to one of these transactions. The transactions of all
    stores are committed together.
    """

    def __init__(
        self, server: Server, begin: Callable[[PostgresRecorder], PostgresTransaction], wire: Wire
    ) -> None:
        self._server = server
        self._stores = server.stores
        self._begin = begin
        self._wire = wire
        self._members: dict[int, PostgresTransaction] = {}
        self._home: int | None = None
        self._waits_for_no_standby = False
        self.stands: bool | None = False

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)

        def call_in_store(*arguments: Any, **options: Any) -> Any:
            number = number_named(self._stores, method, arguments, options)
            if number is None:
                number = self._present
            return getattr(self._transaction_of(number), method)(*arguments, **options)

        return call_in_store

    @property
    def _present(self) -> int:
        """The number of the store of the last call, or of the first store of this server."""
        return self._server.numbers[0] if self._home is None else self._home

    # -- methods that concern several stores

    @property
    def last_conversation(self) -> Any:
        return None if self._home is None else self._members[self._home].last_conversation

    @last_conversation.setter
    def last_conversation(self, conversation: Any) -> None:
        if self._home is not None:
            self._members[self._home].last_conversation = conversation

    def conversation(
        self, name: str | int, expected: Conversation | None = None
    ) -> Conversation | None:
        if not isinstance(name, str):
            return self._transaction_of(self._stores.store_of(name)).conversation(name)
        home = self._stores.home(name)
        server, _ = self._stores.server_of(home)
        if server is not self._server:
            return self._find_elsewhere(server, home, name)
        state = self._transaction_of(home).conversation(name, expected)
        if state is None and (number := self._transaction_of(home).value(home_fact(name))):
            state = self._transaction_of(self._stores.note_home(name, int(number))).conversation(
                name
            )
        return state

    def _find_elsewhere(self, server: Server, home: int, name: str) -> Conversation | None:
        """Find a conversation whose id belongs to the store ``home`` on another server. If the
        conversation does not exist, record in ``home`` which store of this server will get the
        conversation.
        """
        own = self._present

        def find_or_note(transaction: StoresTransaction) -> tuple[Conversation | None, str]:
            store = transaction._transaction_of(home)
            state = store.conversation(name)
            number = store.value(home_fact(name))
            if state is None and not number:
                number = str(own)
                store.set_value(home_fact(name), number)
            return state, number

        state, number = server.transact(
            cast(Callable[[Transaction], tuple[Conversation | None, str]], find_or_note)
        )
        if state is not None:
            return state
        return self._transaction_of(self._stores.note_home(name, int(number))).conversation(name)

    def lock_all(self, conversations: Sequence[str]) -> None:
        names_by_home: dict[int, list[str]] = {}
        for name in conversations:
            names_by_home.setdefault(self._stores.home(name), []).append(name)
        # One fixed order, so that no two transactions wait for each other.
        for home in sorted(names_by_home):
            self._transaction_of(home).lock_all(names_by_home[home])

    def begin(self, new: Conversation) -> Conversation:
        home = self._stores.home(new.id)
        if new.parent is None:
            number = home
        else:
            number = self._stores.store_of(new.parent)
        if number != home:
            self._transaction_of(home).set_value(home_fact(new.id), str(number))
        return self._transaction_of(number).begin(new)

    def value(self, name: str) -> str:
        if name.startswith("tracking "):
            rows = self._transaction_of(0).ask("store_value", name)
            return as_text(rows[0][0]) if rows else ""
        if name == "key_ids":
            return self._key_ids()
        # The clock is that of the server that has the conversation of this transaction.
        number = self._present if name == "now" else 0
        return self._transaction_of(number).value(name)

    def _key_ids(self) -> str:
        """Return the ids of the keys that the stores of this server use."""
        store = self._transaction_of(self._present)
        store.settle()
        for member in self._server.members.values():
            member.bind(self._wire)
            self._wire.queue("key_ids")
        rows = [row for answer in self._wire.ask() for row in self._wire.rows(answer)]
        self._server.members[self._present].bind(self._wire)
        return " ".join(as_text(key_id) or "(damaged)" for (key_id,) in rows)

    def set_value(self, name: str, value: str) -> None:
        store = self._transaction_of(0)
        if name.startswith("tracking ") and value:
            store.lock_all([name])
            former = self.value(name)
            if former and self._stores.track(former).has_reached(self._stores.track(value)):
                projection = name.removeprefix("tracking ")
                raise StoreUnavailable(
                    f"projection {projection!r} has already reached this position", kind="taken"
                )
        store.write("set_value", name, value)

    def ask_all(self, statement: str, *parameters: Any) -> list[Columns]:
        answers = [
            self._transaction_of(number).ask(statement, *parameters)
            for number in self._server.numbers
        ]
        return list(chain.from_iterable(answers))

    def write_all(self, statement: str, *parameters: Any) -> None:
        for number in self._server.numbers:
            self._transaction_of(number).write(statement, *parameters)

    # -- the transaction

    def wait_for_no_standby(self) -> None:
        # The member that the work uses first begins the transaction.
        self._waits_for_no_standby = True

    @property
    def assumes(self) -> bool:
        return any(member.assumes for member in self._members.values())

    @property
    def writes(self) -> int:
        return sum(member.writes for member in self._members.values())

    @property
    def locks(self) -> list[int]:
        return [number for member in self._members.values() for number in member.locks]

    def lock(self, number: int) -> None:
        self._transaction_of(self._present).lock(number)

    def was_committed(self, earlier: StoresTransaction) -> bool:
        return any(
            self._transaction_of(number).was_committed(member)
            for number, member in reversed(earlier._members.items())
            if member.witness is not None
        )

    def commit(self) -> None:
        members = [*self._members.values()]
        if not members:
            self.stands = True
            return
        for member in members[1:]:
            member.check_unused()
        first = members[0]
        first.join(members[1:])
        try:
            self._transaction_of(next(iter(self._members))).commit()
        finally:
            self.stands = first.stands

    def _transaction_of(self, number: int) -> PostgresTransaction:
        """Return the transaction on a store, which is begun at its first use. Raises
        ``InvalidArgument`` for a store of another server.
        """
        member = self._members.get(number)
        if member is not None and number == self._home:
            return member
        server, store = self._stores.server_of(number)
        if server is not self._server:
            raise InvalidArgument(
                f"the conversations of this write are on two servers, {server._server!r} and"
                f" {self._server._server!r}: write to each server separately"
            )
        # Statements that another store's transaction has queued are sent first.
        if self._home is not None and self._wire.has_queued:
            self._members[self._home].settle()
        store.bind(self._wire)
        if member is None:
            member = self._members[number] = self._begin(store)
            member.is_joined = len(self._members) > 1
            if self._waits_for_no_standby:
                member.wait_for_no_standby()
        self._home = number
        return member


class Server(PostgresRecorder):
    """The recorder for one server of joined stores. ``numbers`` are its stores, and ``members``
    their recorders, which share its connections. The stores of a server that ``were_moved`` there
    are never made, because they already exist.
    """

    def __init__(
        self,
        stores: Stores,
        dsn: str,
        options: Mapping[str, str],
        numbers: Sequence[int],
        *,
        were_moved: bool,
        durable: bool,
    ) -> None:
        self.stores = stores
        self.numbers = numbers
        self._were_moved = were_moved
        self.members: dict[int, PostgresRecorder] = {}
        self._united: dict[str, bytes] | None = None
        self._make = partial(PostgresRecorder, dsn, durable=durable)
        self._options = options
        super().__init__(
            dsn, self._options_of(numbers[0]), durable=durable, part=Part(numbers[0], stores.count)
        )

    def _options_of(self, number: int) -> dict[str, str]:
        return {**self._options, "schema": f"{self._options.get('schema', 'foldlog')}_{number:02d}"}

    def _open_pool(self) -> None:
        super()._open_pool()
        for number in self.numbers:
            if number not in self.members:
                part = Part(number, self.stores.count)
                self.members[number] = self._make(
                    self._options_of(number), part=part, pool=self._pool
                )
            self.members[number]._pool = self._pool

    def _stores(self) -> Sequence[PostgresRecorder]:
        return [*self.members.values()]

    @property
    def numbers_of_nodes(self) -> Sequence[int]:
        # On Citus, each store may be on its own node.
        return self.numbers if self._is_on_citus else self.numbers[:1]

    def bind_together(self, wire: Wire) -> None:
        """Select the statements that read all stores of this server: see ``_TOGETHER``."""
        if self._united is None:
            self._united = {name: self._unite(name) for name in _TOGETHER} | {
                name: self._statements[name] for name in ("begin_reading", "commit", "rollback")
            }
        wire.bind(self._united, f"all{PREFIX_END}")

    def _unite(self, name: str) -> bytes:
        """Return the query that reads all stores of this server. Its rows begin with the number of
        the store.
        """
        parts = [
            b"(%b)"
            % store._statements[name].replace(b"SELECT ", b"SELECT %d::bigint, " % number, 1)
            for number, store in self.members.items()
        ]
        united = b" UNION ALL ".join(parts)
        if not _TOGETHER[name].is_limited:
            return united
        # The order and the limit of the query for one store also hold for all stores. With a
        # ``LIMIT`` at the end, the database stops when it has enough rows.
        _, order, clauses = self._statements[name].rpartition(b"ORDER BY")
        return b"SELECT * FROM (%b) found %b" % (united, order + clauses)

    def _prepare_schema(self, connection: psycopg.Connection[Any], *, create: bool) -> None:
        parts = {
            store.schema: Part(number, self.stores.count) for number, store in self.members.items()
        }
        if setup.are_made(connection, parts):
            return
        existing = setup.schemas_there(connection, [*parts])
        for schema in existing:
            self._make_schema(connection, schema, parts[schema], create=False)
        missing = [schema for schema in parts if schema not in existing]
        if missing and self._were_moved:
            raise setup.lost_stores(missing)
        if missing:
            setup.check_not_lost(connection, missing, self.schema, existing)
        # the first store is made last, so if it exists, all stores exist
        for schema in reversed(missing):
            self._make_schema(connection, schema, parts[schema], create=create)

    def _begin(self, wire: Wire, at_once: bool, may_assume: bool) -> OpenTransaction:
        wire.abandon()
        begin = partial(
            PostgresRecorder.begin_on, wire=wire, at_once=at_once, may_assume=may_assume
        )
        return cast(OpenTransaction, StoresTransaction(self, begin, wire))


class Stores(Recorder):
    """The recorder that joins several stores. The option ``moved`` names the stores on other
    servers, such as ``17@host:port,18@host``. A moved store keeps the names of its database, schema
    and user.
    """

    on_server = True

    def __init__(self, dsn: str, options: Mapping[str, str], *, durable: bool = True) -> None:
        if "part" in options:
            raise InvalidOption(
                "the URL sets both 'stores', which opens all stores of an address, and 'part',"
                " which opens one store; remove one of these options"
            )
        self.count = int(options["stores"])
        self.numbers = range(self.count)
        self.store_count = self.count
        self.writable = options.get("mode", "rwc") != "ro"
        self._homes: dict[str, int] = {}
        addresses = _moved_addresses(options.get("moved", ""), self.count)
        other_options = {
            name: value for name, value in options.items() if name not in ("stores", "moved")
        }
        numbers_by_address: dict[str, list[int]] = {}
        for number in self.numbers:
            numbers_by_address.setdefault(addresses.get(number, ""), []).append(number)
        self.servers: list[Server] = []
        self._nothing: dict[object, Snapshots] = {}
        """Maps a query that found nothing new to the snapshots of the servers at that time. While
        the snapshots are equal, nothing new can be found.
        """
        self._server_of: dict[int, Server] = {}
        try:
            for address, numbers in numbers_by_address.items():
                server = Server(
                    self,
                    _at_address(dsn, address),
                    other_options,
                    numbers,
                    were_moved=address != "",
                    durable=durable,
                )
                self.servers.append(server)
                self._server_of |= dict.fromkeys(numbers, server)
        except BaseException:
            self.close()
            raise

    @property
    def on_citus(self) -> bool:
        return any(server.on_citus for server in self.servers)

    # -- the store of a conversation

    def home(self, conversation: str) -> int:
        """Return the number of the store that has a conversation or its fact ``home_fact``."""
        noted = self._homes.get(conversation)
        if noted is not None:
            return noted
        root = utf8(conversation.partition(_COMPANION_MARK)[0])
        return (
            int.from_bytes(blake2b(root, digest_size=8, person=b"foldlog store").digest())
            % self.count
        )

    def note_home(self, conversation: str, number: int) -> int:
        """Remember the store of a conversation, and return its number. A conversation never moves
        between stores.
        """
        if len(self._homes) >= _KNOWN_MAX:
            self._homes.clear()
        self._homes[conversation] = number
        return number

    def store_of(self, conversation: str | int) -> int:
        if isinstance(conversation, str):
            return self.home(conversation)
        return abs(conversation) % self.count

    def server_of(self, number: int) -> tuple[Server, PostgresRecorder]:
        """Return the server of a store, and the recorder of the store itself."""
        server = self._server_of[number]
        return server, server.members[number]

    def nothing_since(self, question: object, snapshots: Snapshots) -> bool:
        """Return whether a query that found nothing new would find nothing new again."""
        return self._nothing.get(question) == snapshots

    def note_nothing(self, question: object, snapshots: Snapshots) -> None:
        if len(self._nothing) >= _QUESTIONS_MAX:
            self._nothing.clear()
        self._nothing[question] = snapshots

    def position(self, position: int | str) -> Position:
        given = str(position)
        if not isinstance(position, Position) and position in (0, "0"):
            position = Position.of(0, [0] * self.count)
        elif isinstance(position, str):
            position = Position.read(position)
        if not isinstance(position, Position) or len(position.parts) != self.count:
            raise InvalidArgument(
                f"{given!r} is not a position of {self.count} stores; pass"
                " str(recorded.position) of an event that follow yielded, or begin at 0"
            )
        return position

    def track(self, text: str) -> Position:
        """Return the position of a projection from its stored text. One number means this number
        in every store.
        """
        if text.isdecimal():
            return Position.of(int(text), [int(text)] * self.count)
        return self.position(text)

    # -- the methods of a recorder

    @makes_missing_events
    def transact(
        self,
        work: Callable[[Transaction], T],
        *,
        any_thread: bool = False,
        at_once: bool = False,
        durable: bool = True,
    ) -> T:
        if len(self.servers) == 1:
            server = self.servers[0]
        else:
            server = self._first_server(work)
        return server.transact(work, any_thread=any_thread, at_once=at_once, durable=durable)

    @contextlib.contextmanager
    def read(self) -> Iterator[StoresReader]:
        with contextlib.ExitStack() as stack:
            sessions = {server: stack.enter_context(server.session()) for server in self.servers}
            yield StoresReader(self, sessions)

    @makes_missing_events
    def query(self, work: Callable[[StoresReader], T]) -> T:
        def attempt() -> T:
            with self.read() as reader:
                return work(reader)

        return self.servers[0]._retry(attempt)

    def compact(self, patience_s: float) -> bool:
        self.servers[0].check_writable()
        until = time.monotonic() + patience_s
        outcomes = []
        still_read: StoreUnavailable | None = None
        for number in self.query(StoresReader.with_bytes_pending):
            left_s = max(until - time.monotonic(), 0)
            try:
                outcomes.append(self.server_of(number)[1].compact(left_s))
            except StoreUnavailable as error:
                if error.kind != "read":
                    raise
                still_read = error  # the other stores may have no such reader
        if still_read is not None:
            raise still_read
        return all(outcomes)

    def check(self, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[str]:
        checks = [(number, self.server_of(number)[1].check(is_stopped)) for number in self.numbers]
        return (f"store {number}: {problem}" for number, check in checks for problem in check)

    def unchecked(self) -> Iterator[str]:
        for number in self.numbers:
            for problem in self.server_of(number)[1].unchecked():
                yield f"store {number}: {problem}"

    def status(self) -> Status:
        """Return the status of the store whose followers the oldest transaction holds back, with
        the events that are held back, the last position and the followers of all stores.
        """
        statuses = [self.server_of(number)[1].status() for number in self.numbers]
        worst = max(statuses, key=lambda status: status.horizon_age)
        last, lags = self.query(lambda reader: (reader.value("last_position"), reader.lags()))
        return worst._replace(
            held_back=sum(status.held_back for status in statuses),
            last_position=self.position(last),
            followers=tuple(lags),
        )

    def close(self) -> None:
        with contextlib.ExitStack() as closing:  # closes every server, also after an error
            for server in self.servers:
                closing.callback(server.close)

    # -- steps

    def _first_server(self, work: Callable[[Transaction], object]) -> Server:
        """Return the server that the work uses first. Run the work with a substitute for the
        transaction. The first call of the substitute ends the work. The work has no effects except
        through its transaction, so it can safely run again.
        """
        try:
            work(cast(Transaction, _StandIn()))
        except _Named as named:
            number = number_named(self, named.method, named.arguments, named.options)
            return self._server_of[number or 0]
        return self.servers[0]


class _Named(BaseException):
    """``_StandIn`` takes the place of a transaction, and raises ``_Named`` at the first call of a
    method. The arguments of this call show which server the work needs. No work catches ``_Named``.
    """

    def __init__(self, method: str, arguments: tuple[Any, ...], options: JsonObject) -> None:
        super().__init__(method)
        self.method = method
        self.arguments = arguments
        self.options = options


class _StandIn:
    """The substitute for a transaction: see ``_Named``."""

    last_conversation = None

    def __getattr__(self, method: str) -> Callable[..., NoReturn]:
        def raise_named(*arguments: Any, **options: Any) -> NoReturn:
            raise _Named(method, arguments, options)

        return raise_named


def number_named(
    stores: Stores, method: str, arguments: tuple[Any, ...], options: JsonMap
) -> int | None:
    """Return the number of the store that a method call of a transaction concerns, or None if the
    call does not show it. Raises ``StoreRefused`` if the call concerns all stores.
    """
    if method in ("ask", "write", "write_rows"):
        return stores.store_of(arguments[1])
    if method == "lock_all":
        return min((stores.home(name) for name in arguments[0]), default=None)
    if method == "begin":
        new: Conversation = arguments[0]
        return stores.home(new.id)
    if method in ("conversations_among", "last_changes", "listed_among"):
        return stores.store_of(arguments[0][0])
    first = options.get("forks_of", arguments[0] if arguments else options.get("key"))
    if method == "conversation" and isinstance(first, str):
        return stores.home(first)
    if isinstance(first, int) and first:
        return stores.store_of(first)
    if method in (
        "touched",
        "next_touched",
        "listed",
        "conversations",
        "placed_rows",
        "id_from",
        "recalled_among",
    ):
        raise StoreRefused(
            f"a write transaction cannot query all stores ({method})", kind="refused"
        )
    return None


def home_fact(conversation: str) -> str:
    """Return the name of the fact that says which store has a conversation, if it is not the store
    that the hash of its id gives.
    """
    return f"home {sha256(utf8(conversation)).hexdigest()}"


def _moved_addresses(text: str, count: int) -> dict[int, str]:
    """Parse the option ``moved``: return the addresses of stores on other servers, by number."""
    addresses: dict[int, str] = {}
    for part in filter(None, text.split(",")):
        number, _, address = part.partition("@")
        if not number.isdecimal() or int(number) >= count or not address:
            raise InvalidOption(
                f"moved is {text!r}; name each moved store by its number (below {count}) and its"
                " server, as in 17@host:port,18@host"
            )
        if int(number) in addresses:
            raise InvalidOption(f"moved is {text!r}; name the server of store {int(number)} once")
        addresses[int(number)] = address
    return addresses


def _at_address(dsn: str, address: str) -> str:
    """Return ``dsn`` with the server of an address: ``host``, ``host:port`` or, for an address of
    IPv6, ``[host]:port``.
    """
    if not address:
        return dsn
    if address.startswith("["):
        host, _, port = address.removeprefix("[").partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = address.partition(":")
    return conninfo.make_conninfo(dsn, host=host, port=port or None)
