"""Choose the store that ``new_store`` opens: in memory, in a file or on a server, plain or with a
key.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from foldlog.eventstore import Store, StoreRefused, open_store
from tests.foldlog.imports import imports

FORMS = {
    "memory": ("memory", None),
    "sqlite-encrypted": ("sqlite", imports.KEYS),
    "postgresql": ("postgresql", None),
    "postgresql-encrypted": ("postgresql", imports.KEYS),
}
BOTH_DATABASES = ("test_sources", "test_stores")
"""The test files of which a test on a server is not long. In all other files, only the tests with a
store in memory are not long.
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of each file that imports ``new_store`` with each form of a store."""
    name = metafunc.module.__name__.rpartition(".")[2]
    if not hasattr(metafunc.module, "new_store"):
        return
    brief = ("memory", "postgresql-encrypted") if name in BOTH_DATABASES else ("memory",)
    params = [pytest.param(form, marks=() if form in brief else pytest.mark.long) for form in FORMS]
    metafunc.parametrize("opened", params, indirect=True)


@pytest.fixture(autouse=True)
def opened(
    request: pytest.FixtureRequest, url_on: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Chooses what ``new_store`` opens, and closes all of these stores at the end."""
    if not hasattr(request, "param"):
        yield
        return
    database, keys = FORMS[request.param]
    stores: list[Store] = []

    def open_one() -> Store:
        url = url_on(database, another=all(map(_is_closed, stores)))
        stores.append(open_store(url, keys=keys))
        return stores[-1]

    monkeypatch.setattr(imports, "open_one", open_one)
    yield
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: None) -> Iterator[Store]:
    with imports.new_store() as store:
        yield store


@pytest.fixture
def target(opened: None) -> Iterator[Store]:
    """A store that the other one is copied to."""
    with imports.new_store() as store:
        yield store


def _is_closed(store: Store) -> bool:
    try:
        store.database.data_version()
    except StoreRefused:
        return True
    return False
